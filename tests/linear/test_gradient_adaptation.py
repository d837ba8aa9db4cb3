"""Learning by gradient: the step that the formulas of the paper give."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results

_SIZE, _NUM_CHAINS, _RATE = 3, 30, 0.01
_TARGET = targets.Banana(_SIZE)
_FACTOR = 0.6 * targets.correlated_factor(_SIZE, 5.0, seed=3)


def _after_a_step(kernel, num_dead=0):
  """Returns the start, results and the gradient at what was proposed."""
  dead = np.full([num_dead, _SIZE], np.nan)
  start = np.concatenate([_TARGET.draw(_NUM_CHAINS), dead])
  state = tf.constant(start)
  _, results = kernel.one_step(
    state, kernel.bootstrap_results(state), seed=tf.constant([3, 4])
  )
  proposed = results.inner_results.proposed_state
  _, gradient = targets.value_and_gradient(_TARGET.log_prob, proposed)
  return start, results, gradient


@pytest.mark.parametrize('num_dead', [0, 15])
def test_the_first_step_follows_the_mean_gradient_of_live_chains(num_dead):
  kernel = tfpa.gradient_adaptive_random_walk(
    _TARGET.log_prob,
    10,
    preconditioner=registry.fixed(_FACTOR),
    criterion=tfpa.criteria.generalized_speed_measure(
      0.25, 'acceptance', init_entropy_weight=0.5
    ),
    optimizer=tfpa.optimizers.rmsprop(_RATE),
  )
  _, results, gradient = _after_a_step(kernel, num_dead)
  step = results.inner_results
  is_live = np.arange(_NUM_CHAINS + num_dead) < _NUM_CHAINS
  is_below = is_live & (step.log_accept_ratio.numpy() < 0.0)
  assert 5 < is_below.sum() < _NUM_CHAINS
  noise = step.proposed_results.noise.numpy()
  value = np.tril(gradient[is_below].T @ noise[is_below]) / _NUM_CHAINS
  # Algorithm 1 moves the factor first, with the beta before the step.
  assert float(results.criterion_state.entropy_weight) != 0.5
  total = value + 0.5 * np.diag(1.0 / np.diag(_FACTOR))
  np.testing.assert_allclose(
    step.accepted_results.preconditioner_params,
    _FACTOR + _RATE * total / (1.0 + np.abs(total)),
    rtol=1e-10,
  )


@pytest.mark.parametrize('needs_slopes, weight', [(False, 0.5), (True, 7.0)])
def test_only_a_beta_of_slopes_moves_before_the_factor(needs_slopes, weight):
  criterion = tfpa.interfaces.Criterion(
    name='beta',
    init=lambda problem: tf.constant(0.5, problem.dtype),
    value=lambda beta, transition: 0.0 * transition.log_accept_ratio,
    entropy=lambda beta, transition: transition.proposal_entropy,
    entropy_weight=lambda beta: beta,
    update=lambda beta, *_: 7.0 * tf.ones_like(beta),
    target_accept_prob=0.25,
    needs_slopes=needs_slopes,
  )
  seen = []
  optimizer = tfpa.optimizers.relative_gradient()
  kernel = tfpa.gradient_adaptive_random_walk(
    _TARGET.log_prob,
    10,
    preconditioner=registry.fixed(_FACTOR),
    criterion=criterion,
    optimizer=optimizer._replace(
      update=lambda *args: seen.append(args[0]) or optimizer.update(*args)
    ),
  )
  _after_a_step(kernel)
  # log |det C (I + A)| has the gradient I at A = 0.
  np.testing.assert_allclose(seen[0], weight * np.eye(_SIZE), atol=1e-12)


def test_criteria_are_told_the_slopes_in_the_log_scale_by_coordinate():
  kernel = tfpa.gradient_adaptive_random_walk(
    _TARGET.log_prob,
    10,
    preconditioner=registry.fixed(_FACTOR),
    criterion=tfpa.criteria.generalized_speed_measure(0.25, 'balance'),
  )
  start, results, gradient = _after_a_step(kernel)
  step = results.inner_results
  # Slopes of log pi(x + s C e) in log s. The slope of log |det s C| is d.
  slopes = np.sum(gradient * (step.proposed_state.numpy() - start), axis=1)
  is_below = step.log_accept_ratio.numpy() < 0.0
  found = results.criterion_state
  np.testing.assert_allclose(found.entropy_slope, 1.0, rtol=1e-12)
  np.testing.assert_allclose(
    found.value_slope, np.mean(slopes * is_below) / _SIZE, rtol=1e-10
  )


def test_a_gradient_that_overflows_moves_nothing_and_is_counted():
  # Finite, and so is the ratio; its square is not.
  def steep(x):
    return tf.reduce_sum(1e-10 * tf.sin(1e30 * x), axis=-1)

  kernel = tfpa.gradient_adaptive_random_walk(
    steep,
    10,
    preconditioner=registry.fixed(_FACTOR),
    optimizer=tfpa.optimizers.rmsprop(5e-5),
  )
  state = tf.constant(_TARGET.draw(_NUM_CHAINS), tf.float32)
  before = kernel.bootstrap_results(state)
  _, after = kernel.one_step(state, before, seed=tf.constant([3, 4]))
  assert np.any(mh_results(after).log_accept_ratio < 0.0)
  np.testing.assert_array_equal(
    mh_results(after).accepted_results.preconditioner_params,
    mh_results(before).accepted_results.preconditioner_params,
  )
  for leaf in tf.nest.flatten(after.optimizer_state):
    assert np.all(np.isfinite(leaf))
  assert after.num_dropped_gradients == _NUM_CHAINS


def test_a_criterion_needs_no_more_than_its_value_and_entropy():
  criterion = tfpa.interfaces.Criterion(
    name='acceptance',
    init=lambda problem: tf.zeros([], problem.dtype),
    value=lambda state, transition: tf.where(
      transition.is_finite, tf.minimum(transition.log_accept_ratio, 0.0), 0.0
    ),
    entropy=lambda state, transition: transition.proposal_entropy,
    entropy_weight=lambda state: 0.05,
    target_accept_prob=0.5,
  )
  kernel = tfpa.gradient_adaptive_langevin(
    targets.standard_normal, 20, criterion=criterion
  )
  start = tf.constant(np.random.default_rng(0).normal(size=(4, 2)))
  results = kernel.bootstrap_results(start)
  _, results = targets.run(kernel, start, 3, 'graph', results=results)
  assert float(results[-1].criterion_state) == 0.0
  assert set(kernel.scalars_at(results[-1])) == {
    'mean_accept_prob',
    'num_dropped_gradients',
  }
