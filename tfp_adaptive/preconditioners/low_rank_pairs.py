"""Fits the diagonal plus low-rank factor of least Fisher divergence.

C = D (I + U U^T) with D = diag(c). The rows of X are states and those of G
gradients, [n, d], around their means. For a normal with covariance C C^T,

  X = -G D^2 - (a matrix of rank r).

Column X_i is therefore -c_i^2 G_i, except along the r columns of a matrix F,
[n, r]. Scales and F are found in alternation:

  F = orth(X D^-1 Q),   c_i^4 = |(I - F F^T) X_i|^2 / |(I - F F^T) G_i|^2,
  Q = (X D^-1 + G D)^T F.

For a normal, four rounds leave a condition number of 1.01. For other targets, c
has the least divergence for the parts of X and G that are orthogonal to F.

U is then found in the span of Q and of (X D^-1)^T F. There (I + U U^T)^2 is the
geometric mean of the covariance of the states and the inverse covariance of the
gradients. Eigenvalues below 1 are left out.
"""

import tensorflow as tf

from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linalg import geometric_mean

_NUM_ROUNDS = 4
_NUM_TURNS = 6  # Steps of the power iteration.
_NUM_ROUNDS_OF_WEIGHTS = 8  # Rounds that reduce the weights of outlying pairs.
# Fewer pairs give fewer columns. Each column of U is searched along two axes.
_LEAST_PAIRS_PER_COLUMN = 3.0
_RIDGE = 1e-12  # Relative to the squared columns, which may be dependent.
_LEAST_LENGTH = 1e-6  # Least length of an axis orthogonal to earlier axes.
# After the axes are subtracted, a coordinate keeps at least this share of its
# squares.
_LEAST_SHARE = 1e-12


def fit(rank, states, gradients, weights):
  """Returns params (c, U), computed in double precision.

  States and gradients, [n, d], are around their means. The weights [n] sum to
  one.
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
  """Returns c [d], and the columns of Q and (X D^-1)^T F, [d, 2 rank].

  `is_told` is 1 for the columns of U that there are enough pairs for, else 0.
  """
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
    # The first columns are random and explain nothing.
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
  """Returns states and gradients, times sqrt(weight), and first scales c, [d].

  A pair gets the weight w_i 2 / (1 + s), with s the mean of (c * gradient)^2.
  """
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
  """Returns squares [d] minus the squares of `parts`, [d, r], at least tiny."""
  rest = squares - tf.reduce_sum(parts**2, axis=1)
  return tf.maximum(rest, _LEAST_SHARE * squares)


def _columns(rank, states, gradients, scales, axes):
  """Returns the best U, [d, rank], with columns in the span of the axes."""
  axes, triangle = tf.linalg.qr(
    tf.math.divide_no_nan(axes, tf.norm(axes, axis=0))
  )
  # Axes that depend linearly on earlier axes are left out.
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
  """Returns leading eigenvectors [m, rank], and their values.

  A power iteration starts at the first `rank` unit vectors, which are nearly
  right. A full decomposition would cost as much as the rest of the fit.
  """
  _, turn = tf.while_loop(
    lambda count, _: count < _NUM_TURNS,
    lambda count, turn: (count + 1, _orthonormal(tf.matmul(matrix, turn))),
    (0, tf.eye(ps.shape(matrix)[0], rank, dtype=matrix.dtype)),
  )
  inside = tf.matmul(turn, tf.matmul(matrix, turn), transpose_a=True)
  # Outside XLA, `eigh` raises an error for NaN. `turn` still has the NaN.
  inside = tf.where(tf.math.is_finite(inside), inside, 0.0)
  variances, last = tf.linalg.eigh(inside)
  return tf.matmul(turn, last), variances


def _orthonormal(columns):
  """Returns an orthonormal basis [n, r]; dependent columns are nearly zero."""
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
