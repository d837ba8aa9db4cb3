"""Moments of weighted points against numpy."""

import numpy as np
import tensorflow as tf

from tfp_adaptive.surrogate import weighted_points


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
