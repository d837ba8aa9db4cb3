"""Coordinates of a surrogate, in which its draws have mean 0 and unit scale.

  z = C^-1 (x - center),   C C^T = sharpness^-1 (`weighted_points.sharpness`)

r is the distance from the center in units of the draws' covariance. If r^2
exceeds `reach`, beyond the farthest draw, the score is multiplied by
(reach / r^2)^2.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import state_parts
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.surrogate import weighted_points

_MARGIN = 1.5  # Reach, in units of the squared distance of the farthest draw.
_LEAST_SPREAD = 1e-3  # Least squared distance of the farthest draw.


class Frame(NamedTuple):
  """Center and scale of the draws."""

  center: tf.Tensor  # Mean of the draws, [d].
  inverse_factor: tf.Tensor  # C^-1, [d, d].
  # Inverse Cholesky factor of the draws' covariance, [d, d]. It gives the
  # distances r.
  whitener: tf.Tensor
  reach: tf.Tensor  # Largest r^2 at which the score is not reduced, [].


def start(event_size, dtype):
  """Returns the frame before any draws, in which no point is outside."""
  identity = tf.linalg.eye(event_size, dtype=dtype)
  return Frame(
    center=tf.zeros([event_size], dtype),
    inverse_factor=identity,
    whitener=identity,
    reach=tf.constant(dtype.max, dtype),
  )


def from_draws(points, weights, scores):
  """Returns the `Frame` of draws [n, d], P of the Gaussian base, and metrics.

  The reach is NaN if the draws are one point. P is in coordinates z, [d, d].
  Metrics are lower-triangular factors, [3, d, d], to try in the frame: those of
  the coordinates z, of the covariance, and of x up to a scale. `scores` are
  those of the last fit at the points, [n, d].
  """
  mean, covariance = weighted_points.moments(points, weights)
  size = ps.shape(points)[-1]
  identity = tf.linalg.eye(size, dtype=points.dtype)
  sharpness = weighted_points.sharpness(covariance, scores, weights)
  inverse_factor = tf.linalg.matrix_transpose(tf.linalg.cholesky(sharpness))
  whitener = tf.linalg.triangular_solve(
    tf.linalg.cholesky(covariance), identity
  )
  whitened = tf.matmul(points - mean, whitener, transpose_b=True)
  distances = tf.where(weights > 0.0, tf.reduce_sum(whitened**2, axis=-1), 0.0)
  farthest = tf.reduce_max(distances)
  # If all draws are one point up to rounding, NaN makes the fit fail.
  reach = tf.where(farthest > _LEAST_SPREAD, _MARGIN * farthest, np.nan)
  frame = Frame(mean, inverse_factor, whitener, reach)
  seen = tf.matmul(
    inverse_factor,
    tf.matmul(covariance, inverse_factor, transpose_b=True),
  )
  isotropic = tf.linalg.trace(covariance) / tf.cast(size, points.dtype)
  metrics = tf.stack(
    [
      identity,
      tf.linalg.cholesky(seen),
      tf.linalg.cholesky(
        isotropic * tf.matmul(inverse_factor, inverse_factor, transpose_b=True)
      ),
    ]
  )
  base = weighted_points.precision(seen)
  return frame, base, metrics


def whiten(frame, x):
  """Returns z, rows [..., d]."""
  return multiply(x - frame.center, frame.inverse_factor, transpose=True)


def fade(frame, x):
  """Returns the number in (0, 1] that multiplies the score, [..., 1]."""
  ratio = _squared_distance(frame, x) / frame.reach
  return 1.0 / tf.maximum(ratio, 1.0)[..., tf.newaxis] ** 2


def is_inside(frame, x):
  """Returns whether the squared distance of x is within reach, [...]."""
  return _squared_distance(frame, x) <= frame.reach


def _squared_distance(frame, x):
  scaled = multiply(x - frame.center, frame.whitener, transpose=True)
  return tf.reduce_sum(scaled**2, axis=-1)


def multiply(rows, matrix, transpose=False):
  """Multiplies every row [..., d] by the matrix [d, k], or its transpose."""
  shape = ps.shape(rows)
  product = tf.matmul(state_parts.as_rows(rows), matrix, transpose_b=transpose)
  width = ps.shape(matrix)[0 if transpose else 1]
  return tf.reshape(product, ps.concat([shape[:-1], [width]], axis=0))
