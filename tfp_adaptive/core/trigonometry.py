"""Cosine and sine as products and sums.

XLA on CPU computes tf.cos and tf.sin one number at a time, ten times slower.
"""

import math

import tensorflow as tf


def cos_and_sin(angle):
  """Returns cos and sin of `angle`, radians."""
  turns = angle * (0.5 / math.pi) + 0.125
  return rotated_cos_and_sin(turns - tf.floor(turns))


def rotated_cos_and_sin(turns):
  """Returns cos and sin of 2 pi (turns - 1 / 8), `turns` in [0, 1]."""
  quadrant = tf.minimum(tf.floor(4.0 * turns), 3.0)
  angle = (4.0 * turns - quadrant - 0.5) * (0.5 * math.pi)  # |angle| <= pi / 4.
  num_terms = 9 if turns.dtype == tf.float64 else 5
  cos = _alternating_series(angle**2, 0, num_terms)
  sin = angle * _alternating_series(angle**2, 1, num_terms)
  is_odd = tf.equal(quadrant, 1.0) | tf.equal(quadrant, 3.0)
  is_left = tf.equal(quadrant, 1.0) | tf.equal(quadrant, 2.0)
  turned_cos = tf.where(is_odd, sin, cos)
  turned_sin = tf.where(is_odd, cos, sin)
  return (
    tf.where(is_left, -turned_cos, turned_cos),
    tf.where(quadrant >= 2.0, -turned_sin, turned_sin),
  )


def _alternating_series(square, first, num_terms):
  """Returns sum_k (-1)^k x^(2k) / (2k + first)!, x^2 = square, by Horner."""
  total = tf.zeros_like(square)
  for k in reversed(range(num_terms)):
    total = total * square + (-1.0) ** k / math.factorial(2 * k + first)
  return total
