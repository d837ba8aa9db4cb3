"""The estimate of the evidence against quadrature; its parts by themselves."""

import numpy as np
import pytest
import tensorflow as tf

from experiments.data import datasets
from experiments.targets import gp_pseudo_marginal
from experiments.targets.base import BuildContext

_JITTER = 1e-6
_NUM_REPLICATES = 4000


@pytest.fixture(scope='module')
def small():
  """Three points in two dimensions: (inputs, labels, theta, K)."""
  inputs = np.array([[0.0, 0.0], [0.5, -0.2], [1.0, 2.0]])
  labels = np.array([1.0, 0.0, 1.0])
  theta = np.array([-0.3, 0.8])
  gaps = inputs[:, None] - inputs
  covariance = np.exp(-0.5 * (gaps**2 / np.exp(theta)).sum(-1))
  covariance += _JITTER * np.eye(3)
  return inputs, labels, theta, covariance


@pytest.fixture(scope='module')
def target(small):
  # Two draws: the noisier the estimate, the more a bias shows.
  return gp_pseudo_marginal.gp_pseudo_marginal_target(
    'x', small[0], small[1], num_draws=2, jitter=_JITTER
  )


def _evidence(covariance, labels, num_nodes=40):
  """Gauss-Hermite quadrature over all coordinates of f = L v."""
  nodes, weights = np.polynomial.hermite_e.hermegauss(num_nodes)
  grid = np.stack(np.meshgrid(nodes, nodes, nodes, indexing='ij'), -1)
  weight = np.einsum('i,j,k->ijk', weights, weights, weights)
  field = grid @ np.linalg.cholesky(covariance).T
  signs = 2 * labels - 1
  likelihood = np.prod(1 / (1 + np.exp(-signs * field)), axis=-1)
  return np.sum(weight * likelihood) / (2 * np.pi) ** 1.5


def test_covariance_is_the_formula(small):
  inputs, _, theta, expected = small
  actual = gp_pseudo_marginal.covariance_matrices(
    inputs, tf.constant([theta, theta + 1]), _JITTER
  )
  np.testing.assert_allclose(actual[0], expected, rtol=1e-12)
  assert np.abs(actual[1] - expected).max() > 0.1


def test_estimate_is_unbiased_and_the_laplace_evidence_is_not(small, target):
  _, labels, theta, covariance = small
  exact = _evidence(covariance, labels) * np.exp(-0.1 * np.sum(theta**2))
  states = tf.constant(np.tile(theta, [_NUM_REPLICATES, 1]))
  values = target.target_log_prob_fn(states, seed=tf.constant([1, 2])).numpy()
  ratios = np.exp(values) / exact
  standard_error = ratios.std() / np.sqrt(_NUM_REPLICATES)
  assert abs(ratios.mean() - 1) < 4 * standard_error
  # Control: with no noise at all, the estimate is Laplace's approximation.
  laplace = gp_pseudo_marginal.log_marginal_likelihood(
    tf.constant(covariance), labels, tf.zeros([3, 1], tf.float64)
  )
  laplace = np.exp(laplace) / _evidence(covariance, labels)
  assert abs(laplace - 1) > 5 * standard_error


def test_no_newton_step_leaves_the_estimate_unbiased(small):
  """The fit may be anything; only its own density must be the divisor."""
  _, labels, _, covariance = small
  noise = np.random.default_rng(0).normal(size=(_NUM_REPLICATES, 3, 1))
  batch = tf.constant(np.tile(covariance, [_NUM_REPLICATES, 1, 1]))
  values = gp_pseudo_marginal.log_marginal_likelihood(
    batch, labels, tf.constant(noise), num_newton_steps=0
  )
  ratios = np.exp(values) / _evidence(covariance, labels)
  standard_error = ratios.std() / np.sqrt(_NUM_REPLICATES)
  assert abs(ratios.mean() - 1) < 4 * standard_error
  # Control: draws ten per cent wider than their stated density.
  wide = gp_pseudo_marginal.log_marginal_likelihood(
    batch, labels, tf.constant(1.1 * noise), num_newton_steps=0
  )
  wide = np.exp(wide) / _evidence(covariance, labels)
  assert abs(wide.mean() - 1) > 5 * wide.std() / np.sqrt(_NUM_REPLICATES)
  fitted = gp_pseudo_marginal.log_marginal_likelihood(
    batch, labels, tf.constant(noise)
  )
  assert np.std(fitted) < 0.5 * np.std(values)


def test_gradient_of_the_posterior_vanishes_at_the_fitted_mode():
  rng = np.random.default_rng(1)
  inputs = tf.constant(rng.normal(size=(25, 2)))
  labels = rng.integers(0, 2, size=25).astype(np.float64)
  covariance = gp_pseudo_marginal.covariance_matrices(
    inputs, tf.constant([0.0, -1.0], tf.float64), 1e-2
  )
  weights, curvature = gp_pseudo_marginal.laplace_fit(covariance, labels, 5)
  field = covariance.numpy() @ weights.numpy()
  probability = 1 / (1 + np.exp(-field))
  gradient = labels - probability - np.linalg.solve(covariance, field)
  np.testing.assert_allclose(gradient, 0, atol=1e-9)
  np.testing.assert_allclose(curvature, probability * (1 - probability))


def test_glass_is_a_nine_dimensional_target_of_float32_states(tmp_path):
  rows = np.random.default_rng(2).normal(size=(214, 9))
  np.savez(tmp_path / 'glass.npz', X=rows @ rows[:9], y=rows[:, 0] > 0)
  entry = gp_pseudo_marginal.GpPseudoMarginal(
    name='gp_pseudo_marginal', num_draws=4
  )
  built = entry.build(BuildContext('float32', str(tmp_path)))
  assert (built.event_size, built.is_stochastic) == (9, True)
  states = tf.zeros([2, 9])
  values = built.target_log_prob_fn(states, seed=tf.constant([0, 1]))
  assert values.dtype == tf.float32
  assert np.all(np.isfinite(values))
  draws = built.sample_prior(20000, 0)
  # Variance 5, within five standard errors of a Gaussian's.
  error = 5 * 5 * np.sqrt(2 / draws.size)
  assert abs(draws.var() - 5) < error
  white = np.cov(datasets.whitened(rows @ rows[:9]), rowvar=False)
  np.testing.assert_allclose(white, np.eye(9), atol=1e-8)
