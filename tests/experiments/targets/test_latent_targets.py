"""Latent Gaussian targets against numpy: likelihood, prior, exact posterior."""

import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf

from experiments.data import datasets
from experiments.targets import gp_classification
from experiments.targets import gp_regression
from experiments.targets import latent
from experiments.targets import log_gaussian_cox
from experiments.targets import multi_class_gp

RNG = np.random.default_rng(0)


def _covariance(size, length=3.0):
  points = np.arange(size)
  return 1.5 * np.exp(-np.abs(points[:, None] - points) / length)


def _check_likelihood(target, states, expected):
  """Compares f, for a batch and for one state, up to a constant."""
  actual = target.latent.log_likelihood_fn(tf.constant(states)).numpy()
  np.testing.assert_allclose(
    actual - actual[0], expected - expected[0], rtol=1e-9, atol=1e-9
  )
  single = target.latent.log_likelihood_fn(tf.constant(states[1])).numpy()
  np.testing.assert_allclose(single, actual[1], rtol=1e-12)


def test_regression_likelihood_and_posterior_are_the_dense_formulas():
  covariance, size = _covariance(5), 5
  observed = RNG.normal(size=size)
  target = gp_regression.gp_regression_target(
    covariance, observed, 0.3, 'float64'
  )
  x = RNG.normal(size=(4, size))
  expected = scipy.stats.norm.logpdf(observed, x, np.sqrt(0.3)).sum(-1)
  _check_likelihood(target, x, expected)
  precision = np.linalg.inv(covariance) + np.eye(size) / 0.3
  posterior = np.linalg.inv(precision)
  np.testing.assert_allclose(target.covariance, posterior, rtol=1e-9)
  np.testing.assert_allclose(target.mean, posterior @ observed / 0.3)
  known = target.ground_truth['field']
  np.testing.assert_allclose(known[1] ** 2, np.diag(posterior))


def test_joint_density_is_likelihood_times_prior():
  covariance = _covariance(4)
  target = gp_regression.gp_regression_target(
    covariance, np.ones(4), 0.5, 'float64'
  )
  x = RNG.normal(size=(3, 4))
  expected = scipy.stats.multivariate_normal.logpdf(x, cov=covariance)
  expected += scipy.stats.norm.logpdf(1.0, x, np.sqrt(0.5)).sum(-1)
  actual = target.target_log_prob_fn(tf.constant(x)).numpy()
  np.testing.assert_allclose(actual - actual[0], expected - expected[0])


def test_a_singular_prior_has_no_density_of_the_field():
  covariance = np.ones([3, 3])
  target = gp_regression.gp_regression_target(covariance, np.ones(3), 0.5)
  assert target.target_log_prob_fn is None
  assert target.latent is not None


def test_regression_data_are_the_papers_grid_and_come_from_the_seed():
  inputs, observed = gp_regression.simulate(1001, 0.01, 0)
  np.testing.assert_allclose(np.diff(inputs), 0.004)
  signal = np.sin(2 * np.pi * inputs) + np.cos(2.5 * np.pi * inputs)
  # Five standard errors of a variance.
  error = 5 * np.sqrt(2 / 1001) * 0.01
  assert abs(np.var(observed - signal) - 0.01) < error
  again, other = (gp_regression.simulate(1001, 0.01, s)[1] for s in (0, 1))
  assert np.all(observed == again) and np.any(observed != other)


def test_squared_exponential_is_the_formula_and_half_mean_square_the_size():
  inputs = datasets.standardized(RNG.normal(3, 2, size=(30, 4)))
  covariance = latent.squared_exponential(inputs, 5.0, 7.0)
  gap = inputs[3] - inputs[11]
  np.testing.assert_allclose(covariance[3, 11], 5 * np.exp(-gap @ gap / 14))
  np.testing.assert_array_equal(np.diag(covariance), 5.0)
  np.testing.assert_allclose(latent.half_mean_square(inputs), 4.0)


def test_classification_likelihood_is_that_of_bernoulli_labels():
  labels = RNG.integers(0, 2, size=6)
  target = gp_classification.gp_classification_target(
    'x', _covariance(6), labels, 'float64'
  )
  x = 3 * RNG.normal(size=(4, 6))
  probability = scipy.special.expit(x)
  expected = scipy.stats.bernoulli.logpmf(labels, probability).sum(-1)
  _check_likelihood(target, x, expected)


@pytest.mark.parametrize('distance', ['cells', 'unit_square'])
def test_cox_covariance_has_the_papers_lengths(distance):
  covariance = log_gaussian_cox.cell_covariance(4, distance)
  # Cells 1 and 12 of four by four: 3 rows and 1 column apart.
  gap = np.sqrt(10.0)
  scaled = gap / (4 / 33) if distance == 'cells' else gap / 3 / (64 / 33)
  np.testing.assert_allclose(covariance[1, 12], 1.91 * np.exp(-scaled))


def test_cox_likelihood_is_that_of_poisson_counts():
  counts = log_gaussian_cox.simulate_counts(3, 'cells', 1)
  prior = latent.spectral_prior(
    log_gaussian_cox.cell_covariance(3, 'cells'), 'float64'
  )
  target = log_gaussian_cox.log_gaussian_cox_target(counts, prior, 'float64')
  x = RNG.normal(size=(4, 9))
  rate = np.exp(x + np.log(126) - 1.91 / 2) / 9
  expected = scipy.stats.poisson.logpmf(counts.ravel(), rate).sum(-1)
  _check_likelihood(target, x, expected)


def test_cox_counts_are_as_many_as_expected_and_come_from_the_seed():
  # The mean of exp(x + mu) is 126 over the square, whatever the grid.
  totals = [
    log_gaussian_cox.simulate_counts(8, 'cells', seed).sum()
    for seed in range(200)
  ]
  error = np.std(totals) / np.sqrt(200)
  assert abs(np.mean(totals) - 126) < 5 * error
  assert error < 10
  again = log_gaussian_cox.simulate_counts(8, 'cells', 3).sum()
  assert again == totals[3]


def test_merged_cells_keep_every_point():
  counts = np.arange(16).reshape(4, 4)
  merged = log_gaussian_cox.merge(counts, 2)
  np.testing.assert_array_equal(merged, [[10, 18], [42, 50]])
  with pytest.raises(ValueError, match='num_cells_per_side: 3 does not divide'):
    log_gaussian_cox.merge(counts, 3)


def test_cox_prior_by_fft_sees_the_same_grid():
  counts = log_gaussian_cox.simulate_counts(4, 'cells', 0)
  by_fft = log_gaussian_cox.stationary_prior(4, 'cells', 'float64')
  target = log_gaussian_cox.log_gaussian_cox_target(counts, by_fft, 'float64')
  dense = log_gaussian_cox.log_gaussian_cox_target(
    counts,
    latent.spectral_prior(
      log_gaussian_cox.cell_covariance(4, 'cells'), 'float64'
    ),
    'float64',
  )
  torus = target.sample_prior(3, 0)
  grid = torus if target.view is None else target.view(torus)
  assert grid.shape == (3, 16)
  np.testing.assert_allclose(
    target.latent.log_likelihood_fn(tf.constant(torus)),
    dense.latent.log_likelihood_fn(tf.constant(grid)),
  )


def test_multi_class_likelihood_is_the_softmax():
  labels = np.array([3, 0, 9])
  target = multi_class_gp.multi_class_gp_target(
    _covariance(3), labels, 'float64'
  )
  assert target.event_size == 30
  x = RNG.normal(size=(4, 30))
  fields = x.reshape(4, 10, 3)
  expected = scipy.special.log_softmax(fields, axis=1)
  expected = sum(expected[:, k, i] for i, k in enumerate(labels))
  _check_likelihood(target, x, expected)
  draws = target.sample_prior(2000, 0).reshape(2000, 10, 3)
  # Fields of two classes are independent: five standard errors.
  assert abs(np.mean(draws[:, 0, 0] * draws[:, 1, 0])) < 5 * 1.5 / 2000**0.5
  assert np.mean(draws[:, 0, 0] * draws[:, 0, 1]) > 0.5
