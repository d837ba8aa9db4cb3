"""Targets of any size are what they say; the study measures its rows."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.studies import large_targets
from experiments.studies import many_chains
from experiments.targets.gaussians import gaussian_target


def _dense(coupling, size):
  """Returns the covariance of a path, [d, d]."""
  gaps = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
  scales = large_targets._scales(size)
  return scales[:, np.newaxis] * coupling**gaps * scales


@pytest.mark.parametrize('coupling', [0.0, 0.9])
def test_a_path_has_the_density_and_the_draws_of_its_covariance(coupling):
  case = large_targets.path('', 'diagonal', coupling, 6, 1)
  covariance = _dense(coupling, 6)
  draws = case.draw(50_000, 0)
  expected = -0.5 * np.sum(draws.T * np.linalg.solve(covariance, draws.T), 0)
  found = case.target_log_prob_fn(tf.constant(draws))
  np.testing.assert_allclose(found, expected, rtol=1e-9)
  spread = np.sqrt(np.diag(covariance))
  correlations = np.cov(draws.T) / spread / spread[:, np.newaxis]
  wanted = covariance / spread / spread[:, np.newaxis]
  # Standard error of a covariance of n draws: at most sqrt(2 / n).
  np.testing.assert_allclose(correlations, wanted, atol=5 * (2 / 50_000) ** 0.5)


def test_scales_are_read_off_a_factor_up_to_one_that_all_share():
  case = large_targets.path(
    'gradient_adaptive_langevin', 'tridiagonal', 0.9, 7, 1
  )
  kernel = tfpa.gradient_adaptive_langevin(
    case.target_log_prob_fn, 1, **case.options
  )
  results = kernel.bootstrap_results(tf.constant(case.draw(2, 0), tf.float32))
  # B is upper bidiagonal, B^T B the precision of the path.
  bidiagonal = np.linalg.cholesky(np.linalg.inv(_dense(0.9, 7))).T
  for factor, error in ((3.0, 1e-5), (np.array([1.0] * 6 + [1.5]), 0.2)):
    scaled = bidiagonal * factor
    params = [np.diag(scaled), np.diag(scaled, 1)]
    changed = large_targets.tfp_private.replace_innermost(
      results,
      preconditioner_params=tuple(tf.constant(p, tf.float32) for p in params),
    )
    found = many_chains._errors(case.log_scales(kernel, changed))
    # The negative control: one that is off is seen.
    assert (found['largest_scale_error'] < 1e-4) == (error < 0.1)


def test_rounding_of_a_log_density_is_that_of_float32():
  case = large_targets.path('', 'diagonal', 0.0, 1000, 1)
  # Half of 1000 squares: numbers near 500 are 3e-5 apart.
  assert 1e-6 < case.log_prob_error() < 1e-3


def test_a_wrong_factor_is_worth_less_than_the_exact_one():
  covariance = np.diag([1.0, 100.0])
  target = gaussian_target('two', covariance, 'float32')
  kernel = tfpa.gradient_adaptive_random_walk(
    target.target_log_prob_fn, 0, tfpa.preconditioners.cholesky(init_scale=1.0)
  )
  exact = tf.constant(target.exact_draws_fn(500, 0), tf.float32)
  frozen = tfpa.frozen(kernel, kernel.bootstrap_results(exact))
  method = many_chains.Method('', 0, 100)
  found = many_chains.efficiency(frozen, exact, covariance, method)
  assert found['condition_left'] == pytest.approx(100.0, rel=1e-3)
  assert found['min_ratio'] < 0.5
  assert abs(found['frozen_accept'] - found['oracle_accept']) < 0.05


@pytest.mark.nightly
def test_the_study_measures_its_rows():
  for function, values in many_chains._jobs(smoke=True):
    row = function(*values)
    assert row['frozen'] > 0.0 and row['adapting'] > 0.0
    if row['kind'] == 'chains':
      assert 0.5 < row['min_ratio'] < 1.5
    else:
      assert row['median_scale_error'] < 0.1
