"""Upper banded matrices B, by their diagonals: solves, products, gradients.

A matrix with p superdiagonals is the tuple of its diagonals, of sizes
(d, d - 1, ..., d - p). Vectors are rows, [n, d]. The rows share one matrix, or
each has its own, with diagonals of shapes [n, d], [n, d - 1], ....

Let b_i be the diagonal of B, and b_ki the entry of superdiagonal k in row i.
B x = r is solved by the linear recursion

  x_i = r_i / b_i + sum_k a_ki x_{i+k},   a_ki = -b_ki / b_i,

with one loop iteration per coordinate for all rows at once. A solve costs
O(p d) in time and memory, and is as stable as back substitution. XLA compiles a
loop whose body touches few bytes into tight code, about 20 ns an iteration for
10 rows on a CPU core. The body therefore reads x_{i+k} from the output, and
carries no x between iterations. `bidiagonal` is faster for p = 1. Parallel
segments, recursive doubling and dense blocks were slower. On an accelerator
`banded_scan` is used.
"""

import tensorflow as tf

from tfp_adaptive.core.custom_gradient import custom_gradient
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linalg import banded_scan
from tfp_adaptive.linalg import bidiagonal


def solve(bands, rows, adjoint=False, parallel=None):
  """Returns B^-1 r for every row r, or B^-T r, [n, d].

  The main diagonal has no zeros. The gradient with respect to `rows` and
  `bands` is another solve, so that no gradient tape records the loop.
  """
  parallel = banded_scan.is_preferred(parallel)
  substitute = banded_scan.substitute if parallel else _substitute
  solution = substitute(
    tuple(tf.stop_gradient(band) for band in bands),
    tf.stop_gradient(rows),
    adjoint,
  )
  return _with_gradient(solution, bands, rows, adjoint, parallel)


def multiply(bands, rows, adjoint=False):
  """Returns B r for every row r, or B^T r, [n, d]."""
  total = bands[0] * rows
  for k, band in enumerate(bands[1:], start=1):
    if adjoint:
      total += tf.pad(band * rows[:, :-k], [[0, 0], [k, 0]])
    else:
      total += tf.pad(band * rows[:, k:], [[0, 0], [0, k]])
  return total


def outer(left, right, num_bands, summed=True):
  """Returns the diagonals l_i r_{i+k} of l r^T for rows l, r, or their sums."""
  products = [
    left[:, : ps.shape(left)[1] - k] * right[:, k:] for k in range(num_bands)
  ]
  if not summed:
    return tuple(products)
  return tuple(tf.reduce_sum(product, axis=0) for product in products)


def _with_gradient(solution, bands, rows, adjoint, parallel):
  """Attaches its gradient with respect to rows and bands to a solution.

  Derivatives of every order are solves. The given solve is never repeated.
  """

  @custom_gradient
  def attached(rows, *bands):
    def backward(cotangent):
      pulled = solve(bands, cotangent, not adjoint, parallel)
      known = _with_gradient(solution, bands, rows, adjoint, parallel)
      pair = (known, pulled) if adjoint else (pulled, known)
      summed = bands[0].shape.rank == 1
      return pulled, *(-g for g in outer(*pair, len(bands), summed))

    return tf.identity(solution), backward

  return attached(rows, *bands)


def _substitute(bands, rows, adjoint):
  """Solves B x = r, or B^T x = r, by the recursion at the head of this file.

  For B^T the recursion has x_{i-k}, and b_ki is the entry in column i.
  """
  diag = bands[0]
  scaled = rows / diag
  if len(bands) == 1:
    return scaled
  if tf.executing_eagerly():
    return _by_native_kernel(bands, rows, adjoint)
  multipliers = []
  for k, band in enumerate(bands[1:], start=1):
    padding = [[0, 0]] * (diag.shape.rank - 1)
    padding.append([k, 0] if adjoint else [0, k])
    multipliers.append(-tf.pad(band, padding) / diag)
  if len(bands) == 2:
    solution = bidiagonal.recursion(multipliers[0], scaled, not adjoint)
  else:
    # Now [d] or [d, n] each, so that an iteration reads adjacent numbers.
    multipliers = tf.stack([tf.transpose(m) for m in multipliers])
    solution = _compiled_recursion(multipliers, scaled, not adjoint)
  return tf.ensure_shape(solution, rows.shape)


def _recursion(multipliers, rows, is_backward):
  """Returns x, x_i = rows_i + sum_k a_ki x_{i+k}, or x_{i-k} if forward."""
  num_terms, size = multipliers.shape[0], ps.shape(rows)[1]
  # Zeros are added beyond the end where the recursion starts.
  offset = 0 if is_backward else num_terms
  padding = [[offset, num_terms - offset], [0, 0]]
  solution = tf.TensorArray(
    rows.dtype,
    size=size + num_terms,
    element_shape=rows.shape[:1],
    clear_after_read=False,
  ).unstack(tf.pad(tf.transpose(rows), padding))

  def turn(count, solution):
    i = size - 1 - count if is_backward else count
    x = solution.read(i + offset)
    for k in range(num_terms):
      lag = k + 1 if is_backward else -k - 1
      x += multipliers[k, i] * solution.read(i + offset + lag)
    return count + 1, solution.write(i + offset, x)

  _, solution = tf.while_loop(
    lambda count, _: count < size,
    turn,
    (0, solution),
    maximum_iterations=size,
  )
  return tf.transpose(solution.stack()[offset : offset + size])


def _by_native_kernel(bands, rows, adjoint):
  """Solves by TF's kernel, which has no XLA form and needs no compilation."""
  padding = [[0, 0]] * (bands[0].shape.rank - 1)
  stacked = tf.stack(
    [
      tf.pad(band, [*padding, [0, k]])
      for k, band in reversed(list(enumerate(bands)))
    ],
    axis=-2,
  )
  is_shared = not padding
  columns = tf.linalg.banded_triangular_solve(
    stacked,
    tf.transpose(rows) if is_shared else rows[..., tf.newaxis],
    lower=False,
    adjoint=adjoint,
  )
  return tf.transpose(columns) if is_shared else columns[..., 0]


# Callers that are not compiled use XLA here, too, because a loop in a plain
# graph takes a thousand times as long.
_compiled_recursion = tf.function(_recursion, jit_compile=True, autograph=False)
