"""The second-order proposal: acceptance ratios against dense densities."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.linalg import banded_scan

_D = 6
_DELTA = 0.7
_MEAN = np.linspace(-1.0, 1.0, _D)
_EYE = np.eye(_D)
_NOISE = 0.3
_DATA = np.linspace(2.0, -2.0, _D)


def _prior(coefficients=(0.6, 0.2)):
  return tfpa.gaussian_priors.autoregression(
    np.array(coefficients), 0.8, _D, mean=_MEAN
  )


def _precision():
  prior = _prior()
  solve = prior.covariance(prior.params).solve
  return solve(tf.constant(_EYE)).numpy()


def _log_likelihood(x):
  # Convex where the sine bends up: curvature is clipped there.
  return tf.reduce_sum(tf.sin(2.0 * x) - 0.05 * x**4, axis=-1)


def _gradient(x):
  return 2.0 * np.cos(2.0 * x) - 0.2 * x**3


def _curvature(x):
  return -4.0 * np.sin(2.0 * x) - 0.6 * x**2


def _gaussian(x):
  return tf.reduce_sum(-0.5 * (x - _DATA) ** 2 / _NOISE, axis=-1)


def _log_normal(x, mean, covariance):
  miss = x - mean
  _, log_det = np.linalg.slogdet(2.0 * np.pi * covariance)
  return -0.5 * (miss @ np.linalg.solve(covariance, miss) + log_det)


def _moments(x):
  """Mean and covariance at s = x - mean, from the formulas with inverses."""
  hessian = np.diag(np.minimum(_curvature(x), 0.0))
  a = np.linalg.inv(_precision() + 2.0 / _DELTA * _EYE - hessian)
  s = x - _MEAN
  pulled = s + 0.5 * _DELTA * (_gradient(x) - hessian @ s)
  return 2.0 / _DELTA * a @ pulled, a + 2.0 / _DELTA * a @ a


def _states(num=5, seed=1):
  return np.random.default_rng(seed).normal(size=(num, _D))


def _step(kernel, states, seed=(3, 4), jit_compile=True):
  @tf.function(jit_compile=jit_compile, autograph=False)
  def step(states):
    results = kernel.bootstrap_results(states)
    return kernel.one_step(states, results, seed=seed)

  return step(tf.constant(states))


def _proposal(function=_log_likelihood):
  return tfpa.proposals.UncalibratedSecondOrderGradient(
    function, _prior(), delta=_DELTA
  )


@pytest.mark.full
def test_correction_is_that_of_the_dense_proposal_density():
  states = _states()
  assert np.any(_curvature(states) > 0.0) and np.any(_curvature(states) < 0.0)
  proposed, results = _step(_proposal(), states)
  prior_covariance = np.linalg.inv(_precision())
  for x, y, correction in zip(
    states, proposed.numpy(), results.log_acceptance_correction.numpy()
  ):
    forward = _log_normal(y - _MEAN, *_moments(x))
    backward = _log_normal(x - _MEAN, *_moments(y))
    change = _log_normal(y, _MEAN, prior_covariance)
    change -= _log_normal(x, _MEAN, prior_covariance)
    assert correction == pytest.approx(change + backward - forward, abs=1e-10)


@pytest.mark.full
def test_proposals_have_the_mean_and_covariance_of_the_formula():
  num_draws = 40000
  x = _states(1)[0]
  proposed, _ = _step(_proposal(), np.tile(x, (num_draws, 1)))
  mean, covariance = _moments(x)
  whitened = np.linalg.solve(
    np.linalg.cholesky(covariance), (proposed.numpy() - _MEAN - mean).T
  )
  error = 1.0 / np.sqrt(num_draws)
  assert np.all(np.abs(np.mean(whitened, axis=1)) < 4.5 * error)
  excess = whitened @ whitened.T / num_draws - _EYE
  assert np.all(np.abs(excess) < 4.5 * np.sqrt(2.0) * error)
  # A covariance 5 % off would be seen.
  assert 0.05 > 4.5 * np.sqrt(2.0) * error


@pytest.mark.full
def test_a_gaussian_likelihood_accepts_every_proposal():
  states = _states()
  kernel = _proposal(_gaussian)
  start = kernel.bootstrap_results(tf.constant(states))
  _, results = _step(kernel, states)
  ratio = results.target_log_prob - start.target_log_prob
  ratio += results.log_acceptance_correction
  np.testing.assert_allclose(ratio, 0.0, atol=1e-10)
  # The first-order proposal does not.
  first_order = tfpa.proposals.UncalibratedMarginalGradient(
    _gaussian, _prior(), delta=_DELTA
  )
  _, results = _step(first_order, states)
  ratio = results.target_log_prob - start.target_log_prob
  assert np.max(np.abs(ratio + results.log_acceptance_correction)) > 0.1


@pytest.mark.full
def test_modes_and_forms_agree(monkeypatch):
  expected, _ = _step(_proposal(), _states())
  found, _ = _step(_proposal(), _states(), jit_compile=False)
  np.testing.assert_allclose(found, expected, rtol=1e-10)
  monkeypatch.setattr(banded_scan, 'is_preferred', lambda _: True)
  found, _ = _step(_proposal(), _states())
  np.testing.assert_allclose(found, expected, rtol=1e-8)
