"""Moments of weighted points: what surrogates ask of the past states."""

import tensorflow as tf

from tfp_adaptive.core.tfp_private import prefer_static as ps

__all__ = ['effective_size', 'moments', 'precision', 'sharpness', 'spread']


def moments(points, point_weights):
  """Returns mean [d] and a covariance [d, d] that is positive definite.

  With few draws the covariance shrinks towards a small multiple of I.
  """
  mean = tf.linalg.matvec(points, point_weights, transpose_a=True)
  centered = points - mean
  covariance = tf.matmul(
    centered, point_weights[:, tf.newaxis] * centered, transpose_a=True
  )
  size = tf.cast(ps.shape(points)[-1], points.dtype)
  count = effective_size(point_weights)
  floor = 1e-3 * tf.linalg.trace(covariance) / size
  tiny = 1e-12 * (1.0 + tf.reduce_max(mean**2))
  identity = tf.linalg.eye(ps.shape(points)[-1], dtype=points.dtype)
  return mean, (
    count * covariance + 5.0 * tf.maximum(floor, tiny) * identity
  ) / (count + 5.0)


def effective_size(point_weights):
  """Returns how many equal weights are worth these, []."""
  square = tf.reduce_sum(point_weights**2)
  return 1.0 / tf.maximum(square, tf.constant(1e-12, square.dtype))


def sharpness(covariance, scores, point_weights):
  """Returns (Cov^-1 + E[score score^T]) / 2, [d, d]: the local scale.

  Both are the precision of a Gaussian. Elsewhere the second, the Fisher
  information, is the larger, and knows the width of a curved ridge, where the
  covariance knows its extent; a score that knows nothing is no harm.
  """
  fisher = tf.matmul(
    scores, point_weights[:, tf.newaxis] * scores, transpose_a=True
  )
  return 0.5 * (precision(covariance) + fisher)


def precision(covariance):
  """Returns the inverse of a positive definite matrix, [d, d]."""
  return tf.linalg.cholesky_solve(
    tf.linalg.cholesky(covariance),
    tf.linalg.eye(ps.shape(covariance)[-1], dtype=covariance.dtype),
  )


def spread(points, point_weights, count):
  """Returns `count` of the points, evenly by cumulative weight.

  Where rows are filled from the first one on, equal steps would miss them.
  """
  share = tf.cumsum(point_weights) / tf.reduce_sum(point_weights)
  spots = tf.linspace(tf.constant(0.0, share.dtype), 1.0, 2 * count + 1)[1::2]
  index = tf.searchsorted(share, spots)
  return tf.gather(points, tf.minimum(index, ps.shape(points)[0] - 1))
