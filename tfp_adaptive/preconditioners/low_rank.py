"""Diagonal plus low-rank scale factor: C = D (I + U U^T)."""

from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import shown
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.preconditioners import low_rank_fisher
from tfp_adaptive.preconditioners import low_rank_pairs
from tfp_adaptive.preconditioners.factor_operator import FactorOperator

_FIRST_SIZE = 0.1  # Length of a column of U; C starts near a multiple of I.
_MAX_STRETCH = 0.5
_PAIRS_PER_COLUMN = 64  # Pairs (state, gradient) in the history.
_NUM_ITERATIONS = 4  # Steps of the power iteration.


class LowRankParams(NamedTuple):
  """Params, or a tangent."""

  scales: tf.Tensor  # c, [d].
  columns: tf.Tensor  # U, [d, rank].

  @classmethod
  def merged(cls, parts, before):
    """Returns the mean of the params of several fits.

    U and U R give the same factor for every orthogonal R. Each U is replaced by
    the U R that is nearest to the first U, before the mean is taken.
    """
    del before
    first = parts[0].columns
    turned = [_turned(part.columns, first) for part in parts]
    scales = [part.scales for part in parts]
    return cls(*(tf.reduce_mean(t, axis=0) for t in (scales, turned)))


@shown.remembers_call
def low_rank(rank, init_scale=None, min_scale=0.0):
  """Builds a diagonal plus low-rank factor, params (c, U) [d] and [d, rank].

  It learns the scale of every coordinate, and a few directions in which the
  target is wider than these scales imply. Narrower directions need a dense or
  banded factor. It costs O(d rank) in time and memory for each chain, and
  O(d rank^2) for a move.

    C = D (I + U U^T),   D = diag(c),
    log |det C| = sum log c_i + log det (I + U^T U).

  A tangent is a relative change of c and a change of U. A move is a natural
  gradient step, solved by conjugate gradients. It does not depend on the scale
  of the coordinates. U starts small but not at zero, where its gradient
  vanishes.

  Args:
    rank: Number of columns of U, at least 1 and less than the event size.
    init_scale: First scale of all coordinates, in units of the state: a
      positive float or a function of the event size. By default the adaptation
      finds this scale.
    min_scale: Smallest c_i after a step of an optimizer that works on raw
      params (`rmsprop`, `adam`). With 0, a negative c_i and row i of U change
      sign, which leaves C C^T unchanged. `relative_gradient` keeps c positive.

  Returns:
    An `interfaces.Preconditioner`.

  Raises:
    ValueError: If `rank` is not a positive int, or not smaller than the event
      size.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(100))
    kernel = tfpa.gradient_adaptive_langevin(
      target.log_prob, 1000, preconditioner=tfpa.preconditioners.low_rank(5)
    )
  """
  if not isinstance(rank, int) or rank < 1:
    raise ValueError(
      f'`rank` must be a positive int, but got {rank!r}. Without any take '
      '`tfpa.preconditioners.diagonal()`.'
    )

  def init(event_size, dtype, scale):
    size = tf.get_static_value(event_size)
    if size is not None and size <= rank:
      raise ValueError(
        f'`low_rank({rank})` needs a state of more than {rank} coordinates, '
        f'but got {size}. Take `tfpa.preconditioners.cholesky()`.'
      )
    scales = tf.cast(scale, dtype) * tf.ones([event_size], dtype)
    return LowRankParams(scales, _first_columns(event_size, rank, dtype))

  return interfaces.Preconditioner(
    name='low_rank',
    init=init,
    operator=_operator,
    outer=_outer,
    log_det_gradient=_log_det_gradient,
    slope=lambda params, grads: tf.reduce_sum(grads[0]),
    move=_move,
    rescale=lambda params, by: params._replace(scales=by * params.scales),
    project=lambda params: _project(params, min_scale),
    init_scale=init_scale,
    fisher_fit=lambda *pairs: LowRankParams(*low_rank_pairs.fit(rank, *pairs)),
    num_fisher_pairs=_PAIRS_PER_COLUMN * rank,
  )


def _project(params, min_scale):
  scales, columns = params
  if min_scale == 0.0:  # C diag(+-1) has the same C C^T.
    sign = tf.where(scales < 0.0, -tf.ones_like(scales), tf.ones_like(scales))
    columns *= sign[:, tf.newaxis]
  return LowRankParams(scale_factor.positive(scales, min_scale), columns)


def _first_columns(event_size, rank, dtype):
  """Returns small columns of random directions, the same in every call."""
  columns = tf.random.stateless_normal(
    ps.stack([event_size, rank]), seed=[0, 1], dtype=dtype, alg='philox'
  )
  return _FIRST_SIZE * columns / tf.norm(columns, axis=0)


def _turned(columns, target):
  """Returns the U R nearest to `target`, for U = `columns`, R orthogonal."""
  _, left, right = tf.linalg.svd(
    tf.matmul(columns, target, transpose_a=True), full_matrices=False
  )
  return tf.matmul(columns, tf.matmul(left, right, transpose_b=True))


def _operator(params):
  scales, columns = params
  geometry = low_rank_fisher.Geometry(columns)

  def apply(rows, adjoint):
    if adjoint:
      return geometry.apply(scales * rows)
    return scales * geometry.apply(rows)

  def unapply(rows, adjoint):
    if adjoint:
      return geometry.unapply(rows) / scales
    return geometry.unapply(rows / scales)

  return FactorOperator(
    ps.shape(scales)[0],
    scales.dtype,
    apply=apply,
    unapply=unapply,
    log_abs_det=lambda: tf.reduce_sum(tf.math.log(scales)) + geometry.log_det,
    name='low_rank',
  )


def _outer(params, left, right, push):
  scales, columns = params
  # K = I + U U^T.
  pulled = low_rank_fisher.Geometry(columns).unapply(left)  # K^-1 left
  pushed = push() / scales  # K right
  inner = tf.matmul(pulled, tf.matmul(right, columns), transpose_a=True)
  inner += tf.matmul(right, tf.matmul(pulled, columns), transpose_a=True)
  return LowRankParams(tf.reduce_sum(pulled * pushed, axis=0), inner)


def _log_det_gradient(params):
  scales, columns = params
  inverse = low_rank_fisher.Geometry(columns).inverse
  return LowRankParams(tf.ones_like(scales), 2.0 * tf.matmul(columns, inverse))


def _move(params, tangent):
  scales, columns = params
  geometry = low_rank_fisher.Geometry(columns)
  delta, omega = low_rank_fisher.natural_step(geometry, tuple(tangent))
  shrink = _shrink(geometry, delta, omega)
  moved = scales * tf.exp(shrink * delta), columns + shrink * omega
  is_usable = tf.math.is_finite(shrink)
  return LowRankParams(
    *(tf.where(is_usable, new, old) for new, old in zip(moved, params))
  )


def _shrink(geometry, delta, omega):
  """Returns the factor, at most 1, by which a move is shortened, [].

  No direction of C then changes by much more than `_MAX_STRETCH`.
  """
  change = low_rank_fisher.symmetric_change(geometry, delta, omega)
  size = ps.shape(delta)[0]
  # The start must not be orthogonal to the leading direction.
  column = tf.cast(1 + tf.range(size) % 7, delta.dtype)[:, tf.newaxis]
  tiny = tf.constant(1e-30, delta.dtype)
  for _ in range(_NUM_ITERATIONS):
    column /= tf.maximum(tf.norm(column), tiny)
    column = low_rank_fisher.multiply(change, column)
  stretch = tf.maximum(tf.norm(column), tf.reduce_max(tf.abs(delta)))
  # E (`low_rank_fisher.py`) leaves out the second order, omega omega^T. It is
  # bounded by |omega^T K^-1 omega| <= 1/4.
  pulled = tf.transpose(geometry.unapply(tf.transpose(omega)))
  square = tf.norm(tf.matmul(omega, pulled, transpose_a=True))
  stretch = tf.maximum(stretch, tf.sqrt(square))
  return _MAX_STRETCH / tf.maximum(stretch, _MAX_STRETCH)
