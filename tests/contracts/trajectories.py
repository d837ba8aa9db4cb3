"""The leapfrog integrator in numpy, in momenta: what the kernels must equal.

  p <- p + 1/2 g(q);   L times:  q <- q + C C^T p,  p <- p + g(q)

the last kick halved; p = C^-T v, so that the kernels' velocity is C^T p.
"""

import numpy as np
import tensorflow as tf


class Quartic:
  """log pi(x) = -1/2 x^T P x - a |x|^4: not Gaussian, all derivatives known."""

  def __init__(self, event_size=3, coefficient=0.05, seed=0):
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(event_size, event_size))
    self.precision = np.eye(event_size) + 0.5 * mix @ mix.T / event_size
    self.coefficient = coefficient

  def log_prob(self, x):
    """The log density in TF, [chains...]."""
    pulled = tf.linalg.matvec(tf.constant(self.precision, x.dtype), x)
    square = tf.reduce_sum(x**2, axis=-1)
    return (
      -0.5 * tf.reduce_sum(x * pulled, axis=-1) - self.coefficient * square**2
    )

  def value(self, x):
    """The log density in numpy, [chains]."""
    quadratic = 0.5 * np.sum(x * (x @ self.precision), -1)
    return -quadratic - self.coefficient * np.sum(x**2, -1) ** 2

  def gradient(self, x):
    square = np.sum(x**2, -1, keepdims=True)
    return -x @ self.precision - 4.0 * self.coefficient * square * x

  def hessian(self, x):
    """The Hessian of -log pi, [chains, d, d]."""
    square = np.sum(x**2, -1)[..., np.newaxis, np.newaxis]
    outer = x[..., :, np.newaxis] * x[..., np.newaxis, :]
    bent = square * np.eye(x.shape[-1]) + 2.0 * outer
    return self.precision + 4.0 * self.coefficient * bent


class Trajectory:
  """`num_steps` leapfrog steps from `x` with velocity `noise`, [chains, d].

  Attributes:
    positions: q_0, ..., q_L, a list.
    gradients: g(q_0), ..., g(q_L), a list.
    velocity: C^T p_L.
    energy_error: H(q_L, p_L) - H(q_0, p_0), [chains].
  """

  def __init__(self, target, x, noise, factor, num_steps):
    inverse_mass = factor @ factor.T
    momentum = noise @ np.linalg.inv(factor)
    self.positions, self.gradients = [x], [target.gradient(x)]
    start = self._energy(target, x, momentum, inverse_mass)
    momentum = momentum + 0.5 * self.gradients[0]
    for done in range(1, num_steps + 1):
      x = x + momentum @ inverse_mass
      self.positions.append(x)
      self.gradients.append(target.gradient(x))
      kick = 0.5 if done == num_steps else 1.0
      momentum = momentum + kick * self.gradients[-1]
    self.velocity = momentum @ factor
    self.energy_error = self._energy(target, x, momentum, inverse_mass) - start

  def _energy(self, target, x, momentum, inverse_mass):
    kinetic = 0.5 * np.sum(momentum * (momentum @ inverse_mass), -1)
    return kinetic - target.value(x)


def finite_difference(function, point, entries=None, width=1e-6):
  """Returns the gradient of a scalar function of an array, by entries."""
  gradient = np.zeros_like(point)
  for index in entries if entries is not None else np.ndindex(*point.shape):
    bump = np.zeros_like(point)
    bump[index] = width
    gradient[index] = (function(point + bump) - function(point - bump)) / (
      2.0 * width
    )
  return gradient
