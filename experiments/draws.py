"""Standard normals of stateless seeds, the same eager and compiled.

The integers of Philox agree between TensorFlow and XLA; the floats that the two
make of them do not. Here they come from 52 bits by the inverse of the normal
distribution function, so that a stochastic target is one function of its seed.
"""

import tensorflow as tf

__all__ = ['standard_normals']


def standard_normals(shape, seed):
  """Returns standard normals of a shape, float64.

  Args:
    shape: list of ints or [rank] int32 Tensor.
    seed: [2] int32 Tensor.
  """
  bits = tf.random.stateless_uniform(
    shape, seed, minval=None, maxval=None, dtype=tf.uint64, alg='philox'
  )
  bits = tf.bitwise.right_shift(bits, tf.constant(12, tf.uint64))
  # Half a unit off the ends: neither 0 nor 1, exact in float64.
  uniforms = (tf.cast(bits, tf.float64) + 0.5) * 2.0**-52
  return tf.math.ndtri(uniforms)
