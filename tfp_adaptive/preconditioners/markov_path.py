"""Functions that the factors of Markov paths share; (b, u) are bands of B."""

import tensorflow as tf

from tfp_adaptive.linalg import banded

_MAX_SCALE = 1e6


def initial(event_size, dtype, scale):
  """Returns the bands of B = I / scale, of sizes d and d - 1."""
  inverse = 1.0 / tf.cast(scale, dtype)
  return (
    inverse * tf.ones([event_size], dtype),
    tf.zeros([event_size - 1], dtype),
  )


def variances(bands):
  """Returns the diagonal v of (B^T B)^-1, [d].

  b_i^2 v_i = 1 + u_i^2 v_{i+1} is a bidiagonal system in v. All its terms are
  positive, so that nothing cancels.
  """
  diag, upper = bands
  squares = (diag**2, -(upper**2))
  return banded.solve(squares, tf.ones_like(diag)[tf.newaxis])[0]


def slope(params, grads):
  """Returns the derivative in log a at a = 1, [], where a C has params / a."""
  return -tf.add_n([tf.reduce_sum(p * g) for p, g in zip(params, grads)])


def clip_diagonal(diag, min_scale):
  """Returns diagonal entries b of C^-1 with 1 / b in [min_scale, 1e6]."""
  diag = tf.maximum(diag, tf.constant(1.0 / _MAX_SCALE, diag.dtype))
  if min_scale > 0.0:
    diag = tf.minimum(diag, tf.constant(1.0 / min_scale, diag.dtype))
  return diag
