"""The geometric mean of a covariance X and the inverse of a precision Y.

  X # Y^-1,   the positive definite solution A of A Y A = X.

With X = L L^T and M = L^T Y L, the mean is L M^-1/2 L^T. Its Cholesky factor is
L times the Cholesky factor of M^-1/2. This root is the limit of R in an
iteration of products alone, from R = I / r and S = M / r:

  W = (3 I - S R) / 2,   R <- R W,   S <- W S.

An eigenvalue e of S R becomes e (3 - e)^2 / 4. It converges to 1 from all
values between 0 and 3, quadratically at the end. r^2 is about the largest
eigenvalue of M. For a normal target M is I up to the noise of draws, whatever
the condition number of X, so that a few steps are enough.

Sources: Bhatia (2007), Positive Definite Matrices, chapter 4; Higham (2008),
Functions of Matrices, section 6.7, for the coupled Newton-Schulz iteration and
its stability.
"""

import tensorflow as tf

from tfp_adaptive.core import control_flow
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linalg import blocked_cholesky
from tfp_adaptive.linalg.symmetric import symmetric_part

_MOST_STEPS = 80  # Enough for eigenvalues of 1e-24.
_TOLERANCE = 1e-4  # Bound of |I - S R| before the last step, which squares it.
_NEAR = 0.5  # Below this value every step squares |I - S R|, up to rounding.
_NUM_POWERS = 12  # Power iterations, for the largest eigenvalue within a third.
_MARGIN = 1.5  # Factor by which the true eigenvalue may be larger.


def factor_of_mean(covariance, precision):
  """Returns the Cholesky factor of X # Y^-1, [d, d], in the dtype of X.

  The computation is in double precision. It is faster under XLA if d is static.
  Entries are NaN if X or Y has no Cholesky factor.
  """
  dtype = covariance.dtype
  wide = [tf.cast(t, tf.float64) for t in (covariance, precision)]
  # `in_stage` needs static shapes.
  is_static = covariance.shape.is_fully_defined()
  factor = (
    control_flow.in_stage(_factor, *wide) if is_static else _factor(*wide)
  )
  return tf.cast(factor, dtype)


def _factor(covariance, precision):
  factor = blocked_cholesky.cholesky(covariance)
  whitened = tf.matmul(factor, tf.matmul(precision, factor), transpose_a=True)
  root = _inverse_root(symmetric_part(whitened))
  return tf.matmul(factor, blocked_cholesky.cholesky(root))


def _inverse_root(matrix):
  """Returns M^-1/2 of a positive definite matrix, else NaN, [d, d]."""
  identity = tf.eye(ps.shape(matrix)[0], dtype=matrix.dtype)

  def turn(step, _, before, root, other):
    rest = identity - tf.matmul(other, root)
    by = identity + 0.5 * rest
    root, other = tf.matmul(root, by), tf.matmul(by, other)
    both = map(symmetric_part, (root, other))
    return step + 1, before, tf.norm(rest), *both

  largest = tf.sqrt(_MARGIN * _largest_eigenvalue(matrix))
  start = identity / largest, matrix / largest
  far = tf.constant(float('inf'), matrix.dtype)
  _, _, rest, root, _ = tf.while_loop(_goes_on, turn, (0, far, far, *start))
  # If M has an eigenvalue of zero, the iteration does not converge.
  return tf.where(rest < _NEAR, root, tf.constant(float('nan'), root.dtype))


def _goes_on(step, before, rest, *_):
  # A NaN ends the loop.
  is_falling = (before > _NEAR) | (rest < 0.5 * before)
  return (step < _MOST_STEPS) & (rest > _TOLERANCE) & is_falling


def _largest_eigenvalue(matrix):
  """Returns the Rayleigh quotient of a power iteration, a lower bound."""

  def turn(step, _, row):
    following = tf.linalg.matvec(matrix, row)
    quotient = tf.tensordot(row, following, 1)
    return step + 1, quotient, following / tf.norm(following)

  # Entries of the start differ, so that no e_i - e_j, with unit vectors e_i, is
  # orthogonal to the start.
  row = 1.5 + tf.cos(tf.cast(tf.range(ps.shape(matrix)[0]), matrix.dtype))
  return tf.while_loop(
    lambda step, *_: step < _NUM_POWERS,
    turn,
    (0, tf.ones([], row.dtype), row / tf.norm(row)),
  )[1]
