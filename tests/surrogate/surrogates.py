"""Surrogates that cost nothing to fit, for tests of what is around them."""

import collections

import numpy as np
import tensorflow as tf

from tfp_adaptive import interfaces

_FARTHEST = 20.0  # Squared distance of what counts as inside.


def known(score, num_points=8):
  """Returns a surrogate that knows its score from the start: `score(x)`."""
  return interfaces.Surrogate(
    name='known',
    num_points=num_points,
    init=lambda event_size, dtype, seed: (),
    fit=lambda params, points, weights, seed: params,
    log_prob=lambda params, x: tf.zeros_like(x[..., 0]),
    score=lambda params, x: score(x),
    is_inside=lambda params, x: tf.ones_like(x[..., 0], tf.bool),
  )


def bent_score(x):
  """A score of no density that couples all coordinates, [..., d]."""
  return tf.sin(tf.roll(x, 1, axis=-1)) - x - 0.2 * x**3


class GaussianParams(
  collections.namedtuple(
    'GaussianParams', ['mean', 'precision', 'num_fits', 'num_updates']
  )
):
  """Mean [d], precision [d, d]; how often it was fitted and updated, []."""

  __slots__ = ()


def gaussian(num_points=64, online=False):
  """Returns the surrogate of the Gaussian with the moments of the draws."""
  return interfaces.Surrogate(
    name='gaussian',
    num_points=num_points,
    init=_init,
    fit=_fit,
    log_prob=lambda params, x: -0.5 * _squared_distance(params, x),
    score=_score,
    is_inside=lambda params, x: _squared_distance(params, x) < _FARTHEST,
    update=_count_update if online else None,
  )


def failing(num_good_fits, num_points=64):
  """Returns the Gaussian surrogate whose fits are NaN after the first ones."""
  good = gaussian(num_points)

  def fit(params, points, weights, seed):
    fitted = good.fit(params, points, weights, seed)
    fails = params.num_fits >= num_good_fits
    entry = fitted.precision[0, 0]
    entry = tf.where(fails, tf.constant(np.nan, entry.dtype), entry)
    return fitted._replace(
      precision=tf.tensor_scatter_nd_update(fitted.precision, [[0, 0]], [entry])
    )

  return good._replace(fit=fit)


def misleading():
  """Returns a surrogate that pushes away from what it has seen."""
  good = gaussian()

  def fit(params, points, weights, seed):
    fitted = good.fit(params, points, weights, seed)
    return fitted._replace(precision=-fitted.precision)

  return good._replace(fit=fit)


def starting_with(surrogate, params):
  """Returns a surrogate that knows from the start what is in `params`."""
  return surrogate._replace(init=lambda event_size, dtype, seed: params)


def _init(event_size, dtype, seed):
  del seed
  return GaussianParams(
    tf.zeros([event_size], dtype),
    tf.zeros([event_size, event_size], dtype),
    tf.zeros([], tf.int32),
    tf.zeros([], tf.int32),
  )


def _fit(params, points, weights, seed):
  del seed
  mean = tf.linalg.matvec(points, weights, transpose_a=True)
  centered = points - mean
  covariance = tf.matmul(
    centered, weights[:, tf.newaxis] * centered, transpose_a=True
  )
  size = points.shape[-1]
  identity = tf.eye(size, dtype=points.dtype)
  factor = tf.linalg.cholesky(covariance + 1e-6 * identity)
  return params._replace(
    mean=mean,
    precision=tf.linalg.cholesky_solve(factor, identity),
    num_fits=params.num_fits + 1,
  )


def _count_update(params, rows):
  del rows
  return params._replace(num_updates=params.num_updates + 1)


def _score(params, x):
  flat = tf.reshape(x - params.mean, [-1, x.shape[-1]])
  return tf.reshape(-tf.matmul(flat, params.precision), tf.shape(x))


def _squared_distance(params, x):
  return -tf.reduce_sum(_score(params, x) * (x - params.mean), axis=-1)
