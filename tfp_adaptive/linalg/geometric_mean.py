"""The geometric mean of a covariance and a precision.

  A = X # Y^-1,   the positive definite solution of A Y A = X

as the limit of products alone, from A = X / r and B = Y / r,

  W = (3 I - B A) / 2,   A <- A W,   B <- W B.

B goes to A^-1. An eigenvalue e of B A becomes e (3 - e)^2 / 4, which goes to 1
from all between 0 and 3, by the square once it is near; r^2 is the largest of
X Y. Of a normal target Y is X^-1, but for the noise of draws, and few steps do.

Sources: Bhatia (2007), Positive Definite Matrices, chapter 4; Higham (2008),
Functions of Matrices, section 6.7, for the coupled Newton-Schulz iteration and
its stability.
"""

import tensorflow as tf

from tfp_adaptive.core import control_flow
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linalg import blocked_cholesky
from tfp_adaptive.linalg.symmetric import symmetric_part

__all__ = ['factor_of_mean']

_MOST_STEPS = 80  # Enough for eigenvalues of 1e-24.
_TOLERANCE = 1e-4  # Of |I - B A| before the last step, which squares it.
_NEAR = 0.5  # Where it does so, unless rounding is all that is left.
_NUM_POWERS = 12  # The largest eigenvalue within a third, of any dimension.
_MARGIN = 1.5  # That it may be larger.


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
  covariance, precision = covariance / outer, precision * outer
  largest = tf.sqrt(_MARGIN * _largest_eigenvalue(covariance, precision))
  identity = tf.eye(ps.shape(scale)[0], dtype=scale.dtype)

  def turn(step, _, before, mean, inverse):
    rest = identity - tf.matmul(inverse, mean)
    by = identity + 0.5 * rest
    mean, inverse = tf.matmul(mean, by), tf.matmul(by, inverse)
    means = map(symmetric_part, (mean, inverse))
    return step + 1, before, tf.norm(rest), *means

  start = covariance / largest, precision / largest
  far = tf.constant(float('inf'), scale.dtype)
  *_, mean, _ = tf.while_loop(_goes_on, turn, (0, far, far, *start))
  return scale[:, tf.newaxis] * blocked_cholesky.cholesky(mean)


def _goes_on(step, before, rest, *_):
  # A NaN ends it.
  is_far = (rest > _NEAR) | (rest < 0.5 * before)
  return (step < _MOST_STEPS) & (rest > _TOLERANCE) & is_far


def _largest_eigenvalue(covariance, precision):
  """Returns what X Y has, from below: its Rayleigh quotient by powers."""

  def turn(step, _, row):
    pulled = tf.linalg.matvec(precision, row)
    following = tf.linalg.matvec(covariance, pulled)
    quotient = tf.tensordot(following, pulled, 1)
    quotient /= tf.tensordot(row, pulled, 1)
    return step + 1, quotient, following / tf.norm(following)

  # No two entries are equal: no difference of two is orthogonal to it.
  places = tf.range(ps.shape(covariance)[0])
  start = 1.5 + tf.cos(tf.cast(places, covariance.dtype))
  return tf.while_loop(
    lambda step, *_: step < _NUM_POWERS,
    turn,
    (0, tf.ones([], start.dtype), start),
  )[1]
