"""The variance ratio against weighted moments, and what it learns."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from experiments.samplers.baselines.variance_ratio_langevin import (
  VarianceRatioAdaptation,
)
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results

_EVENT_SIZE = 4
_NUM_STEPS = 20
_TARGET = targets.Banana(_EVENT_SIZE)
_SCALES = np.array([0.5, 0.7, 0.4, 0.6])


def _ratio(target, num_steps, preconditioner=None, **options):
  proposal = tfpa.proposals.UncalibratedPreconditionedLangevin(
    target, preconditioner or tfpa.preconditioners.diagonal()
  )
  return VarianceRatioAdaptation(
    tfpa.MetropolisHastings(proposal), num_steps, **options
  )


def _params(results):
  accepted = mh_results(results).accepted_results
  return accepted.preconditioner_params.numpy()


@pytest.mark.parametrize('gain', [1.0, 2.0])
@pytest.mark.parametrize('num_chains', [1, 10])
def test_scales_are_those_of_weighted_moments(num_chains, gain):
  kernel = _ratio(
    _TARGET.log_prob,
    _NUM_STEPS,
    registry.fixed(np.diag(_SCALES), structure='diagonal'),
    gain=gain,
  )
  start = tf.constant(_TARGET.draw(num_chains))
  before = kernel.bootstrap_results(start)
  states, results = targets.run_steps(
    targets.stepper(kernel, 'graph'), start, before, _NUM_STEPS
  )
  # Step t counts for w_t prod_{s > t} (1 - w_s); the start for what is left.
  weights = gain / (np.arange(1, _NUM_STEPS + 1) + gain)
  left = np.cumprod(np.append(1.0, 1.0 - weights[::-1]))[::-1]
  shares = np.append(1.0, weights) * left
  np.testing.assert_allclose(shares.sum(), 1.0)
  variances = []
  for first, rows in (
    (start, states),
    (
      mh_results(before).accepted_results.grads_target_log_prob,
      [mh_results(r).accepted_results.grads_target_log_prob for r in results],
    ),
  ):
    rows = np.stack([np.tile(np.mean(first, 0), (num_chains, 1)), *rows])
    mean = np.einsum('t,tkd->d', shares, rows) / num_chains
    spread = np.einsum('t,tkd->d', shares, (rows - mean) ** 2) / num_chains
    variances.append(spread)
  np.testing.assert_allclose(
    _params(results[-1]), (variances[0] / variances[1]) ** 0.25, rtol=1e-9
  )
  assert np.any(np.abs(_params(results[-1]) / _SCALES - 1.0) > 0.1)


def _learned(kernel, start, dtype):
  # Compiling would take longer; the modes agree by the contract tests.
  run = tfpa.sample(
    kernel, tf.constant(start, dtype), 20, progress=False, jit_compile=False
  )
  return np.diag(tfpa.learned_factor(kernel, run.final_kernel_results))


@pytest.mark.full
@pytest.mark.parametrize(
  'num_chains, dtype, distance',
  [(1, np.float64, 1.0), (10, np.float32, 1e3)],
  ids=['one chain', 'ten far chains'],
)
def test_scales_of_independent_gaussians_are_exact(num_chains, dtype, distance):
  scales = np.geomspace(1e-2, 1e2, _EVENT_SIZE)
  start = np.random.default_rng(0).normal(size=(num_chains, _EVENT_SIZE))
  kernel = baselines.variance_ratio_langevin(
    lambda x: targets.standard_normal(x / tf.constant(scales, x.dtype)), 800
  )
  learned = _learned(kernel, distance * start * scales, dtype)
  ratios = learned / scales
  np.testing.assert_allclose(ratios / ratios.mean(), 1.0, atol=0.05)


@pytest.mark.full
def test_scales_lie_between_conditional_and_marginal_ones():
  factor = targets.correlated_factor(_EVENT_SIZE, 100.0, seed=2)
  covariance = factor @ factor.T
  inverse = np.linalg.inv(factor)
  kernel = baselines.variance_ratio_langevin(
    lambda x: targets.standard_normal(tf.linalg.matvec(inverse, x)), 1500
  )
  start = np.random.default_rng(0).normal(size=(20, _EVENT_SIZE)) @ factor.T
  squares = _learned(kernel, start, np.float64) ** 2
  expected = np.sqrt(np.diag(covariance) / np.diag(np.linalg.inv(covariance)))
  ratios = squares / expected
  # Effective draws: about 20 * 1500 / 30; a variance has a relative standard
  # error of sqrt(2 / 1000), a square half of that for each of its two.
  np.testing.assert_allclose(ratios / ratios.mean(), 1.0, atol=0.1)
  # The negative control: marginal variances are others.
  marginal = squares / np.diag(covariance)
  assert np.max(np.abs(marginal / marginal.mean() - 1.0)) > 0.2


@pytest.mark.full
def test_hamiltonian_proposals_learn_too():
  scales = np.geomspace(1e-2, 1e2, _EVENT_SIZE)
  proposal = tfpa.proposals.UncalibratedPreconditionedHamiltonian(
    lambda x: targets.standard_normal(x / scales),
    tfpa.preconditioners.diagonal(),
    3,
  )
  kernel = VarianceRatioAdaptation(
    tfpa.MetropolisHastings(proposal), 500, target_accept_prob=0.8
  )
  start = np.random.default_rng(0).normal(size=(5, _EVENT_SIZE)) * scales
  ratios = _learned(kernel, start, np.float64) / scales
  np.testing.assert_allclose(ratios / ratios.mean(), 1.0, atol=0.05)


def test_structures_that_are_not_diagonal_are_refused():
  with pytest.raises(ValueError, match='diagonal factor, but got `cholesky`'):
    _ratio(_TARGET.log_prob, 10, tfpa.preconditioners.cholesky())
