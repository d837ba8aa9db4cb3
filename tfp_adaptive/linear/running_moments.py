"""Running mean and spread of the states of all chains.

  m <- m + w mean_k delta_k,   delta_k = x_k - m,
  V <- (1 - w) (V + w (mean_k delta_k)^2) + w Var_k delta_k

Here x_k are the rows of K chains at one step, and w is the weight of the step.
m is the mean over all steps so far, and V the covariance or the variances. The
weights of earlier steps decay.
"""

from typing import NamedTuple

import tensorflow as tf


class Moments(NamedTuple):
  """Mean and covariance of rows."""

  mean: tf.Tensor  # m, [d].
  spread: tf.Tensor  # V, [d] or [d, d].

  @classmethod
  def merged(cls, parts, before):
    """Returns the moments of all shards, which have equal numbers of chains."""
    del before
    mean = tf.add_n([part.mean for part in parts]) / len(parts)
    spread = tf.zeros_like(parts[0].spread)
    for part in parts:
      shift = part.mean - mean
      square = (
        shift[:, tf.newaxis] * shift if spread.shape.rank == 2 else shift**2
      )
      spread += (part.spread + square) / len(parts)
    return cls(mean, spread)


def start(rows, is_finite, dense=False):
  """Returns `Moments` with the mean of the rows and zero spread.

  Rows, [K, d], are zero where `is_finite`, [K, 1], is false. With `dense`, V is
  a covariance, [d, d].
  """
  zeros = tf.zeros_like(rows[0])
  return Moments(
    _mean(rows, is_finite), zeros[:, tf.newaxis] * zeros if dense else zeros
  )


def add(moments, rows, is_finite, weight):
  """Returns the moments after a step of weight `weight`, []."""
  # Without a finite chain nothing is learned.
  weight = tf.where(tf.reduce_any(is_finite), weight, 0.0)
  delta = tf.where(is_finite, rows - moments.mean, 0.0)
  shift = _mean(delta, is_finite)
  rest = tf.where(is_finite, delta - shift, 0.0)
  if moments.spread.shape.rank == 2:
    count = _count(is_finite, rows.dtype)
    spread = tf.matmul(rest, rest, transpose_a=True) / count
    square = shift[:, tf.newaxis] * shift
  else:
    spread, square = _mean(rest**2, is_finite), shift**2
  kept = (1.0 - weight) * (moments.spread + weight * square)
  return Moments(moments.mean + weight * shift, kept + weight * spread)


def _mean(rows, is_finite):
  """Returns the mean over the finite chains, 0 if there is none, [d]."""
  return tf.reduce_sum(rows, axis=0) / _count(is_finite, rows.dtype)


def _count(is_finite, dtype):
  return tf.maximum(tf.reduce_sum(tf.cast(is_finite, dtype)), 1.0)
