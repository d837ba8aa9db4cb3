"""Banded solves and factors of depth O(log d), by associative scans.

In blocks [p, p], B is block bidiagonal and M is block tridiagonal. Solving with
B and factorizing M are folds of an associative rule over the blocks:

  substitution    x_j = F_j x_{j-1} + g_j, composed as affine maps
  elimination     segments of blocks as quadratic forms in their two ends,
                  joined by eliminating the end that they share

Every step of the elimination is a Schur complement of a positive definite
matrix, and as stable as the loop of `banded_cholesky`. The fold returns the
Schur complement of every block, which gives the pivots of that loop. The work
is at most O(p^2 d log d). The scans are for accelerators; on a CPU core the
loop is faster.

Source: the rule for segments is that of Sarkka and Garcia-Fernandez (2021),
Temporal parallelization of Bayesian smoothers,
https://arxiv.org/abs/1905.13002, in information form.
"""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linalg.symmetric import symmetric_part


def is_preferred(parallel=None):
  """Returns whether to use scans instead of loops; `parallel` if it is given.

  On an accelerator, each iteration of a loop launches a kernel.
  """
  if parallel is not None:
    return bool(parallel)
  return any(tf.config.list_logical_devices(kind) for kind in ('GPU', 'TPU'))


def substitute(bands, rows, adjoint):
  """Returns B^-1 r or B^-T r, [n, d]; see `banded.solve`."""
  if len(bands) == 1:
    return rows / bands[0]
  order = len(bands) - 1
  num_rows, size = ps.shape(rows)[0], ps.shape(rows)[1]
  is_shared = bands[0].shape.rank == 1
  right = tf.reshape(_pad_end(rows, -size % order), [num_rows, -1, order])
  blocks = _upper_blocks(bands)  # [(n), blocks, p, p]
  if is_shared:
    right = tf.transpose(right, [1, 2, 0])  # [blocks, p, n]
  else:
    blocks = (tf.transpose(b, [1, 0, 2, 3]) for b in blocks)
    right = tf.transpose(right, [1, 0, 2])[..., tf.newaxis]  # [blocks, n, p, 1]
  solution = _solve_blocks(*blocks, right, adjoint)
  perm = [2, 0, 1] if is_shared else [1, 0, 2]
  solution = solution if is_shared else solution[..., 0]
  flat = tf.reshape(tf.transpose(solution, perm), [num_rows, -1])
  return flat[:, :size]


def _solve_blocks(inner, outer, right, adjoint):
  """Solves with blocks [blocks, ..., p, p] on and right of the diagonal."""
  if adjoint:
    # Block j is reached from block j - 1, through B[j - 1, j].
    outer = tf.concat([tf.zeros_like(outer[:1]), outer[:-1]], axis=0)
    outer = tf.linalg.matrix_transpose(outer)

  def solve(right):
    if inner.shape[-1] == 1:
      return right / inner
    return tf.linalg.triangular_solve(
      inner, right, lower=False, adjoint=adjoint
    )

  maps = (-solve(outer), solve(right))
  if adjoint:
    return tfp.math.scan_associative(_compose, maps)[1]
  maps = tuple(m[::-1] for m in maps)
  return tfp.math.scan_associative(_compose, maps)[1][::-1]


def factorize(bands):
  """Returns D [batch, d] and the other diagonals of W in M = W^T D W.

  `bands` are the diagonals of M, [batch, d - k] for k = 0, ..., p. W has a unit
  diagonal. Entries are NaN or not positive where M is not positive definite.
  """
  if len(bands) == 1:
    return bands[0], ()
  order, size = len(bands) - 1, bands[0].shape[-1]
  blocks, beyond = _upper_blocks(bands)
  diag = tf.linalg.diag(tf.linalg.diag_part(blocks))
  blocks = 2.0 * symmetric_part(blocks) - diag
  zero = tf.zeros_like(blocks)
  to_left = tf.concat([zero[:, :1], beyond[:, :-1]], axis=1)
  _, _, schur = tfp.math.scan_associative(
    _join, (zero, to_left, blocks), axis=1
  )
  lower = _cholesky(schur)
  # Row j of blocks of U, where L_j L_j^T is the Schur complement of block j:
  # U[j, j] = L_j^T, and U[j, j + 1] = L_j^-1 M[j, j + 1].
  here = tf.linalg.matrix_transpose(lower)
  next_ = tf.linalg.triangular_solve(lower, beyond)
  diag = tf.linalg.diag_part(lower)
  rows = tf.concat([here, next_], axis=-1) / diag[..., tf.newaxis]
  flat = lambda x: tf.reshape(x, [ps.shape(x)[0], -1])
  unit = tuple(
    flat(tf.stack([rows[..., a, a + k] for a in range(order)], axis=-1))
    for k in range(1, order + 1)
  )
  return (
    flat(diag**2)[:, :size],
    tuple(band[:, : size - k] for k, band in enumerate(unit, start=1)),
  )


def _compose(first, second):
  """Returns the affine map that applies `first`, then `second`."""
  slope, offset = first
  next_slope, next_offset = second
  return (
    _product(next_slope, slope),
    _product(next_slope, offset) + next_offset,
  )


def _product(left, right):
  """Returns the product of small matrices, without the rounding of TF32."""
  return tf.add_n(
    [
      left[..., k : k + 1] * right[..., k : k + 1, :]
      for k in range(left.shape[-1])
    ]
  )


def _join(first, second):
  """Eliminates the block that two segments share.

  A segment is (ll, lr, rr), a quadratic form in the block before the segment
  and in its last block. The other blocks of the segment are eliminated.
  """
  ll, lr, rr = first
  next_ll, next_lr, next_rr = second
  lower = _cholesky(rr + next_ll)
  left = tf.linalg.triangular_solve(lower, tf.linalg.matrix_transpose(lr))
  right = tf.linalg.triangular_solve(lower, next_lr)
  left_t, right_t = map(tf.linalg.matrix_transpose, (left, right))
  return (
    ll - _product(left_t, left),
    -_product(left_t, right),
    next_rr - _product(right_t, right),
  )


def _cholesky(blocks):
  return (
    tf.sqrt(blocks) if blocks.shape[-1] == 1 else tf.linalg.cholesky(blocks)
  )


def _upper_blocks(bands):
  """Returns the blocks on and right of the diagonal, [..., blocks, p, p].

  The identity extends the matrix to whole blocks.
  """
  order, size = len(bands) - 1, ps.shape(bands[0])[-1]
  missing = -size % order
  shape = ps.concat([ps.shape(bands[0])[:-1], [-1, order]], axis=0)
  padded = [
    tf.reshape(_pad_end(band, missing + k, float(k == 0)), shape)
    for k, band in enumerate(bands)
  ]
  zero = tf.zeros_like(padded[0][..., 0])

  def block(shift):
    def entry(row, column):
      k = column + shift - row
      return padded[k][..., row] if 0 <= k <= order else zero

    return tf.stack(
      [
        tf.stack([entry(a, b) for b in range(order)], axis=-1)
        for a in range(order)
      ],
      axis=-2,
    )

  return block(0), block(order)


def _pad_end(x, number, value=0.0):
  padding = [[0, 0]] * (x.shape.rank - 1) + [[0, number]]
  return tf.pad(x, padding, constant_values=tf.cast(value, x.dtype))
