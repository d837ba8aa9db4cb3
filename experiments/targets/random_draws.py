"""Uniforms and normals of stateless seeds, equal in eager and compiled code.

The integers of Philox agree between TensorFlow and XLA, but their floats do
not. Here floats come from 52 bits, and normals from the inverse of their
distribution function. A stochastic target is therefore one function of its
seed.
"""

import tensorflow as tf


def uniforms(shape, seed):
  """Returns uniforms on the open interval (0, 1), float64.

  Args:
    shape: List of ints or [rank] int32 Tensor.
    seed: [2] int32 Tensor.
  """
  bits = tf.random.stateless_uniform(
    shape, seed, minval=None, maxval=None, dtype=tf.uint64, alg='philox'
  )
  bits = tf.bitwise.right_shift(bits, tf.constant(12, tf.uint64))
  return (tf.cast(bits, tf.float64) + 0.5) * 2.0**-52


def standard_normals(shape, seed):
  """Returns standard normals, float64; see `uniforms` for arguments."""
  return tf.math.ndtri(uniforms(shape, seed))
