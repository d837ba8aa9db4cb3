"""A model whose likelihood is known by unbiased estimates only."""

import numpy as np
import tensorflow as tf

from experiments.calibration import models

__all__ = ['random_effects']

_NUM_GROUPS = 6
_NUM_PARTICLES = 2
_MAX_RATE = 10.0
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)


def random_effects():
  """Counts with random effects that are integrated out by importance sampling.

    theta ~ N(0, I_2),   x_j = theta_1 + exp(theta_2 / 2 - 1/2) e_j
    y_j ~ Poisson(10 / (1 + exp(-x_j))),   e_j ~ N(0, 1),   j = 1, ..., 6
    estimate of p(y | theta): product over j of the mean over two draws of x_j

  A stationary chain holds estimates in which, for every j, one of the two is
  a draw of p(x_j | theta, y): the x_j behind the data is one. The data carry
  it for that purpose; neither kernel nor estimate sees it.

  Source of the law of what is held: Andrieu and Roberts (2009).
  """

  def draw(num, seed):
    return models.normal([num, 2], seed)

  def simulate(state, seed):
    noise = models.normal([state.shape[0], _NUM_GROUPS], seed)
    effects = _effects(state, noise)
    rate = _MAX_RATE * tf.sigmoid(effects)
    counts = models.poisson(rate, models.fold_in(seed, 1), num_terms=60)
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

  return models.Model(
    'random effects', draw, simulate, density, quantities, held_estimate
  )


def _particles(state, seed):
  shape = [state.shape[0], _NUM_GROUPS, _NUM_PARTICLES]
  return models.normal(shape, seed)


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
