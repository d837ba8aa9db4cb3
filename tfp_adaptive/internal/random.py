"""Counter-based draws that are the same eager, in a graph and under XLA.

`alg='auto_select'` picks another generator under XLA and with it other draws;
even with Philox the library's floats differ by device. So: seed words masked to
non-negative, 64-bit integers from Philox, and the conversion to floats done
here. Bits agree exactly; normals to the rounding of log, sqrt, sin and cos.
"""

import math

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.internal.tfp_private import prefer_static as ps

__all__ = ['fold_in', 'log_uniform', 'normal', 'sanitize', 'split', 'uniform']


def sanitize(seed):
  """Returns a [2] int32 seed with non-negative words.

  Args:
    seed: `None` (drawn from TF's global generator), an int, a pair of ints, or
      a [2] integer Tensor.
  """
  if hasattr(seed, '__index__') and not tf.is_tensor(seed):
    # TFP would draw from the global generator: not the same seed twice.
    seed = divmod(int(seed) & 0x3FFFFFFFFFFFFFFF, 2**31)
  seed = tfp.random.sanitize_seed(seed)
  return tf.bitwise.bitwise_and(seed, tf.constant(0x7FFFFFFF, seed.dtype))


def split(seed, num):
  """Returns a list of `num` independent seeds."""
  words = tf.random.stateless_uniform(
    [num, 2], seed, minval=None, maxval=None, dtype=tf.int32, alg='philox'
  )
  return tf.unstack(words & tf.constant(0x7FFFFFFF, tf.int32))


def fold_in(seed, data):
  """Returns the seed of counter value `data` ([] integer) under `seed`."""
  folded = tf.random.experimental.stateless_fold_in(
    seed, tf.cast(data, tf.int32), alg='philox'
  )
  return folded & tf.constant(0x7FFFFFFF, folded.dtype)


def uniform(shape, dtype, seed):
  """Draws uniforms in (0, 1], never 0: safe under a logarithm."""
  size = ps.reduce_prod(shape)
  if dtype == tf.float64:
    bits = _philox_bits(size, seed)
    flat = (tf.cast(bits, tf.float64) + 0.5) * 2.0**-64
  else:
    # Two 32-bit halves of one 64-bit draw: half the work of 32-bit draws.
    bits = tf.bitcast(_philox_bits((size + 1) // 2, seed), tf.uint32)
    flat = (tf.cast(bits, tf.float32) + 0.5) * 2.0**-32
    flat = tf.cast(tf.reshape(flat, [-1])[:size], dtype)
  return tf.reshape(flat, shape)


def log_uniform(shape, dtype, seed):
  """Draws the logarithm of a uniform on (0, 1]."""
  return tf.math.log(uniform(shape, dtype, seed))


def normal(shape, dtype, seed):
  """Draws standard normals by the Box-Muller transform."""
  size = ps.reduce_prod(shape)
  half = (size + 1) // 2
  draws = uniform(ps.stack([2, half]), dtype, seed)
  radius = tf.sqrt(-2.0 * tf.math.log(draws[0]))
  angle = 2.0 * math.pi * draws[1]
  flat = tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=0)
  return tf.reshape(flat[:size], shape)


def _philox_bits(size, seed):
  return tf.random.stateless_uniform(
    [size], seed, minval=None, maxval=None, dtype=tf.uint64, alg='philox'
  )
