"""Models of time series: an autoregression, hidden states, two species."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.models.posteriordb.posterior import cast
from experiments.models.posteriordb.posterior import constants
from experiments.models.posteriordb.posterior import Data
from experiments.models.posteriordb.posterior import Posterior

tfb = tfp.bijectors
tfd = tfp.distributions

# Runge-Kutta steps for each unit of time. Stan's tolerances are 1e-5 relative.
_STEPS_PER_UNIT = 20


def _ar_k(data, dtype):
  """An autoregression of order K, given its first K values."""
  y, order = cast(data['y'], dtype), int(data['K'])
  # Column k holds y[t - k].
  lags = [y[order - k : len(y) - k] for k in range(1, order + 1)]
  past = tf.constant(np.stack(lags, axis=1))
  zero, ten, scale = constants(dtype, 0.0, 10.0, 2.5)

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    alpha = yield tfd.Normal(zero, ten, name='alpha')
    beta = yield tfd.Sample(tfd.Normal(zero, ten), order, name='beta')
    sigma = yield tfd.HalfCauchy(zero, scale, name='sigma')
    mean = alpha + tf.linalg.matvec(past, beta)
    yield tfd.Independent(tfd.Normal(mean, sigma), 1, name='y')

  return Posterior(model, {'y': y[order:]})


def _hmm_drive_0(data, dtype):
  """Two hidden states, each with its own rates of two exponential data.

  The normal priors of `phi` and `lambda` are restricted to ordered vectors.
  Their common normalization does not depend on the unknowns. A flat prior on
  ordered vectors and a normal datum at the prior's mean have the same density.
  """
  seen = cast(np.stack([data['u'], data['v']], axis=-1), dtype)
  concentration = tf.constant(data['alpha'], dtype)
  one = tf.constant(1.0, dtype)
  ordered = tfb.Chain([tfb.Cumsum(), tfb.Exp()])

  root = tfd.JointDistributionCoroutine.Root

  # Chains are the first axis, because XLA cannot compile a vectorized loop.
  @tfd.JointDistributionCoroutine
  def model():
    first = yield root(tfd.Dirichlet(concentration[0], name='theta1'))
    second = yield root(tfd.Dirichlet(concentration[1], name='theta2'))
    phi = yield root(tfpa.ImproperUniform(2, ordered, dtype, 'phi'))
    rate = yield root(tfpa.ImproperUniform(2, ordered, dtype, 'lambda_'))
    yield tfd.Independent(tfd.Normal(phi, one), 1, name='phi_mean')
    yield tfd.Independent(tfd.Normal(rate, one), 1, name='lambda_mean')
    rates = tf.stack([phi, rate], axis=-1)  # [..., state, datum]
    yield tfd.HiddenMarkovModel(
      tfd.Categorical(logits=tf.zeros([2], dtype)),
      tfd.Categorical(probs=tf.stack([first, second], axis=-2)),
      tfd.Independent(tfd.Exponential(rates), 1),
      num_steps=len(seen),
      name='uv',
    )

  mean = cast([0.0, 3.0], dtype)
  pins = {'phi_mean': mean, 'lambda_mean': mean, 'uv': seen}

  def reported(states):
    states = dict(states)
    states['lambda'] = states.pop('lambda_')  # `lambda` is a keyword.
    return states

  return Posterior(model, pins, reported)


def _lotka_volterra(data, dtype):
  """Hares and lynxes: a differential equation with log-normal errors.

  The normal prior of `theta` is restricted to positive numbers, as explained in
  `_hmm_drive_0`.
  """
  log_y = cast(np.log(data['y']), dtype)
  log_y_init = cast(np.log(data['y_init']), dtype)
  num_years = len(log_y)
  if not np.array_equal(data['ts'], np.arange(1, num_years + 1)):
    raise ValueError('The data must be of the years 1, 2, ...')
  one = tf.constant(1.0, dtype)
  mean = tf.constant([1.0, 0.05, 1.0, 0.05], dtype)
  spread = tf.constant([0.5, 0.05, 0.5, 0.05], dtype)
  log_ten = tf.constant(np.log(10.0), dtype)
  root = tfd.JointDistributionCoroutine.Root

  # Chains are the first axis, because XLA cannot compile a vectorized loop.
  @tfd.JointDistributionCoroutine
  def model():
    theta = yield root(tfpa.ImproperUniform(4, tfb.Exp(), dtype, 'theta'))
    z_init = yield root(
      tfd.Sample(tfd.LogNormal(log_ten, one), 2, name='z_init')
    )
    sigma = yield root(tfd.Sample(tfd.LogNormal(-one, one), 2, name='sigma'))
    yield tfd.Independent(tfd.Normal(theta, spread), 1, name='theta_mean')
    log_init = tf.math.log(z_init)
    yield tfd.Independent(tfd.Normal(log_init, sigma), 1, name='log_y_init')
    log_z = populations(theta, log_init, num_years)
    errors = tfd.Normal(log_z, sigma[..., tf.newaxis, :])
    yield tfd.Independent(errors, 2, name='log_y')

  pins = {'theta_mean': mean.numpy(), 'log_y_init': log_y_init, 'log_y': log_y}
  return Posterior(model, pins)


def populations(
  theta: tf.Tensor, log_init: tf.Tensor, num_units: int
) -> tf.Tensor:
  """Returns log populations [..., num_units, 2] at the times 1, 2, ...

  Classical Runge-Kutta steps integrate the logarithms, which stay finite even
  if a population nearly dies out:

    d log u / dt = alpha - beta v,  d log v / dt = -gamma + delta u

  Args:
    theta: (alpha, beta, gamma, delta), [..., 4].
    log_init: Logarithms of both populations at time 0, [..., 2].
    num_units: Number of units of time.
  """
  alpha, beta, gamma, delta = tf.unstack(theta, axis=-1)
  step = 1.0 / _STEPS_PER_UNIT

  def slope(state):
    prey, predator = tf.unstack(tf.exp(state), axis=-1)
    return tf.stack([alpha - beta * predator, delta * prey - gamma], axis=-1)

  def advance(state, _):
    first = slope(state)
    second = slope(state + 0.5 * step * first)
    third = slope(state + 0.5 * step * second)
    fourth = slope(state + step * third)
    return state + step / 6.0 * (first + 2.0 * (second + third) + fourth)

  # The loop has a small body, because XLA compiles a long one slowly.
  num_steps = num_units * _STEPS_PER_UNIT
  states = tf.scan(advance, tf.range(num_steps), log_init)
  yearly = states[_STEPS_PER_UNIT - 1 :: _STEPS_PER_UNIT]
  return tf.experimental.numpy.moveaxis(yearly, 0, -2)


MODELS: dict[str, Callable[[Data, tf.DType], Posterior]] = {
  'arK-arK': _ar_k,
  'bball_drive_event_0-hmm_drive_0': _hmm_drive_0,
  'hudson_lynx_hare-lotka_volterra': _lotka_volterra,
}
