"""The least Fisher divergence against its equation, and what it learns."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets

_EVENT_SIZE = 4
_NUM_STEPS = 13  # Fits are at steps 2 to 11 and 13.
_NUM_CHAINS = 6
_TARGET = targets.Banana(_EVENT_SIZE)
_FACTOR = 0.5 * targets.correlated_factor(_EVENT_SIZE, 4.0, seed=8)


def _divergence(target, num_steps, preconditioner=None, **options):
  proposal = tfpa.proposals.UncalibratedPreconditionedLangevin(
    target, preconditioner or tfpa.preconditioners.cholesky()
  )
  return tfpa.adaptation.FisherDivergenceAdaptation(
    tfpa.MetropolisHastings(proposal), num_steps, **options
  )


def _covariance(results):
  params = results.inner_results.accepted_results.preconditioner_params.numpy()
  return params @ params.T


def _weighted_covariance(first, rows, shares):
  """Returns the covariance over steps and chains, steps weighted."""
  rows = np.stack([np.tile(np.mean(first, 0), (_NUM_CHAINS, 1)), *rows])
  mean = np.einsum('t,tkd->d', shares, rows) / _NUM_CHAINS
  rest = rows - mean
  return np.einsum('t,tkd,tke->de', shares, rest, rest) / _NUM_CHAINS


@pytest.mark.full
@pytest.mark.parametrize('gain', [1.0, 2.0])
def test_the_factor_solves_the_equation_of_the_weighted_covariances(gain):
  kernel = _divergence(
    _TARGET.log_prob, _NUM_STEPS, registry.fixed(_FACTOR), gain=gain
  )
  start = tf.constant(_TARGET.draw(_NUM_CHAINS))
  before = kernel.bootstrap_results(start)
  states, results = targets.run_steps(
    targets.stepper(kernel, 'graph'), start, before, _NUM_STEPS
  )
  # The last fit is at step 13; step t counts for w_t prod_{s > t} (1 - w_s).
  weights = gain / (np.arange(1, _NUM_STEPS + 1) + gain)
  left = np.cumprod(np.append(1.0, 1.0 - weights[::-1]))[::-1]
  shares = np.append(1.0, weights) * left
  grads = [
    r.inner_results.accepted_results.grads_target_log_prob
    for r in (before, *results)
  ]
  ratio = _NUM_STEPS * _NUM_CHAINS / _EVENT_SIZE
  share = 1.0 / (1.0 + ratio**-4)
  shrinkage = share + (1.0 - share) * np.eye(_EVENT_SIZE)
  of_states = shrinkage * _weighted_covariance(start, states, shares)
  of_gradients = shrinkage * _weighted_covariance(grads[0], grads[1:], shares)
  mean = _covariance(results[-1])
  np.testing.assert_allclose(mean @ of_gradients @ mean, of_states, rtol=1e-8)
  learned = [_covariance(r) for r in (before, *results)]
  is_moved = [np.any(one != other) for one, other in zip(learned, learned[1:])]
  assert is_moved == [False, *([True] * 10), False, True]
  # Power: the first factor is no solution.
  first = learned[0]
  assert np.max(np.abs(first @ of_gradients @ first / of_states - 1)) > 0.2


def _condition(kernel, start, dtype, factor):
  """Returns the condition number left, and that of the states' covariance."""
  # Compiling would take longer; the modes agree by the contract tests.
  run = tfpa.sample(
    kernel, tf.constant(start, dtype), 40, progress=False, jit_compile=False
  )
  learned = tfpa.learned_factor(kernel, run.final_kernel_results)
  of_states = np.linalg.cholesky(np.cov(run.states.reshape(-1, len(factor)).T))
  return [
    np.linalg.cond(np.linalg.solve(factor, c)) ** 2
    for c in (learned, of_states)
  ]


@pytest.mark.full
@pytest.mark.parametrize(
  'num_chains, num_steps, dtype',
  [(1, 300, np.float64), (10, 300, np.float64), (10, 100, np.float32)],
  ids=['one chain', 'ten chains', 'single precision'],
)
def test_a_gaussian_is_exact_however_little_the_chains_have_moved(
  num_chains, num_steps, dtype
):
  size = 10
  condition = 1e3 if dtype == np.float32 else 1e5
  factor = targets.correlated_factor(size, condition, seed=2)
  inverse = np.linalg.inv(factor)
  kernel = tfpa.fisher_divergence_langevin(
    lambda x: targets.standard_normal(
      tf.linalg.matvec(tf.constant(inverse, x.dtype), x)
    ),
    num_steps,
  )
  start = np.random.default_rng(0).normal(size=(num_chains, size)) @ factor.T
  left, of_states = _condition(kernel, start, dtype, factor)
  assert left < 1.2  # Correlations are kept at 1 - 1e-6 or better.
  assert of_states - 1.0 > 2.0 * (left - 1.0)  # The negative control.


@pytest.mark.full
def test_hamiltonian_proposals_learn_too():
  factor = targets.correlated_factor(_EVENT_SIZE, 100.0, seed=3)
  inverse = np.linalg.inv(factor)
  proposal = tfpa.proposals.UncalibratedPreconditionedHamiltonian(
    lambda x: targets.standard_normal(tf.linalg.matvec(inverse, x)),
    tfpa.preconditioners.cholesky(),
    3,
  )
  kernel = tfpa.adaptation.FisherDivergenceAdaptation(
    tfpa.MetropolisHastings(proposal), 200, target_accept_prob=0.8
  )
  start = np.random.default_rng(0).normal(size=(5, _EVENT_SIZE)) @ factor.T
  left, _ = _condition(kernel, start, np.float64, factor)
  assert left < 1.1


def test_structures_that_are_not_dense_are_refused():
  with pytest.raises(ValueError, match='dense factor, but got `diagonal`'):
    _divergence(_TARGET.log_prob, 10, tfpa.preconditioners.diagonal())


@pytest.mark.full
def test_a_fit_that_fails_is_counted_and_leaves_the_factor():
  def target(x):  # No gradient along the last coordinate: no covariance of it.
    return targets.standard_normal(x[..., :-1])

  kernel = _divergence(target, 10, registry.fixed(_FACTOR))
  start = tf.constant(_TARGET.draw(_NUM_CHAINS))
  before = kernel.bootstrap_results(start)
  _, results = targets.run_steps(
    targets.stepper(kernel, 'graph'), start, before, 5
  )
  assert int(results[-1].statistics.num_failed_fits) == 4
  np.testing.assert_array_equal(_covariance(results[-1]), _covariance(before))
