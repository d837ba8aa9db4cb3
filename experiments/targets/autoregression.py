"""Paths over days, [chains..., num_days], in operations that compile well.

XLA's products are vectorized on CPU; its sums are not, nor are those in the
gradient of a broadcast. Sums over days, and copies of one number for all days,
are therefore products with ones here. Everything can be differentiated twice
under `jit_compile`.
"""

import numpy as np
import tensorflow as tf

__all__ = ['autoregress', 'over_days', 'sum_days']


def sum_days(x):
  """Returns the sums over the last dimension."""
  return tf.tensordot(x, tf.ones([x.shape[-1]], x.dtype), 1)


def over_days(x, num_days):
  """Returns [..., num_days] copies of [..., 1]."""
  return tf.tensordot(x, tf.ones([1, num_days], x.dtype), 1)


def autoregress(innovations, persistence):
  """Returns a with a_0 = e_0, a_t = persistence a_{t-1} + e_t.

  In blocks of about sqrt(num_days) days: inside a block a product with the
  triangle persistence^(i - j), from block to block the same with the block's
  own power. O(num_days^1.5) work in three products instead of a loop over days.

  Args:
    innovations: e, [chains..., num_days].
    persistence: [chains..., 1], not zero.
  """
  num_days = innovations.shape[-1]
  length = int(np.ceil(np.sqrt(num_days)))
  num_blocks = -(-num_days // length)
  chains = tf.shape(innovations)[:-1]
  padding = tf.zeros_like(innovations[..., :1]) * tf.ones(
    [num_blocks * length - num_days], innovations.dtype
  )
  blocks = tf.reshape(
    tf.concat([innovations, padding], -1),
    tf.concat([chains, [num_blocks, length]], 0),
  )
  within = tf.matmul(blocks, _powers(persistence, length), transpose_b=True)
  ends = tf.matmul(_powers(persistence**length, num_blocks), within[..., -1:])
  previous = tf.concat([tf.zeros_like(ends[..., :1, :]), ends[..., :-1, :]], -2)
  exponents = tf.range(1, length + 1, dtype=innovations.dtype)
  path = within + previous * (persistence[..., tf.newaxis] ** exponents)
  flat = tf.reshape(path, tf.concat([chains, [num_blocks * length]], 0))
  return flat[..., :num_days]


def _powers(base, size):
  """Returns the lower triangle base^(i - j), [chains..., size, size]."""
  distance = np.subtract.outer(np.arange(size), np.arange(size))
  triangle = tf.constant(distance >= 0, base.dtype)
  exponents = tf.constant(np.maximum(distance, 0), base.dtype)
  return triangle * base[..., tf.newaxis] ** exponents
