"""Draws and a bandwidth, which kernel adaptive Metropolis-Hastings learns.

The log density of the draws z_1, ..., z_n under a Gaussian kernel is

  f(x) = log( sum_i w_i k(x, z_i) + c ),   k(x, y) = exp(-|x - y|^2 / sigma)

sigma is twice the median of |z_i - z_j|^2. The floor c makes the score fade to
zero far from all draws. A fit is cheap, because it solves no system. The score
is poor in more than a few dimensions.

Source: Sejdinovic et al. (2014), Kernel adaptive Metropolis-Hastings, section
3, https://arxiv.org/abs/1307.5302.
"""

import collections

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import random
from tfp_adaptive.core.tfp_private import prefer_static as ps

_FLOOR = 1e-3  # c, the density at 1.9 times the median distance.
_PAIRS_PER_DRAW = 8  # Random pairs for the median distance.


class KernelSubsampleParams(
  collections.namedtuple(
    'KernelSubsampleParams', ['points', 'weights', 'bandwidth']
  )
):
  """Params of `kernel_subsample`.

  Attributes:
    points: Draws z, [n, d].
    weights: w, [n], sum 1; 0 for rows without a draw, all 0 at the start.
    bandwidth: sigma, in squared units of the state, [].
  """

  __slots__ = ()


def kernel_subsample(num_points=1000):
  """Returns the surrogate that keeps draws, for `UncalibratedKernelAdaptive`.

  Args:
    num_points: Draws to keep, n. A kernel needs a distance, so write at least
      2. A step of the proposal costs O(n d^2) per chain.

  Returns:
    An `interfaces.Surrogate` whose params are a `KernelSubsampleParams`.

  Raises:
    ValueError: If `num_points` is not allowed.
  """
  arguments.check_count(num_points, 'num_points', 1000)
  return interfaces.Surrogate(
    name='kernel_subsample',
    num_points=num_points,
    init=lambda event_size, dtype, seed: _init(num_points, event_size, dtype),
    fit=_fit,
    log_prob=_log_prob,
    score=_score,
    is_inside=_is_inside,
  )


def _init(num_points, event_size, dtype):
  return KernelSubsampleParams(
    points=tf.zeros([num_points, event_size], dtype),
    weights=tf.zeros([num_points], dtype),
    bandwidth=tf.ones([], dtype),
  )


def _fit(params, points, weights, seed):
  """Keeps the draws; the bandwidth does not change if all draws are equal."""
  median = _median_square_distance(points, weights, seed)
  return KernelSubsampleParams(
    points=points,
    weights=weights,
    bandwidth=tf.where(median > 0.0, 2.0 * median, params.bandwidth),
  )


def _median_square_distance(points, weights, seed):
  """Returns the weighted median of |z_i - z_j|^2 over random pairs, [].

  Pairs of equal draws, which a rejected move leaves behind, do not count.
  """
  num_points = points.shape[0]
  order = tf.argsort(random.uniform([num_points], points.dtype, seed))
  points, weights = tf.gather(points, order), tf.gather(weights, order)
  shifts = range(1, min(_PAIRS_PER_DRAW, num_points // 2) + 1)
  squares = tf.concat(
    [
      tf.reduce_sum((points - tf.roll(points, shift, axis=0)) ** 2, axis=-1)
      for shift in shifts
    ],
    axis=0,
  )
  pair_weights = tf.concat(
    [weights * tf.roll(weights, shift, axis=0) for shift in shifts], axis=0
  )
  pair_weights = tf.where(squares > 0.0, pair_weights, 0.0)
  order = tf.argsort(squares)
  below = tf.cumsum(tf.gather(pair_weights, order))
  is_below = 2.0 * below < tf.reduce_sum(pair_weights)
  rank = tf.reduce_sum(tf.cast(is_below, tf.int32))
  return tf.gather(squares, order)[tf.minimum(rank, ps.size(squares) - 1)]


def _log_prob(params, x):
  """Returns f(x), [chains...]."""
  return tf.math.log(tf.reduce_sum(_kernels(params, x)[0], axis=-1) + _FLOOR)


def _score(params, x):
  """Returns the gradient of f at x, [chains..., d].

  The gradient is sum_i r_i u_i. r_i is the share of term i in exp(f), and
  u_i = -2 (x - z_i) / sigma is the gradient of log k(x, z_i).
  """
  kernels, offsets = _kernels(params, x)
  total = tf.reduce_sum(kernels, axis=-1, keepdims=True) + _FLOOR
  slopes = -2.0 / params.bandwidth * offsets
  return tf.linalg.matvec(slopes, kernels / total, transpose_a=True)


def _is_inside(params, x):
  """Returns whether a draw is nearer than the typical distance of draws."""
  _, offsets = _kernels(params, x)
  squares = tf.reduce_sum(offsets**2, axis=-1)
  is_near = (2.0 * squares < params.bandwidth) & (params.weights > 0.0)
  return tf.reduce_any(is_near, axis=-1)


def _kernels(params, x):
  """Returns w_i k(x, z_i), [chains..., n], and x - z_i, [chains..., n, d]."""
  offsets = x[..., tf.newaxis, :] - params.points
  squares = tf.reduce_sum(offsets**2, axis=-1)
  return params.weights * tf.exp(-squares / params.bandwidth), offsets
