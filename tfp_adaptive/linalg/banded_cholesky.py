"""Symmetric banded matrices M and their factors, by diagonals, in O(p^2 d).

  M = W^T D W = U^T U,   U = D^(1/2) W,   W upper banded with unit diagonal

A matrix is the tuple of its diagonals, of sizes (d, d - 1, ..., d - p), with
any leading batch dimensions: one matrix for all rows, or one for every chain.
Rows v and results are [batch..., d], and broadcast with the batch of the
matrix.

A matrix that is not positive definite gets the identity as its factor and -inf
as its log determinant. The log density of a proposal is then -inf, which
rejects it. All other numbers stay finite, and no NaN enters a chain.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive.core.custom_gradient import custom_gradient
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linalg import banded
from tfp_adaptive.linalg import banded_scan


class Factor(NamedTuple):
  """M = W^T D W by its diagonals."""

  pivots: Any  # D, [batch..., d], positive.
  bands: Any  # Superdiagonals of W, a tuple of [batch..., d - k].
  log_det: Any  # log det M, [batch...]; -inf if M is not positive definite.


def factorize(bands, parallel=None):
  """Returns the `Factor` of M, given by its diagonals.

  The gradient is that of `banded_scan.factorize`, also if a loop factorizes.
  """
  batch = ps.shape(bands[0])[:-1]
  flat = tuple(
    tf.reshape(band, [ps.reduce_prod(batch), ps.shape(band)[-1]])
    for band in bands
  )
  is_finite = tf.reduce_all(
    tf.stack(
      [tf.reduce_all(tf.math.is_finite(b), -1, keepdims=True) for b in flat]
    ),
    axis=0,
  )
  flat = tuple(
    tf.where(is_finite, band, float(k == 0)) for k, band in enumerate(flat)
  )
  form = (
    banded_scan.factorize if banded_scan.is_preferred(parallel) else _by_loop
  )
  pivots, unit = form(flat)
  is_positive = is_finite & tf.reduce_all(pivots > 0.0, -1, keepdims=True)
  pivots = tf.where(is_positive, pivots, 1.0)
  unit = tuple(tf.where(is_positive, band, 0.0) for band in unit)
  log_det = tf.where(
    is_positive[:, 0], tf.reduce_sum(tf.math.log(pivots), -1), -float('inf')
  )
  shaped = lambda x: tf.reshape(x, ps.concat([batch, ps.shape(x)[1:]], axis=0))
  return Factor(
    shaped(pivots),
    tuple(shaped(band) for band in unit),
    tf.reshape(log_det, batch),
  )


def solve_factor(factor, rows, adjoint=False):
  """Returns U^-1 v, or U^-T v."""
  scale = tf.math.rsqrt(factor.pivots)
  if adjoint:
    return scale * _solve_unit(factor, rows, True)
  return _solve_unit(factor, scale * rows, False)


def solve(factor, rows, parallel=None):
  """Returns M^-1 v."""
  half = _solve_unit(factor, rows, True, parallel)
  return _solve_unit(factor, half / factor.pivots, False, parallel)


def draw(factor, rows, noise, parallel=None):
  """Returns M^-1 v + U^-1 e, a draw of N(M^-1 v, M^-1) if e ~ N(0, I)."""
  half = _solve_unit(factor, rows, True, parallel)
  whole = half / factor.pivots + noise * tf.math.rsqrt(factor.pivots)
  return _solve_unit(factor, whole, False, parallel)


def multiply_factor(factor, rows, adjoint=False):
  """Returns U v, or U^T v."""
  scale = tf.sqrt(factor.pivots)
  if adjoint:
    rows = scale * rows
    return rows + _lagged(factor.bands, rows)
  return scale * (rows + _led(factor.bands, rows))


def multiply(bands, rows):
  """Returns M v."""
  return bands[0] * rows + _led(bands[1:], rows) + _lagged(bands[1:], rows)


def _led(bands, rows):
  """Returns sum_k b_k[i] v[i + k] over the superdiagonals b_k, k >= 1."""
  return sum(
    _pad(band * rows[..., k:], 0, k) for k, band in enumerate(bands, start=1)
  )


def _lagged(bands, rows):
  """Returns sum_k b_k[i - k] v[i - k], the adjoint of `_led`."""
  return sum(
    _pad(band * rows[..., :-k], k, 0) for k, band in enumerate(bands, start=1)
  )


def _pad(x, before, after):
  return tf.pad(x, [[0, 0]] * (x.shape.rank - 1) + [[before, after]])


def _solve_unit(factor, rows, adjoint, parallel=None):
  """Returns W^-1 v, or W^-T v; rows and factor broadcast."""
  if not factor.bands:
    return rows
  bands, size = factor.bands, ps.shape(rows)[-1]
  batch = ps.shape(bands[0])[:-1]
  chains = ps.broadcast_shape(batch, ps.shape(rows)[:-1])
  num_rows = ps.reduce_prod(chains)

  def flat(x, number=num_rows):
    end = ps.shape(x)[-1:]
    # One row needs no broadcast. The value of a Tensor `number` is not known.
    if tf.is_tensor(number) or number != 1:
      x = tf.broadcast_to(x, ps.concat([chains, end], axis=0))
    return tf.reshape(x, ps.concat([[number], end], axis=0))

  if bands[0].shape[:-1].num_elements() == 1:
    bands = tuple(flat(band, 1)[0] for band in bands)
    unit = tf.ones([size], rows.dtype)
  else:
    bands = tuple(flat(band) for band in bands)
    unit = tf.ones([num_rows, size], rows.dtype)
  solution = banded.solve((unit, *bands), flat(rows), adjoint, parallel)
  return tf.reshape(solution, ps.concat([chains, [size]], axis=0))


def _by_loop(bands):
  """Returns what `banded_scan.factorize` returns, computed by a loop."""
  if len(bands) == 1:
    return bands[0], ()

  @custom_gradient
  def factorized(*bands):
    batch, size = ps.shape(bands[0])[0], ps.shape(bands[0])[1]
    # The matrices of a batch are joined end to end, with zeros between them.
    # The loop then has scalars only, and XLA keeps it in a single kernel.
    joined = tuple(
      tf.reshape(tf.pad(tf.stop_gradient(band), [[0, 0], [0, k]]), [-1])
      for k, band in enumerate(bands)
    )
    pivots, *unit = _compiled_recursion(*joined)
    split = lambda x: tf.reshape(x, [batch, size])
    outputs = (
      split(pivots),
      *(split(x)[:, : size - k] for k, x in enumerate(unit, start=1)),
    )

    def backward(*cotangents):
      with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(bands)
        pivots, unit = banded_scan.factorize(bands)
      return tape.gradient((pivots, *unit), bands, cotangents)

    return outputs, backward

  pivots, *unit = factorized(*bands)
  return pivots, tuple(unit)


def _recursion(*bands):
  """Returns the pivots and the diagonals of W, all [size].

  Row i of the Schur complement is w_k = M[i, i + k] - sum_l e_l w_{l+k}. In the
  sum, e and w are those of row i - l. The pivot is w_0, and e_k = w_k / w_0 is
  the entry W[i, i + k]. If the pivot is not positive, e and w are set to 0, so
  that nothing overflows.
  """
  order, size = len(bands) - 1, ps.shape(bands[0])[0]
  zero = tf.zeros([], bands[0].dtype)
  start = (((zero,) * order, (zero,) * order),) * order
  written = tuple(
    tf.TensorArray(zero.dtype, size=size, element_shape=[]) for _ in bands
  )

  def turn(i, last, written):
    schur = [band[i] for band in bands]
    for lag in range(1, order + 1):
      multipliers, row = last[lag - 1]
      for k in range(order - lag + 1):
        schur[k] -= multipliers[lag - 1] * row[lag + k - 1]
    is_positive = schur[0] > 0.0
    inverse = 1.0 / schur[0]
    unit = tuple(tf.where(is_positive, w * inverse, 0.0) for w in schur[1:])
    row = tuple(tf.where(is_positive, w, 0.0) for w in schur[1:])
    written = tuple(
      array.write(i, value) for array, value in zip(written, (schur[0], *unit))
    )
    return i + 1, ((unit, row), *last[:-1]), written

  _, _, written = tf.while_loop(
    lambda i, *_: i < size,
    turn,
    (0, start, written),
    maximum_iterations=size,
  )
  return tuple(array.stack() for array in written)


_compiled_recursion = tf.function(_recursion, jit_compile=True, autograph=False)
