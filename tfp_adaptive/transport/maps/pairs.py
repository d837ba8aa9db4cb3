"""Pairs of a state and a score, as the fits of conditional maps take them."""

import collections

import tensorflow as tf

from tfp_adaptive.core import history

__all__ = [
  'Pairs',
  'normalized',
  'pick',
  'robust',
  'standardize',
  'thinned',
  'without_odd',
]

_LARGEST_SCORE = 10.0  # In its typical size, that counts whole.


class Pairs(
  collections.namedtuple('Pairs', ['states', 'scores', 'mean', 'scale'])
):
  """Standardized pairs, [n, d], and x's mean and scale, [d]."""

  __slots__ = ()


def standardize(states, scores, weights, is_path=False):
  """Returns `Pairs` at mean 0, x and g of one spread; a path has one scale."""

  def moments(rows):
    mean = tf.linalg.matvec(rows, weights, transpose_a=True)
    return mean, tf.linalg.matvec((rows - mean) ** 2, weights, transpose_a=True)

  tiny = tf.constant(1e-30, states.dtype)
  mean, variance = moments(states)
  _, score_variance = moments(scores)
  scale = ((variance + tiny) / (score_variance + tiny)) ** 0.25
  if is_path:
    scale = tf.exp(tf.reduce_mean(tf.math.log(scale))) * tf.ones_like(scale)
  return Pairs((states - mean) / scale, scores * scale, mean, scale)


def thinned(states, scores, weights, count, is_path=False):
  """Returns `count` of the pairs as `Pairs`.

  Rows of no weight, of a history that is not full, are passed over.
  """
  rows = history.spread(tf.concat([states, scores], axis=-1), weights, count)
  equal = tf.fill([count], tf.constant(1.0 / count, states.dtype))
  return standardize(*tf.split(rows, 2, axis=-1), equal, is_path)


def pick(rows, drivers, default):
  """Returns the drivers' entries along the last axis, a default for none."""
  picked = tf.gather(rows, tf.maximum(drivers, 0), axis=-1)
  return tf.where(drivers >= 0, picked, tf.cast(default, rows.dtype))


def robust(residual):
  """Returns a loss about r^2 / 2 that grows like a logarithm far out."""
  return 2.0 * tf.math.log1p(0.25 * residual**2)


def without_odd(scores, weights, is_driver):
  """Returns weights, less of pairs whose scores of drivers are far off.

  Far down a neck they are differences of what has been rounded.
  """
  size = tf.where(is_driver, tf.abs(scores), 0.0)
  # That of the mean logarithm: few that are large do not make it so.
  logs = tf.math.log(size + tf.constant(1e-30, size.dtype))
  typical = tf.exp(tf.linalg.matvec(logs, weights, transpose_a=True))
  odd = tf.reduce_max(
    tf.math.divide_no_nan(size, _LARGEST_SCORE * typical), axis=-1
  )
  return normalized(weights / tf.maximum(odd, 1.0) ** 2)


def normalized(weights):
  """Returns weights that sum to one."""
  tiny = tf.constant(1e-30, weights.dtype)
  return weights / tf.maximum(tf.reduce_sum(weights), tiny)
