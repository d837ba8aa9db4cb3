"""A diagonal plus low-rank factor of the least Fisher divergence on pairs.

C = D (I + U U^T), and states X and gradients G [n, d] around their means. For a
normal whose covariance is C C^T

  X = -G D^2 - (rank r):

but for r columns F of the pairs, every coordinate of the states is that of the
gradients times -c^2, without noise. So scales and columns are found in turns,

  F = orth(X D^-1 Q),   c_i^4 = |(I - F F^T) X_i|^2 / |(I - F F^T) G_i|^2,
  Q = (X D^-1 + G D)^T F,

which leaves a condition number of 1.01 after four of them. Of other targets the
scales balance what F does not explain, as a diagonal of the least divergence
does. Then, in the span of Q and of the principal axes of the states, I + U U^T
is the root of the geometric mean of the covariance there and the inverse of
that of the gradients, its directions that are short left out.
"""

import tensorflow as tf

from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linalg import geometric_mean

__all__ = ['fit']

_NUM_ROUNDS = 4
_NUM_TURNS = 6  # Of the power iteration.
_NUM_ROUNDS_OF_WEIGHTS = 8  # That pairs in necks lose.
# Fewer pairs tell fewer columns; above 2, as axes are twice as many as those.
_LEAST_PAIRS_PER_COLUMN = 3.0
_RIDGE = 1e-12  # Of squared columns, that may depend on each other.
_LEAST_LENGTH = 1e-6  # Of an axis, beside those before it.
_LEAST_SHARE = 1e-12  # Of a coordinate, that columns do not explain.


def fit(rank, states, gradients, weights):
  """Returns params (c, U). Computed in double precision.

  Args:
    rank: Columns of U.
    states: Around their mean, [n, d].
    gradients: Of the log density there, around theirs, [n, d].
    weights: Of the pairs, [n], summing to one.
  """
  dtype = states.dtype
  pairs = [tf.cast(t, tf.float64) for t in (states, gradients, weights)]
  states, gradients, scales = _weighted(*pairs)
  square = tf.reduce_sum(pairs[2] ** 2)
  needed = _LEAST_PAIRS_PER_COLUMN * tf.cast(1 + tf.range(rank), tf.float64)
  is_told = tf.cast(needed * square < 1.0 + 1e-6, tf.float64)
  scales, axes = _in_turns(rank, states, gradients, scales, is_told)
  columns = _columns(rank, states, gradients, scales, axes)
  return tf.cast(scales, dtype), tf.cast(columns, dtype)


def _in_turns(rank, states, gradients, scales, is_told):
  """Returns scales [d], and Q beside the states along F, [d, 2 rank]."""
  of_states, of_gradients = (
    tf.reduce_sum(rows**2, axis=0) for rows in (states, gradients)
  )

  def turn(count, along, scales, axes):
    del axes
    states_along, gradients_along = (
      tf.matmul(rows, along, transpose_a=True) for rows in (states, gradients)
    )
    ratio = _unexplained(of_states, states_along)
    ratio /= _unexplained(of_gradients, gradients_along)
    # The first columns are drawn, and explain nothing.
    scales = tf.where(count > 0, ratio**0.25, scales)
    states_along /= scales[:, tf.newaxis]
    axes = (states_along + gradients_along * scales[:, tf.newaxis]) * is_told
    along = _orthonormal(tf.matmul(states, axes / scales[:, tf.newaxis]))
    return count + 1, along, scales, tf.concat([axes, states_along], axis=1)

  first = tf.random.stateless_normal(
    ps.stack([ps.shape(states)[0], rank]),
    seed=[0, 1],
    dtype=tf.float64,
    alg='philox',
  )
  width = ps.stack([ps.shape(states)[1], 2 * rank])
  return tf.while_loop(
    lambda count, *_: count <= _NUM_ROUNDS,
    turn,
    (0, first / tf.norm(first, axis=0), scales, tf.zeros(width, tf.float64)),
  )[2:]


def _weighted(states, gradients, weights):
  """Returns rows times the root of their weight, and scales of gradients."""
  share = weights[:, tf.newaxis]

  def turn(count, share, scales):
    del scales
    scales = tf.math.rsqrt(tf.reduce_sum(share * gradients**2, axis=0))
    size = tf.reduce_mean((gradients * scales) ** 2, axis=-1, keepdims=True)
    return count + 1, weights[:, tf.newaxis] * 2.0 / (1.0 + size), scales

  _, share, scales = tf.while_loop(
    lambda count, *_: count < _NUM_ROUNDS_OF_WEIGHTS,
    turn,
    (0, share, tf.zeros_like(gradients[0])),
  )
  return tf.sqrt(share) * states, tf.sqrt(share) * gradients, scales


def _unexplained(squares, parts):
  """Returns squares [d] less those along orthonormal columns, [d, r]."""
  rest = squares - tf.reduce_sum(parts**2, axis=1)
  return tf.maximum(rest, _LEAST_SHARE * squares)


def _columns(rank, states, gradients, scales, axes):
  """Returns U, [d, rank], of the best C whose directions lie along the axes."""
  axes, triangle = tf.linalg.qr(
    tf.math.divide_no_nan(axes, tf.norm(axes, axis=0))
  )
  # What depends on others is left out.
  is_axis = tf.abs(tf.linalg.diag_part(triangle)) > _LEAST_LENGTH
  axes = tf.where(is_axis, axes, 0.0)
  rest = tf.linalg.diag(tf.cast(~is_axis, tf.float64))
  along = (
    tf.matmul(states, axes / scales[:, tf.newaxis]),
    tf.matmul(gradients, axes * scales[:, tf.newaxis]),
  )
  spreads = [tf.matmul(t, t, transpose_a=True) + rest for t in along]
  factor = geometric_mean.factor_of_mean(*spreads)
  covariance = tf.matmul(factor, factor, transpose_b=True)
  turn, variances = _leading(covariance, rank)
  stretch = tf.maximum(tf.sqrt(variances) - 1.0, 0.0)
  return tf.matmul(axes, turn) * tf.sqrt(stretch)


def _leading(matrix, rank):
  """Returns eigenvectors [m, rank], the first coordinates nearly, and values.

  By a power iteration: a decomposition of all costs as much as all the rest.
  """
  _, turn = tf.while_loop(
    lambda count, _: count < _NUM_TURNS,
    lambda count, turn: (count + 1, _orthonormal(tf.matmul(matrix, turn))),
    (0, tf.eye(ps.shape(matrix)[0], rank, dtype=matrix.dtype)),
  )
  inside = tf.matmul(turn, tf.matmul(matrix, turn), transpose_a=True)
  # Of a NaN it raises outside XLA; the turn still has it.
  inside = tf.where(tf.math.is_finite(inside), inside, 0.0)
  variances, last = tf.linalg.eigh(inside)
  return tf.matmul(turn, last), variances


def _orthonormal(columns):
  """Returns an orthonormal basis [n, r] of columns; next to zero: dependent."""
  gram = tf.matmul(columns, columns, transpose_a=True)
  return tf.matmul(columns, _inverse_root(gram))


def _inverse_root(gram):
  """Returns R with R^T (gram) R = I, [r, r]."""
  scales = tf.sqrt(tf.linalg.diag_part(gram))
  scales = tf.math.reciprocal_no_nan(scales)[:, tf.newaxis]
  gram *= scales * tf.transpose(scales)
  identity = tf.eye(ps.shape(gram)[0], dtype=gram.dtype)
  factor = tf.linalg.cholesky(gram + _RIDGE * identity)
  inverse = tf.linalg.triangular_solve(factor, identity)
  return scales * tf.transpose(inverse)
