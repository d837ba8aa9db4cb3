"""A diagonal plus low-rank factor near the best, from states and gradients.

C = D (I + U U^T): long directions beside scales. Gradients are short along long
directions, so that their spread is 1 / D but for the share that the directions
have in a coordinate. In units of D the directions are the principal axes of the
states, found by a power iteration of a subspace twice as wide; along each, the
variance of least Fisher divergence is (mean z^2 / mean s^2)^(1/2).
"""

import tensorflow as tf

from tfp_adaptive.core.tfp_private import prefer_static as ps

__all__ = ['of_pairs']

_NUM_ITERATIONS = 3
_NUM_ROUNDS = 8  # Of weights that pairs in necks lose.
_LEAST_SIZE = 0.01  # Of a column of U, squared: at zero its gradient vanishes.


def of_pairs(rank, states, gradients, weights):
  """Returns params (c, U).

  Args:
    rank: Columns of U.
    states: Around their mean, [n, d].
    gradients: Of the log density there, around theirs, [n, d].
    weights: Of the pairs, [n], summing to one.
  """
  share = weights[:, tf.newaxis]
  for _ in range(_NUM_ROUNDS):
    scales = tf.math.rsqrt(tf.reduce_sum(share * gradients**2, axis=0))
    size = tf.reduce_mean((gradients * scales) ** 2, axis=-1, keepdims=True)
    share = weights[:, tf.newaxis] * 2.0 / (1.0 + size)
  states, gradients = states / scales, gradients * scales
  axes = _principal_axes(rank, states, share)

  def spread(rows):
    return tf.reduce_sum(share * tf.matmul(rows, axes) ** 2, axis=0)

  # (I + U U^T)^2 is the variance there.
  stretch = (spread(states) / spread(gradients)) ** 0.25
  return scales, axes * tf.sqrt(tf.maximum(stretch - 1.0, _LEAST_SIZE))


def _principal_axes(rank, rows, share):
  """Returns the leading ones, [d, rank], orthonormal."""
  axes = tf.random.stateless_normal(
    ps.stack([ps.shape(rows)[-1], 2 * rank]),
    seed=[0, 1],
    dtype=rows.dtype,
    alg='philox',
  )
  for _ in range(_NUM_ITERATIONS):
    along = share * tf.matmul(rows, axes)
    axes = tf.linalg.qr(tf.matmul(rows, along, transpose_a=True)).q
  along = tf.matmul(rows, axes)
  _, turn = tf.linalg.eigh(tf.matmul(along, share * along, transpose_a=True))
  return tf.matmul(axes, turn[:, -rank:])
