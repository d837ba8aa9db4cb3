"""Simulated likelihoods against the exact convolution of the skew normal."""

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import tensorflow as tf

from experiments.papers import measurements
from experiments.targets import simulator as simulators
from experiments.targets import skew_normal_abc

_ALPHA = np.array([10.0, 10.0])
_TOLERANCE = 0.5
_NUM_REPLICATES = 20000


def _exact_log_prob(states, observed, alpha, tolerance):
  """Returns log p(observed | states) with the tolerance's noise, [...]."""
  residual = observed - np.asarray(states, np.float64)
  variance = 1.0 + tolerance**2
  tail = np.sqrt(1.0 + np.sum(alpha**2) * tolerance**2 / variance)
  return (
    np.log(2.0)
    - 0.5 * np.sum(residual**2, axis=-1) / variance
    - 0.5 * len(alpha) * np.log(2 * np.pi * variance)
    + scipy.special.log_ndtr(residual @ alpha / variance / tail)
  )


@pytest.fixture(scope='module')
def target():
  return skew_normal_abc.skew_normal_abc_target(
    event_size=2, tolerance=_TOLERANCE, num_simulations=2
  )


def test_convolved_density_is_the_integral_in_one_dimension():
  alpha, observed, tolerance = np.array([3.0]), np.array([1.3]), 0.7

  def integrand(x, theta):
    model = 2 * scipy.stats.norm.pdf(x - theta)
    model *= scipy.stats.norm.cdf(3.0 * (x - theta))
    return model * scipy.stats.norm.pdf(observed[0], x, tolerance)

  for theta in (-0.5, 0.9, 2.5):
    expected, _ = scipy.integrate.quad(integrand, -10, 10, args=(theta,))
    actual = _exact_log_prob(np.array([theta]), observed, alpha, tolerance)
    np.testing.assert_allclose(np.exp(actual), expected, rtol=1e-7)


def test_kernel_estimate_is_unbiased_for_the_convolved_density(target):
  observed = target.simulator.observed
  states = np.tile(observed - [0.9, -0.2], [_NUM_REPLICATES, 1])
  values = target.target_log_prob_fn(states, seed=tf.constant([1, 2])).numpy()
  standard_error = np.exp(values).std() / np.sqrt(_NUM_REPLICATES)
  exact = _exact_log_prob(states[0], observed, _ALPHA, _TOLERANCE)
  assert abs(np.exp(values).mean() - np.exp(exact)) < 4 * standard_error
  # Controls: the model without the tolerance's noise, and without the skewness.
  for alpha, tolerance in ((_ALPHA, 0.0), (0 * _ALPHA, _TOLERANCE)):
    wrong = _exact_log_prob(states[0], observed, alpha, tolerance)
    assert abs(np.exp(values).mean() - np.exp(wrong)) > 10 * standard_error


def test_exact_draws_have_the_stated_moments_and_density(target):
  draws = target.exact_draws_fn(_NUM_REPLICATES, 3)
  error = np.sqrt(np.diag(target.covariance) / _NUM_REPLICATES)
  assert np.all(np.abs(draws.mean(0) - target.mean) < 4 * error)
  np.testing.assert_allclose(
    np.cov(draws.T), target.covariance, atol=5 * 1.5 / np.sqrt(_NUM_REPLICATES)
  )
  # E exp(log q - log p) = 1 for the density q of a Gaussian inside p's bulk.
  q = scipy.stats.multivariate_normal(target.mean, 0.3 * target.covariance)
  log_prob = _exact_log_prob(
    draws, target.simulator.observed, _ALPHA, _TOLERANCE
  )
  ratio = np.exp(q.logpdf(draws) - log_prob)
  standard_error = ratio.std() / np.sqrt(_NUM_REPLICATES)
  assert abs(ratio.mean() - 1) < 4 * standard_error


def test_exact_draws_are_near_and_shifted_draws_are_far(target):
  draws = target.exact_draws_fn(4000, 5)[:, None]
  near = measurements.first_coordinate(target, draws)
  assert abs(near['autocorrelation'][1]) < 5 / np.sqrt(4000)
  far = measurements.first_coordinate(target, draws + 0.3)
  assert near['ks_p'] > 1e-3 > 1e-9 > far['ks_p']


@pytest.mark.full
def test_one_seed_gives_one_value_and_chains_their_own(target):
  states = tf.constant(np.tile(target.suggested_start, [3, 1]))
  first = target.target_log_prob_fn(states, seed=tf.constant([1, 2]))
  other = target.target_log_prob_fn(states, seed=tf.constant([1, 3]))
  assert len(np.unique([first, other])) == 6
  compiled = tf.function(
    target.target_log_prob_fn, jit_compile=True, autograph=False
  )
  np.testing.assert_allclose(
    compiled(states, seed=tf.constant([1, 2])), first, rtol=1e-10
  )


def test_synthetic_likelihood_is_the_gaussian_of_the_simulated_data(target):
  rng = np.random.default_rng(4)
  noise = rng.normal(size=(30, 2, 3, 3))
  states = target.suggested_start + rng.normal(size=(2, 3, 2))
  actual = simulators.synthetic_log_likelihood(
    target.simulator, tf.constant(states), tf.constant(noise)
  )
  data = target.simulator.simulate_fn(tf.constant(states), noise).numpy()
  for index in np.ndindex(2, 3):
    sample = data[(slice(None), *index)]
    covariance = np.cov(sample.T) + _TOLERANCE**2 * np.eye(2)
    expected = scipy.stats.multivariate_normal.logpdf(
      target.simulator.observed, sample.mean(0), covariance
    )
    np.testing.assert_allclose(actual[index], expected, rtol=1e-9)
