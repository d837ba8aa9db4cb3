"""The largest stretch of a symmetric operator, cheaply."""

import tensorflow as tf

from tfp_adaptive.core import scale_factor

__all__ = ['spectral_norm']

_NUM_ITERATIONS = 3  # Of two products each; an estimate from below.


def spectral_norm(operator, event_size):
  """Estimates the largest absolute eigenvalue by power iteration, [].

  Args:
    operator: Self-adjoint `tf.linalg.LinearOperator`.
    event_size: Its size.
  """
  # Any start that is not orthogonal to the leading direction will do.
  row = tf.cast(1 + tf.range(event_size) % 7, operator.dtype)
  tiny = tf.constant(1e-30, operator.dtype)
  for _ in range(_NUM_ITERATIONS):
    row /= tf.maximum(tf.norm(row), tiny)
    row = scale_factor.apply(operator, scale_factor.apply(operator, row))
  return tf.sqrt(tf.norm(row))
