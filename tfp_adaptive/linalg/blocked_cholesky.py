"""Cholesky factors in blocks of columns, for XLA on CPU.

On CPU, XLA factors blocks of 128 columns, each column by column, in 25 ms for a
128 x 128 matrix. Here a loop over blocks of 8 columns makes matrix products,
and only the 8 x 8 diagonal blocks are factored column by column.
"""

import tensorflow as tf

from tfp_adaptive.core.tfp_private import prefer_static as ps

_BLOCK = 8
_LARGEST = 700  # Above this size XLA is as fast, with its larger blocks.


def cholesky(matrix):
  """Returns the lower triangular factor of positive definite [..., m, m].

  Blocks are used if m is static and at most 700. The factor has NaN entries if
  the matrix is not positive definite.
  """
  size = matrix.shape[-1]
  if size is None or size > _LARGEST:
    return tf.linalg.cholesky(matrix)
  num_blocks = -(-size // _BLOCK)
  padded = num_blocks * _BLOCK
  rest = _pad(matrix, padded - size)
  rows = tf.range(padded)

  def step(block, rest, panels):
    first = block * _BLOCK
    begin = tf.concat(
      [tf.zeros([rest.shape.rank - 1], tf.int32), [first]], axis=0
    )
    panel = tf.slice(
      rest, begin, ps.concat([ps.shape(rest)[:-1], [_BLOCK]], axis=0)
    )
    corner = tf.slice(
      panel,
      tf.concat(
        [tf.zeros([rest.shape.rank - 2], tf.int32), [first, 0]], axis=0
      ),
      ps.concat([ps.shape(rest)[:-2], [_BLOCK, _BLOCK]], axis=0),
    )
    inverse = _inverse_factor(corner)
    panel = tf.matmul(panel, inverse, transpose_b=True)
    panel = tf.where((rows >= first)[:, tf.newaxis], panel, 0.0)
    rest -= tf.matmul(panel, panel, transpose_b=True)
    return block + 1, rest, panels.write(block, panel)

  _, _, panels = tf.while_loop(
    lambda block, *_: block < num_blocks,
    step,
    (
      tf.constant(0),
      rest,
      _panels(num_blocks, rest.shape[:-1].as_list(), matrix.dtype),
    ),
    maximum_iterations=num_blocks,
  )
  return _joined(panels, num_blocks)[..., :size, :size]


def update(factor, columns):
  """Returns the factor of L L^T + V V^T, in O(m^2 r), for a static m.

  P is block k of the columns of L. L_k are its rows in the diagonal block, and
  V_k the same rows of V. A reflection maps [L_k, V_k] to [-C, 0], so that C C^T
  is L_k L_k^T + V_k V_k^T. P' is block k of the new factor, and V' is left for
  the next blocks:

    P' = (P L_k^T + V V_k^T) C^-T
    V' = V - (P + P') (I + C^-1 L_k)^-1 C^-1 V_k
  """
  size = factor.shape[-1]
  num_blocks = -(-size // _BLOCK)
  padded = num_blocks * _BLOCK
  old = _pad(factor, padded - size)
  columns = tf.pad(columns, [[0, padded - size], [0, 0]])
  identity = tf.eye(_BLOCK, dtype=factor.dtype)

  def step(block, columns, panels):
    first = block * _BLOCK
    panel = tf.slice(old, [0, first], [padded, _BLOCK])
    corner = tf.slice(panel, [first, 0], [_BLOCK, _BLOCK])
    rows = tf.slice(columns, [first, 0], [_BLOCK, columns.shape[-1]])
    inverse = _inverse_factor(
      tf.matmul(corner, corner, transpose_b=True)
      + tf.matmul(rows, rows, transpose_b=True)
    )
    turn = tf.matmul(inverse, corner)
    reach = tf.matmul(inverse, rows)
    turned = tf.matmul(panel, turn, transpose_b=True) + tf.matmul(
      columns, reach, transpose_b=True
    )
    # Above the block, the factor is zero and rows of V are not used again.
    turned = tf.where((tf.range(padded) >= first)[:, tf.newaxis], turned, 0.0)
    columns -= tf.matmul(
      panel + turned, tf.linalg.triangular_solve(identity + turn, reach)
    )
    return block + 1, columns, panels.write(block, turned)

  _, _, panels = tf.while_loop(
    lambda block, *_: block < num_blocks,
    step,
    (tf.constant(0), columns, _panels(num_blocks, [padded], factor.dtype)),
    maximum_iterations=num_blocks,
  )
  return _joined(panels, num_blocks)[:size, :size]


def _panels(num_blocks, shape, dtype):
  return tf.TensorArray(dtype, size=num_blocks, element_shape=shape + [_BLOCK])


def _joined(panels, num_blocks):
  """Returns the lower triangle of the matrix of these blocks of columns."""
  columns = tf.concat(tf.unstack(panels.stack(), num=num_blocks), axis=-1)
  return tf.linalg.band_part(columns, -1, 0)


def _pad(matrix, extra):
  """Returns the matrix, extended by an identity block on its diagonal."""
  if not extra:
    return matrix
  widths = [[0, 0]] * (matrix.shape.rank - 2) + [[0, extra], [0, extra]]
  diagonal = tf.concat([tf.zeros([matrix.shape[-1]]), tf.ones([extra])], axis=0)
  return tf.pad(matrix, widths) + tf.cast(
    tf.linalg.diag(diagonal), matrix.dtype
  )


def _inverse_factor(corner):
  """Returns L^-1 of a small block L L^T, column by column.

  An unrolled loop would take a second to trace and compile.
  """
  size = corner.shape[-1]
  places = tf.range(size)

  def turn(k, corner, inverse):
    pivot = 1.0 / tf.sqrt(corner[..., k, k])[..., tf.newaxis]
    column = tf.where(places > k, corner[..., k, :] * pivot, 0.0)
    row = (inverse[..., k, :] * pivot)[..., tf.newaxis, :]
    below = column[..., tf.newaxis]
    return (
      k + 1,
      corner - below * column[..., tf.newaxis, :],
      tf.where((places == k)[:, tf.newaxis], row, inverse - below * row),
    )

  identity = tf.eye(size, dtype=corner.dtype) + tf.zeros_like(corner)
  return tf.while_loop(
    lambda k, *_: k < size,
    turn,
    (tf.constant(0), corner, identity),
    maximum_iterations=size,
  )[-1]
