"""Counter-based draws, the same in eager mode, in a graph and under XLA.

`alg='auto_select'` picks another generator under XLA, with other draws. Even
with Philox, TF's floats differ by device. Therefore Philox draws 64-bit
integers from seeds with non-negative words, and this file converts the integers
to floats. The integers agree exactly, and normals agree up to the rounding of
log and sqrt. TF's gamma draws and shuffle are not used, because they have no
XLA kernel.
"""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import trigonometry
from tfp_adaptive.core.tfp_private import prefer_static as ps


def sanitize(seed):
  """Returns a [2] int32 seed with non-negative words.

  With `None`, the seed is drawn from TF's global generator. Otherwise it is an
  int, a pair of ints, or a [2] integer Tensor.
  """
  if isinstance(seed, (int, np.integer)):
    # TFP would mix an int with a global generator, so that every call differs.
    seed = divmod(int(seed) & 0x3FFFFFFFFFFFFFFF, 2**31)
  elif isinstance(seed, np.ndarray) or tf.is_tensor(seed):
    seed = tf.cast(seed, tf.int32)
  seed = tfp.random.sanitize_seed(seed)
  return tf.bitwise.bitwise_and(seed, tf.constant(0x7FFFFFFF, seed.dtype))


def split(seed, num):
  """Returns a list of `num` independent seeds."""
  words = tf.random.stateless_uniform(
    [num, 2], seed, minval=None, maxval=None, dtype=tf.int32, alg='philox'
  )
  return tf.unstack(words & tf.constant(0x7FFFFFFF, tf.int32))


def fold_in(seed, data):
  """Returns a seed that depends on `seed` and on `data`, [] integer."""
  folded = tf.random.experimental.stateless_fold_in(
    seed, tf.cast(data, tf.int32), alg='philox'
  )
  return folded & tf.constant(0x7FFFFFFF, folded.dtype)


def uniform(shape, dtype, seed):
  """Draws uniforms in (0, 1], which have finite logarithms."""
  size = ps.reduce_prod(ps.convert_to_shape_tensor(shape, dtype=tf.int32))
  first, _ = _uniform_pairs(size, dtype, seed)
  return tf.reshape(first, shape)


def log_uniform(shape, dtype, seed):
  """Draws the logarithm of a uniform on (0, 1]."""
  return tf.math.log(uniform(shape, dtype, seed))


def normal(shape, dtype, seed):
  """Draws standard normals by the Box-Muller transform."""
  size = ps.reduce_prod(shape)
  # sqrt(-2 log u) (cos 2 pi v, sin 2 pi v) are two independent normals, also if
  # the angle is shifted by pi / 4, as in `rotated_cos_and_sin`.
  first, second = _uniform_pairs((size + 1) // 2, dtype, seed)
  radius = tf.sqrt(-2.0 * tf.math.log(first))
  cos, sin = trigonometry.rotated_cos_and_sin(second)
  halves = [radius * cos, radius * sin]
  static = tf.get_static_value(shape)
  if static is not None and len(static) and static[0] % 2 == 0:
    # Whole rows are joined. If the halves were joined first and then reshaped,
    # XLA would compute them again for some of their uses.
    halves = [
      tf.reshape(half, [static[0] // 2, *static[1:]]) for half in halves
    ]
    return tf.concat(halves, axis=0)
  return tf.reshape(tf.concat(halves, axis=0)[:size], shape)


def _uniform_pairs(size, dtype, seed):
  """Draws two vectors of uniforms in (0, 1], [size] each."""
  if dtype == tf.float64:
    bits = _philox_bits([2, size], seed)
    draws = (tf.cast(bits, tf.float64) + 0.5) * 2.0**-64
    return draws[0], draws[1]
  # Splitting a 64-bit draw takes half the work of two 32-bit draws. The halves
  # are joined, not interleaved, because XLA would compute interleaved normals
  # again for each of their uses.
  bits = _philox_bits([2, (size + 1) // 2], seed)
  halves = [
    tf.bitwise.right_shift(bits, tf.constant(32, tf.uint64)),
    tf.bitwise.bitwise_and(bits, tf.constant(0xFFFFFFFF, tf.uint64)),
  ]
  words = tf.cast(tf.concat(halves, axis=1)[:, :size], tf.uint32)
  draws = tf.cast((tf.cast(words, tf.float32) + 0.5) * 2.0**-32, dtype)
  return draws[0], draws[1]


def _philox_bits(shape, seed):
  return tf.random.stateless_uniform(
    shape, seed, minval=None, maxval=None, dtype=tf.uint64, alg='philox'
  )
