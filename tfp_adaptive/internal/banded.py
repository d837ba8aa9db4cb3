"""Upper banded matrices B, by their diagonals: solves, products, gradients.

A matrix of p superdiagonals is the tuple of its diagonals, of sizes
(d, d - 1, ..., d - p). Vectors are rows, [n, d], and all share the matrix.

A solve is the linear recursion x_i = r_i + sum_k a_ki x_{i+k}, one turn of a
loop per coordinate for all rows at once: O(p d) in time and memory, and as
stable as back substitution. XLA compiles a body this small into one tight loop
(about 20 ns a turn for 10 rows on a CPU core); two-level, doubling and
dense-block forms lose more by transposing rows than they gain.
"""

import tensorflow as tf

from tfp_adaptive.internal.tfp_private import prefer_static as ps

__all__ = ['dense', 'multiply', 'outer', 'solve']


def solve(bands, rows, adjoint=False):
  """Returns B^-1 r for every row r, or B^-T r.

  Its gradient, in rows and in `bands`, is another solve: no tape goes through
  the loop.

  Args:
    bands: Tuple of diagonals, the main one first; nowhere zero there.
    rows: [n, d].
    adjoint: Whether to solve with B^T.

  Returns:
    [n, d].
  """

  @tf.custom_gradient
  def solved(rows, *bands):
    solution = _substitute(bands, rows, adjoint)

    def backward(cotangent):
      pulled = solve(bands, cotangent, not adjoint)
      pair = (solution, pulled) if adjoint else (pulled, solution)
      return pulled, *(-g for g in outer(*pair, len(bands)))

    return solution, backward

  return solved(rows, *bands)


def multiply(bands, rows, adjoint=False):
  """Returns B r for every row r, or B^T r, [n, d]."""
  total = bands[0] * rows
  for k, band in enumerate(bands[1:], start=1):
    if adjoint:
      total += tf.pad(band * rows[:, :-k], [[0, 0], [k, 0]])
    else:
      total += tf.pad(band * rows[:, k:], [[0, 0], [0, k]])
  return total


def outer(left, right, num_bands):
  """Returns the bands of the sum over rows of l r^T: entries l_i r_{i+k}."""
  return tuple(
    tf.reduce_sum(left[:, : ps.shape(left)[1] - k] * right[:, k:], axis=0)
    for k in range(num_bands)
  )


def dense(bands):
  """Returns B, [d, d]."""
  return tf.add_n([tf.linalg.diag(band, k=k) for k, band in enumerate(bands)])


def _substitute(bands, rows, adjoint):
  """Solves by the recursion of its own multipliers."""
  diag = bands[0]
  scaled = rows / diag
  if len(bands) == 1:
    return scaled
  multipliers = tf.stack(
    [
      -tf.pad(band, [[k, 0]] if adjoint else [[0, k]]) / diag
      for k, band in enumerate(bands[1:], start=1)
    ]
  )
  if tf.executing_eagerly():
    return _by_native_kernel(bands, rows, adjoint)
  # Compiled on its own where the caller is not: a loop in a plain graph takes
  # a thousand times as long.
  recursion = tf.function(_recursion, jit_compile=True, autograph=False)
  solution = recursion(multipliers, scaled, not adjoint)
  return tf.ensure_shape(solution, rows.shape)


def _recursion(multipliers, rows, is_backward):
  """Returns x_i = r_i + sum_k a_ki x_{i+k}, or x_{i-k} if not backward."""
  num_terms, size = multipliers.shape[0], ps.shape(rows)[1]
  start = (tf.zeros_like(rows[:, 0]),) * num_terms
  written = tf.TensorArray(rows.dtype, size=size, element_shape=rows.shape[:1])

  def turn(count, last, written):
    i = size - 1 - count if is_backward else count
    x = rows[:, i]
    for k in range(num_terms):
      x += multipliers[k, i] * last[k]
    return count + 1, (x, *last[:-1]), written.write(i, x)

  _, _, written = tf.while_loop(
    lambda count, *_: count < size,
    turn,
    (0, start, written),
    maximum_iterations=size,
  )
  return tf.transpose(written.stack())


def _by_native_kernel(bands, rows, adjoint):
  """Solves by TF's kernel, which knows no XLA and needs no compilation."""
  stacked = tf.stack(
    [tf.pad(band, [[0, k]]) for k, band in reversed(list(enumerate(bands)))]
  )
  columns = tf.linalg.banded_triangular_solve(
    stacked, tf.transpose(rows), lower=False, adjoint=adjoint
  )
  return tf.transpose(columns)
