"""Uniforms and normals of stateless seeds, the same eager and compiled.

The integers of Philox agree between TensorFlow and XLA; the floats that the two
make of them do not. Here they come from 52 bits, normals by the inverse of
their distribution function, so that a stochastic target is one function of its
seed.
"""

import tensorflow as tf


def uniforms(shape, seed):
  """Returns uniforms on (0, 1), neither end among them, float64.

  Args:
    shape: list of ints or [rank] int32 Tensor.
    seed: [2] int32 Tensor.
  """
  bits = tf.random.stateless_uniform(
    shape, seed, minval=None, maxval=None, dtype=tf.uint64, alg='philox'
  )
  bits = tf.bitwise.right_shift(bits, tf.constant(12, tf.uint64))
  return (tf.cast(bits, tf.float64) + 0.5) * 2.0**-52


def standard_normals(shape, seed):
  """Returns standard normals, float64; arguments as of `uniforms`."""
  return tf.math.ndtri(uniforms(shape, seed))
