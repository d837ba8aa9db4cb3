"""The geometric mean of a covariance and a precision.

  A = X # Y^-1,   the positive definite solution of A Y A = X

as the common limit of arithmetic and harmonic means,

  A <- M = (A + B) / 2,   B <- 2 (A^-1 + B^-1)^-1 = A M^-1 B,

from A = X, B = Y^-1. An eigenvalue r of A^-1 B becomes 4 r / (1 + r)^2: the
convergence is quadratic once it is near 1.

Source: Bhatia (2007), Positive Definite Matrices, chapter 4.
"""

import tensorflow as tf

from tfp_adaptive.core import control_flow
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linalg import blocked_cholesky
from tfp_adaptive.linalg.symmetric import symmetric_part

__all__ = ['factor_of_mean']

_MOST_STEPS = 40  # Enough for eigenvalues of 1e-20.
_TOLERANCE = 1e-12  # Of A - B, relative.


def factor_of_mean(covariance, precision):
  """Returns the Cholesky factor of X # Y^-1, [d, d], in the dtype of X.

  NaN entries where X or Y has no Cholesky factor. Computed in double precision.

  Args:
    covariance: X, [d, d]; under XLA best with d static.
    precision: Y, [d, d].
  """
  dtype = covariance.dtype
  wide = [tf.cast(t, tf.float64) for t in (covariance, precision)]
  # A stage needs static shapes.
  is_static = covariance.shape.is_fully_defined()
  factor = (
    control_flow.in_stage(_factor, *wide) if is_static else _factor(*wide)
  )
  return tf.cast(factor, dtype)


def _factor(covariance, precision):
  # Coordinates in which X and Y have one diagonal: theirs may be 1e12 apart.
  scale = tf.sqrt(
    tf.sqrt(tf.linalg.diag_part(covariance) / tf.linalg.diag_part(precision))
  )
  outer = scale[:, tf.newaxis] * scale
  _, one, other = tf.while_loop(
    _goes_on,
    lambda step, one, other: (step + 1, *_means(one, other)),
    (0, covariance / outer, _inverse(precision * outer)),
  )
  # Of both: one alone may hide that the other is NaN.
  return scale[:, tf.newaxis] * blocked_cholesky.cholesky(0.5 * (one + other))


def _goes_on(step, one, other):
  # A NaN ends it.
  is_far = tf.norm(one - other) > _TOLERANCE * tf.norm(one)
  return (step < _MOST_STEPS) & is_far


def _means(one, other):
  """Returns arithmetic and harmonic mean, [d, d]."""
  mean = 0.5 * (one + other)
  solved = tf.linalg.cholesky_solve(blocked_cholesky.cholesky(mean), other)
  harmonic = tf.matmul(one, solved)
  return mean, symmetric_part(harmonic)


def _inverse(matrix):
  return tf.linalg.cholesky_solve(
    blocked_cholesky.cholesky(matrix),
    tf.eye(ps.shape(matrix)[-1], dtype=matrix.dtype),
  )
