"""Fisher information of a diagonal plus low-rank factor of rank r, in O(d r^2).

  C = D K,   D = diag(c),   K = I + U U^T,
  K^-1 = I - U G U^T,   G = (I + U^T U)^-1

A tangent (delta, omega) changes c to c exp(delta) and U to U + omega, so that

  E = K^-1 diag(delta) K + K^-1 (omega U^T + U omega^T).

The symmetric part of E is again diagonal plus low rank: diag(delta) + Y S Y^T
with Y = [U, delta U, omega]. J maps a tangent to this symmetric part. A natural
gradient step solves J^T J (delta, omega) = g for the gradient g in
(delta, omega). Each product with J^T J costs O(d r^2). All quantities are
dimensionless, so that a few iterations of conjugate gradients are enough.
"""

import collections

import tensorflow as tf

from tfp_adaptive.linalg.symmetric import symmetric_part

_MAX_ITERATIONS = 20
_TOLERANCE = 1e-5  # Relative residual, in the preconditioned norm.

# diag(delta) + Y S Y^T: fields delta [d], columns Y [d, q], core S [q, q].
Change = collections.namedtuple('Change', ['delta', 'columns', 'core'])


class Geometry:
  """K = I + U U^T, with the matrices that its products need."""

  def __init__(self, columns):
    self.columns = columns
    rank = columns.shape[-1]
    self.identity = tf.eye(rank, dtype=columns.dtype)
    self.gram = tf.matmul(columns, columns, transpose_a=True)
    # I + U^T U is at least I, so that a plain solve is accurate.
    chol = tf.linalg.cholesky(self.identity + self.gram)
    self.inverse = tf.linalg.cholesky_solve(chol, self.identity)
    self.log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol)))

  def apply(self, rows):
    """Returns K r for every row, [n, d]."""
    inner = tf.matmul(rows, self.columns)
    return rows + tf.matmul(inner, self.columns, transpose_b=True)

  def unapply(self, rows):
    """Returns K^-1 r for every row, [n, d]."""
    inner = tf.matmul(tf.matmul(rows, self.columns), self.inverse)
    return rows - tf.matmul(inner, self.columns, transpose_b=True)


def symmetric_change(geometry, delta, omega):
  """Returns the symmetric part of E as diagonal plus low rank."""
  inverse, identity = geometry.inverse, geometry.identity
  scaled = delta[:, tf.newaxis] * geometry.columns
  inner = tf.matmul(geometry.columns, scaled, transpose_a=True)
  overlap = tf.matmul(geometry.columns, omega, transpose_a=True)
  corner = -symmetric_part(tf.matmul(inverse, inner + overlap))
  # Blocks of S that couple U with delta U and with omega.
  with_scaled = 0.5 * (identity - inverse)
  with_omega = 0.5 * (identity + inverse)
  zero = tf.zeros_like(inverse)
  core = tf.concat(
    [
      tf.concat([corner, with_scaled, with_omega], axis=1),
      tf.concat([with_scaled, zero, zero], axis=1),
      tf.concat([with_omega, zero, zero], axis=1),
    ],
    axis=0,
  )
  columns = tf.concat([geometry.columns, scaled, omega], axis=1)
  return Change(delta, columns, core)


def multiply(change, columns):
  """Returns (diag(delta) + Y S Y^T) X, [d, n]."""
  inner = tf.matmul(change.columns, columns, transpose_a=True)
  return change.delta[:, tf.newaxis] * columns + tf.matmul(
    change.columns, tf.matmul(change.core, inner)
  )


def natural_step(geometry, tangent):
  """Solves J^T J (delta, omega) = g by conjugate gradients.

  The tangent is g, ([d], [d, r]). Rotations of U, which do not change C, are
  left out.
  """
  block = _omega_block(geometry)

  def precondition(residual):
    return residual[0], tf.matmul(residual[1], block)

  zeros = tuple(tf.zeros_like(part) for part in tangent)
  scaled = precondition(tangent)
  start = _dot(tangent, scaled)

  def turn(count, step, residual, direction, size):
    product = _information(geometry, *direction)
    length = size / _positive(_dot(direction, product))
    step = _add(step, direction, length)
    residual = _add(residual, product, -length)
    scaled = precondition(residual)
    new_size = _dot(residual, scaled)
    direction = _add(scaled, direction, new_size / _positive(size))
    return count + 1, step, residual, direction, new_size

  return tf.while_loop(
    lambda count, step, residual, direction, size: (
      size > tf.cast(_TOLERANCE**2, size.dtype) * start
    ),
    turn,
    (0, zeros, tangent, scaled, start),
    maximum_iterations=_MAX_ITERATIONS,
  )[1]


def _information(geometry, delta, omega):
  """Returns J^T J (delta, omega); E below is only the symmetric part."""
  columns, inverse = geometry.columns, geometry.inverse
  change = symmetric_change(geometry, delta, omega)
  pushed = multiply(change, columns)  # E U
  diagonal = delta + tf.reduce_sum(
    tf.matmul(change.columns, change.core) * change.columns, axis=-1
  )
  inner = tf.matmul(columns, pushed, transpose_a=True)  # U^T E U
  whitened = tf.matmul(pushed, inverse)
  # The diagonal of K E K^-1.
  from_delta = diagonal + tf.reduce_sum(
    columns
    * (pushed - whitened - tf.matmul(columns, tf.matmul(inner, inverse))),
    axis=-1,
  )
  # K^-1 E U + E U G
  from_omega = pushed - tf.matmul(columns, tf.matmul(inverse, inner)) + whitened
  return from_delta, from_omega


def _omega_block(geometry):
  """Returns the inverse of J^T J for omega with U^T omega = 0, [r, r]."""
  both = geometry.identity + geometry.inverse
  block = 0.5 * tf.matmul(both, tf.matmul(geometry.gram, both))
  # Without the floor, a zero column of U would make the block singular.
  floor = 1e-6 * (1.0 + tf.linalg.trace(geometry.gram))
  chol = tf.linalg.cholesky(symmetric_part(block) + floor * geometry.identity)
  return tf.linalg.cholesky_solve(chol, geometry.identity)


def _dot(one, two):
  return tf.add_n([tf.reduce_sum(a * b) for a, b in zip(one, two)])


def _add(one, two, factor):
  return tuple(a + factor * b for a, b in zip(one, two))


def _positive(number):
  return tf.maximum(number, tf.constant(1e-30, number.dtype))
