"""Targets with exact draws and a known whitening, and chains of steps."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

MODES = ('eager', 'graph', 'xla')


def standard_normal(x):
  """Log density of N(0, I) over the last dimension, up to a constant."""
  return -0.5 * tf.reduce_sum(x**2, axis=-1)


def value_and_gradient(function, at):
  """Returns function(at) and the gradient of its sum, as numpy."""
  found = tfp.math.value_and_gradient(function, at)
  return tf.nest.map_structure(np.asarray, found)


def correlated_factor(event_size, condition=100.0, seed=0):
  """Returns the Cholesky factor of a rotated covariance, [d, d]."""
  rng = np.random.default_rng(seed)
  rotation, _ = np.linalg.qr(rng.normal(size=(event_size, event_size)))
  variances = np.geomspace(1.0, condition, event_size)
  return np.linalg.cholesky((rotation * variances) @ rotation.T)


class Banana:
  """A bent, correlated Gaussian with exact draws.

    z ~ N(0, I);  u = A z;  x = u except x_1 = u_1 + bend (u_0^2 - Var u_0)

  The map has unit Jacobian up to |A|, so log p(x) = -|z(x)|^2 / 2 + const and
  |z(x)|^2 is chi-squared.
  """

  def __init__(self, event_size, bend=0.3, temper=1.0):
    self.factor = correlated_factor(event_size, 10.0)
    self._variance = self.factor[0, 0] ** 2
    self._bend = bend / self._variance**0.5
    self._temper = temper

  def draw(self, num_draws, seed=0):
    """Returns exact draws of the target at temper 1, [num_draws, d]."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(num_draws, len(self.factor))) @ self.factor.T
    u[:, 1] += self._bend * (u[:, 0] ** 2 - self._variance)
    return u

  def whiten(self, x):
    """Returns z(x), N(0, I) under the target at temper 1."""
    u = np.array(x)
    u[:, 1] -= self._bend * (u[:, 0] ** 2 - self._variance)
    return np.linalg.solve(self.factor, u.T).T

  def log_prob(self, x):
    first, second, rest = tf.split(x, [1, 1, x.shape[-1] - 2], axis=-1)
    second -= self._bend * (first**2 - self._variance)
    u = tf.concat([first, second, rest], axis=-1)
    inverse = tf.constant(np.linalg.inv(self.factor), x.dtype)
    z = tf.linalg.matvec(inverse, u)
    return self._temper * standard_normal(z)


class CountedTarget:
  """N(0, I) that counts eager calls: values, gradients, Hessian products."""

  def __init__(self):
    self.calls = dict(target=0, gradient=0, hessian_vector=0)

  def __call__(self, x):
    @tf.custom_gradient
    def minus(x):
      self.calls['gradient'] += 1

      def product(upstream):
        self.calls['hessian_vector'] += 1
        return -upstream

      return -x, product

    @tf.custom_gradient
    def log_prob(x):
      self.calls['target'] += 1

      def grad(upstream):
        return upstream[..., tf.newaxis] * minus(x)

      return standard_normal(x), grad

    return log_prob(x)


def stepper(kernel, mode):
  """Returns (state, results, seed) -> (state, results), compiled or not."""

  def step(state, results, seed):
    return kernel.one_step(state, results, seed=seed)

  if mode == 'eager':
    return step
  return tf.function(step, jit_compile=mode == 'xla', autograph=False)


def seeds(num_seeds, start=0):
  """Returns [2] seeds that no two steps share."""
  return [tf.constant([start, i], tf.int32) for i in range(num_seeds)]


def run_steps(step, state, results, num_steps, start=0):
  """Returns the lists of states and results after each of the steps."""
  states, all_results = [], []
  for seed in seeds(num_steps, start):
    state, results = step(state, results, seed)
    states.append(state)
    all_results.append(results)
  return states, all_results


def run(kernel, state, num_steps, mode='eager', results=None, start=0):
  """Returns the lists of states and results of a kernel after each step."""
  results = kernel.bootstrap_results(state) if results is None else results
  return run_steps(stepper(kernel, mode), state, results, num_steps, start)


def smallest_p_value(target, before, after):
  """Returns the smallest p-value, times the number of tests.

  Kolmogorov-Smirnov of every whitened coordinate and of |z|^2, which see any
  change of law; and paired z-tests of the changes of z_i, z_i^2 and |z|^2,
  which see a change of scale that one step makes only in part.
  """
  z0, z1 = target.whiten(before), target.whiten(after)
  norm0, norm1 = np.sum(z0**2, axis=1), np.sum(z1**2, axis=1)
  p_values = [stats.kstest(column, 'norm').pvalue for column in z1.T]
  p_values.append(stats.kstest(norm1, stats.chi2(z1.shape[1]).cdf).pvalue)
  changes = [*(z1 - z0).T, *(z1**2 - z0**2).T, norm1 - norm0]
  for change in changes:
    standard_error = change.std() / len(change) ** 0.5
    p_values.append(2 * stats.norm.sf(abs(change.mean()) / standard_error))
  return len(p_values) * min(p_values)
