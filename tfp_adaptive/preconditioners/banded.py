"""Factor of a Markov path of order p: C = B^-1 with B upper banded."""

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import shown
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linalg import banded as banded_lib
from tfp_adaptive.preconditioners import markov_path
from tfp_adaptive.preconditioners import row_step
from tfp_adaptive.preconditioners.factor_operator import FactorOperator


@shown.remembers_call
def banded(num_superdiagonals, init_scale=None, min_scale=0.0):
  """Builds the factor of a Markov path of order p.

  It learns exactly the covariances whose inverse B^T B has p diagonals above
  the main one. For p = 1 use `tridiagonal`, which is faster. A product costs
  O(p d), and a move O(p^2 d) in time and memory.

    C = B^-1,   B upper triangular with p superdiagonals,
    log |det C| = -sum log b_ii.

  Params are the p + 1 diagonals, of sizes d, d - 1, ..., d - p, and a tangent
  is a change of params. A move is a natural gradient step.

  Args:
    num_superdiagonals: p, at least 1.
    init_scale: First scale of all coordinates, in units of the state: a
      positive float or a function of the event size. By default the adaptation
      finds this scale.
    min_scale: Smallest 1 / b_ii, the scale of a coordinate given its next p
      neighbors, after a step of an optimizer that works on raw params
      (`rmsprop`, `adam`). With `relative_gradient` b_ii stays positive anyway.

  Returns:
    An `interfaces.Preconditioner`.

  Raises:
    ValueError: If `num_superdiagonals` is not a positive int, or not smaller
      than the event size.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(100))
    kernel = tfpa.gradient_adaptive_langevin(
      target.log_prob, 1000, preconditioner=tfpa.preconditioners.banded(2)
    )
  """
  if not isinstance(num_superdiagonals, int) or num_superdiagonals < 1:
    raise ValueError(
      '`num_superdiagonals` must be a positive int, but got '
      f'{num_superdiagonals!r}. Without any take '
      '`tfpa.preconditioners.diagonal()`.'
    )

  def init(event_size, dtype, scale):
    size = tf.get_static_value(event_size)
    if size is not None and size <= num_superdiagonals:
      raise ValueError(
        f'`banded({num_superdiagonals})` needs a state of more than '
        f'{num_superdiagonals} coordinates, but got {size}.'
      )
    diag, _ = markov_path.initial(event_size, dtype, scale)
    return diag, *(
      tf.zeros([event_size - k], dtype)
      for k in range(1, num_superdiagonals + 1)
    )

  def project(params):
    diag = markov_path.clip_diagonal(params[0], min_scale)
    return diag, *params[1:]

  return interfaces.Preconditioner(
    name='banded',
    init=init,
    operator=_operator,
    outer=lambda params, left, right, push: tuple(
      -g for g in banded_lib.outer(left, push(), len(params))
    ),
    log_det_gradient=lambda params: (
      -1.0 / params[0],
      *(tf.zeros_like(band) for band in params[1:]),
    ),
    slope=markov_path.slope,
    move=_move,
    rescale=lambda params, by: tuple(band / by for band in params),
    project=project,
    init_scale=init_scale,
  )


def _operator(params):
  return FactorOperator(
    ps.shape(params[0])[0],
    params[0].dtype,
    apply=lambda rows, adjoint: banded_lib.solve(params, rows, adjoint),
    unapply=lambda rows, adjoint: banded_lib.multiply(params, rows, adjoint),
    log_abs_det=lambda: -tf.reduce_sum(tf.math.log(params[0])),
    name='banded',
  )


def _move(params, tangent):
  stretch, shear = _row_steps(params, tangent)
  change = _change(params, stretch, shear)
  shrink = row_step.global_shrink(
    lambda rows: banded_lib.multiply(change, banded_lib.solve(params, rows)),
    lambda rows: banded_lib.solve(
      params, banded_lib.multiply(change, rows, adjoint=True), adjoint=True
    ),
    ps.shape(params[0])[0],
    params[0].dtype,
  )
  # b <- b exp(e) is positive, and to first order b (1 + e).
  change = _change(params, tf.math.expm1(shrink * stretch), shrink * shear)
  return tuple(band + by for band, by in zip(params, change))


def _row_steps(params, tangent):
  """Returns e [d] and g [d, p] of every row, bounded; see `row_step`."""
  rows, tangents = _by_row(params[1:]), _by_row(tangent[1:])
  stretch = params[0] * tangent[0] + tf.reduce_sum(rows * tangents, axis=-1)
  shear = tf.linalg.matvec(_window_precisions(params[0], rows), tangents)
  shear_square = 4.0 * tf.reduce_sum(shear * tangents, axis=-1)
  shrink = row_step.row_shrink(stretch, tf.maximum(shear_square, 0.0))
  return shrink * stretch, 2.0 * shrink[:, tf.newaxis] * shear


def _by_row(superdiagonals):
  """Returns the entries right of the diagonal by rows, [d, p]."""
  return tf.stack(
    [tf.pad(band, [[0, k]]) for k, band in enumerate(superdiagonals, start=1)],
    axis=-1,
  )


def _change(params, stretch, shear):
  """Returns the diagonals of dB; row i is e_i times row i of B, plus g_i."""
  size = ps.shape(stretch)[0]
  return (
    params[0] * stretch,
    *(
      band * stretch[: size - k] + shear[: size - k, k - 1]
      for k, band in enumerate(params[1:], start=1)
    ),
  )


def _window_precisions(diag, rows):
  """Returns Cov(x_{i+1}, ..., x_{i+p})^-1 for every i, [d, p, p].

  The recursion starts at the end of the path. Step i adds row i of B to the
  precision of x_{i+1}, ..., x_{i+p}, and integrates out x_{i+p}. Beyond the end
  are p independent coordinates of variance 1, which do not enter B.
  """
  if tf.executing_eagerly():
    return _precision_recursion(diag, rows)
  recursion = tf.function(
    _precision_recursion, jit_compile=True, autograph=False
  )
  return recursion(diag, rows)


def _precision_recursion(diag, rows):
  size, order = ps.shape(rows)[0], rows.shape[1]
  whole_rows = tf.concat([diag[:, tf.newaxis], rows], axis=-1)
  written = tf.TensorArray(rows.dtype, size=size, element_shape=[order, order])

  def turn(count, window, written):
    i = size - 1 - count
    row = whole_rows[i]
    joint = tf.pad(window, [[1, 0], [1, 0]]) + row[:, tf.newaxis] * row
    last = joint[:-1, -1]
    before = joint[:-1, :-1] - last[:, tf.newaxis] * last / joint[-1, -1]
    return count + 1, before, written.write(i, window)

  _, _, written = tf.while_loop(
    lambda count, *_: count < size,
    turn,
    (0, tf.eye(order, dtype=rows.dtype), written),
    maximum_iterations=size,
  )
  return written.stack()
