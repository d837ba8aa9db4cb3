"""Small models whose parameters and data can be drawn jointly, by TensorFlow.

Every chain has its own data set: the chain dimension of the state is the first
dimension of the data. All numbers are float64.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa

tfd = tfp.distributions

# For `student_regression`.
_TIMES = np.linspace(-1.0, 1.0, 5)
_DEGREES = 4.0
_STUDENT = tfd.StudentT(np.float64(_DEGREES), 0.0, 1.0)
# For `field` and `hierarchy`.
_POINTS = np.linspace(0.0, 2.0, 6)
_DISTANCES = np.abs(_POINTS[:, np.newaxis] - _POINTS)
_MEAN = 0.5
_COVARIANCE = 0.6 * np.exp(-_DISTANCES) + 0.05 * np.eye(len(_POINTS))
# Mean and standard deviation of the logarithms.
_HYPER = dict(amplitude=(-0.3, 0.4), length_scale=(0.0, 0.5))
_NOISE = 0.4
# For `random_effects`.
_NUM_GROUPS = 6
_NUM_PARTICLES = 2
_MAX_RATE = 10.0
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)


class Model(NamedTuple):
  """A joint distribution of state and data."""

  name: str
  # (num, seed) -> state, drawn from the prior, parts [num, ...].
  draw: Callable[[int, Any], Any]
  # (state, seed) -> data drawn given the state, a structure of [num, ...].
  simulate: Callable[[Any, Any], Any]
  # (data) -> function for the kernels: the log density of the state, or the
  # log-likelihood if the prior is given separately.
  density: Callable[[Any], Callable]
  # (state, data) -> dict of [num], the quantities to rank and average. Only
  # quantities that depend on the data detect a kernel that samples the prior.
  quantities: Callable[[Any, Any], dict]
  # (state, data, seed) -> log estimates [num] that a stationary chain holds at
  # the state; `None` if the density is known.
  held_estimate: Callable | None = None


def student_regression():
  """A line with heavy-tailed noise of unknown scale.

  (a, b, c) ~ N(0, I),   y_j = a + b t_j + exp(c / 2 - 1/2) e_j,   e_j ~ t_4
  """

  def draw(num, seed):
    return normal([num, 3], seed)

  def simulate(state, seed):
    line, scale = _line(state)
    return line + scale * _STUDENT.sample(line.shape, seed=seed)

  def log_likelihood(state, data):
    line, scale = _line(state)
    tail = tf.math.log1p(((data - line) / scale) ** 2 / _DEGREES)
    return -tf.reduce_sum(
      0.5 * (_DEGREES + 1.0) * tail + tf.math.log(scale), axis=-1
    )

  def density(data):
    return lambda state: (
      log_likelihood(state, data) - 0.5 * tf.reduce_sum(state**2, axis=-1)
    )

  def quantities(state, data):
    return dict(
      a=state[..., 0],
      b=state[..., 1],
      c=state[..., 2],
      square=tf.reduce_sum(state**2, axis=-1),
      log_likelihood=log_likelihood(state, data),
    )

  return Model('student regression', draw, simulate, density, quantities)


def _line(state):
  """Returns locations and scale of the observations, [..., 5] and [..., 1]."""
  line = state[..., 0:1] + state[..., 1:2] * tf.constant(_TIMES)
  return line, tf.exp(0.5 * state[..., 2:3] - 0.5)


def field_prior():
  """Returns the prior of `field`, as the kernels take it."""
  return tfpa.gaussian_priors.spectral(_COVARIANCE, mean=_MEAN)


def field():
  """Counts on six points of a line: y_i ~ Poisson(exp f_i), f ~ N(m, C)."""
  factor = np.linalg.cholesky(_COVARIANCE)
  precision = np.linalg.inv(_COVARIANCE)

  def draw(num, seed):
    noise = normal([num, len(_POINTS)], seed)
    return _MEAN + noise @ tf.constant(factor.T)

  def simulate(state, seed):
    return tfd.Poisson(tf.exp(state)).sample(seed=seed)

  def log_likelihood(state, data):
    terms = data * state - tf.exp(state) - tf.math.lgamma(data + 1.0)
    return tf.reduce_sum(terms, axis=-1)

  def density(data):
    return lambda state: log_likelihood(state, data)

  def quantities(state, data):
    centered = state - _MEAN
    return dict(
      first=state[..., 0],
      middle=state[..., 3],
      mean=tf.reduce_mean(state, axis=-1),
      prior_square=tf.reduce_sum(
        centered * tf.linalg.matvec(tf.constant(precision), centered), axis=-1
      ),
      log_likelihood=log_likelihood(state, data),
    )

  return Model('latent field', draw, simulate, density, quantities)


def prior_fn(amplitude, length_scale):
  """Returns the field's prior at hyperparameters, one for each chain."""
  return tfpa.gaussian_priors.spectral(
    kernel_matrix(amplitude, length_scale), mean=_MEAN
  )


def hyperprior():
  """Returns the distribution of the hyperparameters, each log-normal."""
  return tfd.JointDistributionNamed(
    {
      name: tfd.LogNormal(np.float64(loc), np.float64(scale))
      for name, (loc, scale) in _HYPER.items()
    }
  )


def hierarchy():
  """A field in Student-t noise with unknown amplitude and length scale.

  The state is (field, dict of logarithms of the hyperparameters).
  """

  def draw(num, seed):
    logs = {
      name: loc + scale * normal([num], fold_in(seed, i))
      for i, (name, (loc, scale)) in enumerate(_HYPER.items())
    }
    matrix = kernel_matrix(**tf.nest.map_structure(tf.exp, logs))
    noise = normal([num, len(_POINTS)], fold_in(seed, 9))
    x = _MEAN + tf.linalg.matvec(tf.linalg.cholesky(matrix), noise)
    return x, logs

  def simulate(state, seed):
    return state[0] + _NOISE * _STUDENT.sample(state[0].shape, seed=seed)

  def log_likelihood(x, data):
    tail = tf.math.log1p(((data - x) / _NOISE) ** 2 / _DEGREES)
    return -0.5 * (_DEGREES + 1.0) * tf.reduce_sum(tail, axis=-1)

  def density(data):
    return lambda x: log_likelihood(x, data)

  def quantities(state, data):
    x, logs = state
    return dict(
      log_amplitude=logs['amplitude'],
      log_length_scale=logs['length_scale'],
      mean=tf.reduce_mean(x, axis=-1),
      roughness=tf.reduce_sum((x[..., 1:] - x[..., :-1]) ** 2, axis=-1),
      log_likelihood=log_likelihood(x, data),
    )

  return Model('hierarchy', draw, simulate, density, quantities)


def kernel_matrix(amplitude, length_scale):
  """Returns the covariance at hyperparameters, [chains, 6, 6]."""
  scaled = _DISTANCES / length_scale[..., tf.newaxis, tf.newaxis]
  matrix = amplitude[..., tf.newaxis, tf.newaxis] ** 2 * tf.exp(-scaled)
  return matrix + 0.05 * np.eye(len(_POINTS))


def random_effects():
  """Counts with random effects that are integrated out by importance sampling.

    theta ~ N(0, I_2),   x_j = theta_1 + exp(theta_2 / 2 - 1/2) e_j
    y_j ~ Poisson(10 / (1 + exp(-x_j))),   e_j ~ N(0, 1),   j = 1, ..., 6
    estimate of p(y | theta): product over j of the mean over two draws of x_j

  In the estimate that a stationary chain holds, one of the two draws of x_j
  comes from p(x_j | theta, y), for every j. The x_j that produced the data is
  such a draw, so the data contain x_j. Neither kernel nor estimate uses it.

  Source of the distribution of held estimates: Andrieu and Roberts (2009).
  """

  def draw(num, seed):
    return normal([num, 2], seed)

  def simulate(state, seed):
    noise = normal([state.shape[0], _NUM_GROUPS], seed)
    effects = _effects(state, noise)
    rate = _MAX_RATE * tf.sigmoid(effects)
    counts = tfd.Poisson(rate).sample(seed=fold_in(seed, 1))
    return dict(counts=counts, effects=effects)

  def density(data):
    def estimate(state, seed):
      effects = _effects(state, _particles(state, seed))
      return _log_joint(state, effects, data['counts'])

    return estimate

  def held_estimate(state, data, seed):
    effects = _effects(state, _particles(state, seed))
    effects = tf.concat(
      [data['effects'][..., tf.newaxis], effects[..., 1:]], axis=-1
    )
    return _log_joint(state, effects, data['counts'])

  def quantities(state, data):
    return dict(
      location=state[..., 0],
      log_scale=state[..., 1],
      square=tf.reduce_sum(state**2, axis=-1),
      log_likelihood=_quadrature(state, data['counts']),
    )

  return Model(
    'random effects', draw, simulate, density, quantities, held_estimate
  )


def _particles(state, seed):
  shape = [state.shape[0], _NUM_GROUPS, _NUM_PARTICLES]
  return normal(shape, seed)


def _effects(state, noise):
  """Returns x for noise [..., 6] or [..., 6, particles]."""
  shape = [*state.shape[:-1], *[1] * (noise.shape.rank - state.shape.rank + 1)]
  location = tf.reshape(state[..., 0], shape)
  scale = tf.exp(tf.reshape(state[..., 1], shape) / 2.0 - 0.5)
  return location + scale * noise


def _log_joint(state, effects, counts):
  """Returns the log of prior times estimate, [...]."""
  size = tf.cast(effects.shape[-1], effects.dtype)
  likelihood = tf.reduce_logsumexp(_log_counts(effects, counts), axis=-1)
  log_estimate = tf.reduce_sum(likelihood - tf.math.log(size), axis=-1)
  return log_estimate - 0.5 * tf.reduce_sum(state**2, axis=-1)


def _log_counts(effects, counts):
  """Returns log p(y_j | x_j), [..., 6, particles]."""
  counts = counts[..., tf.newaxis]
  log_rate = np.log(_MAX_RATE) + tf.math.log_sigmoid(effects)
  return counts * log_rate - tf.exp(log_rate) - tf.math.lgamma(counts + 1.0)


def _quadrature(state, counts):
  """Returns log p(y | theta) by Gauss-Hermite quadrature, [...]."""
  nodes = tf.constant(_NODES)
  nodes = tf.reshape(nodes, [*[1] * (counts.shape.rank), len(_NODES)])
  effects = _effects(state, nodes)
  log_weights = tf.constant(np.log(_WEIGHTS / np.sum(_WEIGHTS)))
  terms = _log_counts(effects, counts) + log_weights
  return tf.reduce_sum(tf.reduce_logsumexp(terms, axis=-1), axis=-1)


def fold_in(seed, data):
  """Returns a different seed for each integer."""
  return tf.random.experimental.stateless_fold_in(seed, data)


def normal(shape, seed):
  """Draws standard normals, float64."""
  return tf.random.stateless_normal(shape, seed, dtype=tf.float64, alg='philox')
