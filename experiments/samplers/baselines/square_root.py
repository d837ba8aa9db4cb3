"""Square roots R of a covariance (R R^T), moved by rows of rank one.

  R' R'^T = (R^-T R^-1 + S^T S)^-1,   S rows [n, d]

F = S R is [n, d], and L L^T = I + F F^T is a small Cholesky factor, [n, n]:

  R' = R - (R F^T) L^-T (L + I)^-1 F,   log|det R'| = log|det R| - log|det L|

Proof: let X = L^-T (L + I)^-1. Because F F^T = L L^T - I,

  (L + I) L^T (X + X^T - X F F^T X^T) L (L + I)^T
    = L (L + I)^T + (L + I) L^T - (L L^T - I) = (L + I) (L + I)^T

Therefore (I - F^T X F) (I - F^T X F)^T = I - F^T (L L^T)^-1 F. By Woodbury,
this is (I + F^T F)^-1. n = 1 gives the rank-one formula of Titsias (2023) with
L = sqrt(1 + |F|^2). The cost O(d^2) becomes O(n d^2 + n^2 d).

References: Andrews (1968), A square root formulation of the Kalman covariance
equations; Titsias (2023), Optimal preconditioning and Fisher adaptive Langevin
sampling, section 4.1, https://arxiv.org/abs/2305.14442.
"""

import tensorflow as tf

from tfp_adaptive.core.tfp_private import prefer_static as ps

# Rows of one update. A loop over columns decomposes the small factor.
_BLOCK = 16

NAME = 'square'  # Name of the structure.


def contract(root, rows, max_shrinkage=None):
  """Adds S^T S to the inverse of R R^T.

  Args:
    root: R, [d, d], invertible.
    rows: S, [n, d].
    max_shrinkage: Rows that would shrink a direction of R by more than this
      factor, above 1, are shortened. With `None`, no row is shortened.

  Returns:
    R' ([d, d]) and log|det R'| - log|det R| ([]).
  """
  if rows.shape[0] is not None and rows.shape[0] <= _BLOCK:
    return _contract(root, rows, max_shrinkage)
  num_rows = ps.shape(rows)[0]
  num_blocks = -(-num_rows // _BLOCK)
  # Rows of zeros change nothing.
  padded = tf.pad(rows, [[0, num_blocks * _BLOCK - num_rows], [0, 0]])
  blocks = tf.reshape(
    padded, ps.stack([num_blocks, _BLOCK, ps.shape(rows)[-1]])
  )

  def turn(index, root, log_det):
    root, change = _contract(root, blocks[index], max_shrinkage)
    return index + 1, root, log_det + change

  _, root, log_det = tf.while_loop(
    lambda index, *_: index < num_blocks,
    turn,
    (0, root, tf.zeros([], root.dtype)),
    # The size of a matrix may be unknown.
    shape_invariants=(tf.TensorShape([]), root.shape, tf.TensorShape([])),
  )
  return root, log_det


def _contract(root, rows, max_shrinkage):
  factored = tf.matmul(rows, root)
  if max_shrinkage is not None:
    # A single row shrinks its direction by sqrt(1 + |F|^2).
    square = tf.reduce_sum(factored**2, axis=-1, keepdims=True)
    bound = tf.cast(max_shrinkage**2 - 1.0, square.dtype)
    factored *= tf.sqrt(bound / tf.maximum(square, bound))
  pulled = tf.matmul(factored, root, transpose_b=True)
  if rows.shape[0] == 1:
    # The rank-one formula avoids a Cholesky factor, which XLA makes by a loop.
    chol = tf.sqrt(1.0 + tf.reduce_sum(factored**2))
    left, right = pulled / chol, factored / (chol + 1.0)
    log_det = -tf.math.log(chol)
  else:
    identity = tf.eye(ps.shape(rows)[0], dtype=root.dtype)
    chol = tf.linalg.cholesky(
      identity + tf.matmul(factored, factored, transpose_b=True)
    )
    left = tf.linalg.triangular_solve(chol, pulled)
    right = tf.linalg.triangular_solve(chol + identity, factored)
    log_det = -tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol)))
  return root - tf.matmul(left, right, transpose_a=True), log_det


def as_square(preconditioner):
  """Returns the dense structure whose params are any invertible matrix.

  A square root that is moved by rows of rank one does not stay triangular.

  Args:
    preconditioner: `tfpa.preconditioners.cholesky()`, which gives the start,
      or a result of this function.

  Returns:
    A `tfpa.interfaces.Preconditioner`.

  Raises:
    ValueError: If the preconditioner is not dense.
  """
  if preconditioner.name == NAME:
    return preconditioner
  if preconditioner.name != 'cholesky':
    raise ValueError(
      f'A square root is a dense factor, but got `{preconditioner.name}`. '
      'Write `preconditioner=tfpa.preconditioners.cholesky()`.'
    )
  return preconditioner._replace(
    name=NAME,
    operator=lambda root: _SquareFactor(root, is_non_singular=True),
    project=lambda root: root,
  )


class _SquareFactor(tf.linalg.LinearOperatorFullMatrix):
  """A square matrix whose determinant XLA can compile."""

  def _log_abs_determinant(self):
    _, upper = tf.linalg.qr(self.to_dense())
    return tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(upper))))
