"""Diagonal plus low-rank scale factor: C = D (I + U U^T)."""

from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import shown
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.preconditioners import low_rank_pairs
from tfp_adaptive.preconditioners.factor_operator import FactorOperator

_PAIRS_PER_COLUMN = 64  # Pairs (state, gradient) in the history.


class LowRankParams(NamedTuple):
  """Numbers that define C."""

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
def low_rank(rank, init_scale=None):
  """Builds a diagonal plus low-rank factor, params (c, U) [d] and [d, rank].

  It learns the scale of every coordinate, and a few directions in which the
  target is wider than these scales imply. Narrower directions need a dense or
  banded factor. It costs O(d rank) in time and memory for each chain.

    C = D (I + U U^T),   D = diag(c),
    log |det C| = sum log c_i + log det (I + U^T U).

  A fit to pairs of a state and its gradient finds the params. Only the samplers
  that learn by Fisher divergence make such fits, for example
  `fisher_divergence_hamiltonian`. All other adaptations move their params at
  every step, and refuse this structure.

  Args:
    rank: Number of columns of U, at least 1 and less than the event size.
    init_scale: First scale of all coordinates, in units of the state: a
      positive float or a function of the event size. By default the adaptation
      finds this scale.

  Returns:
    An `interfaces.Preconditioner`.

  Raises:
    ValueError: If `rank` is not a positive int, or not smaller than the event
      size.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(100))
    kernel = tfpa.fisher_divergence_hamiltonian(
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
    return LowRankParams(scales, tf.zeros([event_size, rank], dtype))

  return interfaces.Preconditioner(
    name='low_rank',
    init=init,
    operator=_operator,
    rescale=lambda params, by: params._replace(scales=by * params.scales),
    init_scale=init_scale,
    fisher_fit=lambda *pairs: LowRankParams(*low_rank_pairs.fit(rank, *pairs)),
    num_fisher_pairs=_PAIRS_PER_COLUMN * rank,
  )


def _turned(columns, target):
  """Returns the U R nearest to `target`, for U = `columns`, R orthogonal."""
  _, left, right = tf.linalg.svd(
    tf.matmul(columns, target, transpose_a=True), full_matrices=False
  )
  return tf.matmul(columns, tf.matmul(left, right, transpose_b=True))


def _operator(params):
  scales, columns = params
  # K = I + U U^T, K^-1 = I - U G U^T, G = (I + U^T U)^-1
  identity = tf.eye(ps.shape(columns)[-1], dtype=columns.dtype)
  gram = tf.matmul(columns, columns, transpose_a=True)
  # I + U^T U is at least I, so that a plain solve is accurate.
  chol = tf.linalg.cholesky(identity + gram)
  inverse = tf.linalg.cholesky_solve(chol, identity)

  def stretched(rows):
    inner = tf.matmul(rows, columns)
    return rows + tf.matmul(inner, columns, transpose_b=True)

  def shrunk(rows):
    inner = tf.matmul(tf.matmul(rows, columns), inverse)
    return rows - tf.matmul(inner, columns, transpose_b=True)

  def apply(rows, adjoint):
    return stretched(scales * rows) if adjoint else scales * stretched(rows)

  def unapply(rows, adjoint):
    return shrunk(rows) / scales if adjoint else shrunk(rows / scales)

  def log_abs_det():
    log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol)))
    return tf.reduce_sum(tf.math.log(scales)) + log_det

  return FactorOperator(
    ps.shape(scales)[0],
    scales.dtype,
    apply=apply,
    unapply=unapply,
    log_abs_det=log_abs_det,
    name='low_rank',
  )
