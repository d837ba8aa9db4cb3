"""The momentum scale against dense algebra, structure by structure."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.surrogate import momentum_scale
from tfp_adaptive.surrogate import weighted_points

_SIZE, _NUM_POINTS = 5, 400


@functools.cache
def _draws(scale=1.0):
  """Returns correlated draws [n, d], uneven weights and scores there."""
  rng = np.random.default_rng(0)
  factor = scale * targets.correlated_factor(_SIZE, 30.0)
  points = 3.0 + rng.normal(size=(_NUM_POINTS, _SIZE)) @ factor.T
  weights = rng.uniform(0.5, 1.5, size=_NUM_POINTS)
  weights[: _NUM_POINTS // 4] = 0.0
  spread = np.array([5.0, 1.0, 2.0, 0.5, 0.2]) / scale
  scores = spread * rng.normal(size=(_NUM_POINTS, _SIZE))
  return points, weights / weights.sum(), scores


def _precision(points, weights, scores):
  """Returns M = (Cov^-1 + E[score score^T]) / 2 by numpy, [d, d]."""
  covariance = np.cov(points.T, aweights=weights, ddof=0)
  count = 1.0 / np.sum(weights**2)
  floor = 1e-3 * np.trace(covariance) / _SIZE
  covariance = (count * covariance + 5.0 * floor * np.eye(_SIZE)) / (
    count + 5.0
  )
  return 0.5 * (np.linalg.inv(covariance) + (weights * scores.T) @ scores)


@functools.cache
def _fit(name, scale=1.0, first_scale=1.0):
  part = getattr(tfpa.preconditioners, name)(init_scale=first_scale)
  params = part.init(_SIZE, tf.float64, tf.constant(first_scale, tf.float64))
  draws = [tf.constant(array) for array in _draws(scale)]
  fitted = momentum_scale.fit(part, params, *draws)
  return part, fitted


@pytest.mark.full
@pytest.mark.parametrize('first_scale', [1e-4, 1.0, 1e6])
@pytest.mark.parametrize('scale', [1e-3, 1.0, 1e3])
def test_a_dense_scale_is_the_inverse_root_of_the_sharpness(scale, first_scale):
  part, fitted = _fit('cholesky', scale, first_scale)
  factor = part.operator(fitted).to_dense().numpy()
  precision = _precision(*_draws(scale))
  np.testing.assert_allclose(
    factor.T @ precision @ factor, np.eye(_SIZE), atol=1e-9
  )
  assert np.linalg.cond(precision) > 10.0  # Else a multiple of I would do.


@pytest.mark.parametrize('first_scale', [1e-4, 1.0, 1e6])
def test_a_diagonal_scale_is_that_of_the_diagonal(first_scale):
  part, fitted = _fit('diagonal', 1.0, first_scale)
  np.testing.assert_allclose(
    part.operator(fitted).to_dense(),
    np.diag(np.diag(_precision(*_draws())) ** -0.5),
    rtol=1e-9,
  )


@pytest.mark.full
@pytest.mark.parametrize('name', ['cholesky', 'diagonal', 'tridiagonal'])
def test_a_scale_is_nearest_within_its_structure(name):
  # log |det C| - tr(C^T M C) / 2 is largest there: -KL to N(0, M^-1).
  part, fitted = _fit(name)
  precision = tf.constant(_precision(*_draws()))

  def closeness(params):
    factor = part.operator(params).to_dense()
    trace = tf.reduce_sum(factor * tf.matmul(precision, factor))
    return tf.linalg.slogdet(factor)[1] - 0.5 * trace

  for params, is_best in ((fitted, True), (_moved(fitted), False)):
    with tf.GradientTape() as tape:
      tape.watch(params)
      value = closeness(params)
    largest = max(
      np.max(np.abs(g * p))
      for g, p in zip(
        tf.nest.flatten(tape.gradient(value, params)), tf.nest.flatten(params)
      )
    )
    assert (largest < 1e-7) == is_best, largest


def _moved(params):
  return tf.nest.map_structure(lambda p: 1.01 * p, params)


def test_a_fit_that_is_not_finite_keeps_all_entries():
  points, weights, scores = _draws()
  scores = scores.copy()
  scores[-1, 0] = np.nan
  for name in ('cholesky', 'tridiagonal'):
    part, params = _fit(name)
    kept = momentum_scale.fit(
      part, params, *[tf.constant(array) for array in (points, weights, scores)]
    )
    tf.nest.map_structure(np.testing.assert_array_equal, kept, params)


# Moments of weighted points against numpy.


def test_moments_are_those_of_the_weights_and_shrink():
  rng = np.random.default_rng(0)
  points = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3))
  weights = rng.uniform(size=500)
  weights /= weights.sum()
  mean, covariance = weighted_points.moments(
    tf.constant(points), tf.constant(weights)
  )
  np.testing.assert_allclose(mean, weights @ points, rtol=1e-12)
  sample = np.cov(points.T, aweights=weights, ddof=0)
  count = 1.0 / np.sum(weights**2)
  floor = 1e-3 * np.trace(sample) / 3.0
  expected = (count * sample + 5.0 * floor * np.eye(3)) / (count + 5.0)
  np.testing.assert_allclose(covariance, expected, rtol=1e-9)
  # Few draws: still positive definite.
  _, few = weighted_points.moments(
    tf.constant(points[:2]), tf.constant([0.5, 0.5], tf.float64)
  )
  assert np.min(np.linalg.eigvalsh(few)) > 0.0


def test_sharpness_of_a_gaussian_is_its_precision():
  rng = np.random.default_rng(0)
  covariance = np.array([[4.0, 1.0], [1.0, 0.5]])
  precision = np.linalg.inv(covariance)
  points = rng.multivariate_normal(np.zeros(2), covariance, size=20000)
  weights = np.full(20000, 1 / 20000)
  sharpness = weighted_points.sharpness(
    tf.constant(covariance), tf.constant(-points @ precision), weights
  )
  # Entries of E[score score^T] have standard errors of about 1 / sqrt(n).
  np.testing.assert_allclose(sharpness, precision, rtol=4.0 * 20000**-0.5)
