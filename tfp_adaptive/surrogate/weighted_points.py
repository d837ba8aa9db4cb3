"""Moments of weighted points, for surrogates of past states."""

import tensorflow as tf

from tfp_adaptive.core import history
from tfp_adaptive.core.tfp_private import prefer_static as ps


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
  count = history.effective_size(point_weights)
  floor = 1e-3 * tf.linalg.trace(covariance) / size
  tiny = 1e-12 * (1.0 + tf.reduce_max(mean**2))
  identity = tf.linalg.eye(ps.shape(points)[-1], dtype=points.dtype)
  return mean, (
    count * covariance + 5.0 * tf.maximum(floor, tiny) * identity
  ) / (count + 5.0)


def sharpness(covariance, scores, point_weights):
  """Returns (Cov^-1 + E[score score^T]) / 2, [d, d], the local precision.

  For a Gaussian both terms are its precision. For other targets the Fisher
  information E[score score^T] is larger. On a curved ridge, the Fisher
  information measures the width, and the covariance measures the length. All
  scores are zero before the first fit.
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
