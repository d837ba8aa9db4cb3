"""Adaptive Metropolis against its recursions written in numpy."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results

_NUM_STEPS = 20
_TARGET = targets.Banana(3)
# The rate of step t is divided by 1 + 4 t / num_steps; t counts from 1.
_FIRST_DECAY = 1.0 + 4.0 / _NUM_STEPS


def _run(preconditioner, **options):
  """Returns kernel, starting results, states and results of the run."""
  kernel = tfpa.adaptation.MomentBasedAdaptation(
    tfpa.MetropolisHastings(
      tfpa.proposals.UncalibratedPreconditionedRandomWalk(
        _TARGET.log_prob, preconditioner
      )
    ),
    num_adaptation_steps=_NUM_STEPS,
    **options,
  )
  start = tf.constant(_TARGET.draw(4))
  before = kernel.bootstrap_results(start)
  states, results = targets.run_steps(
    targets.stepper(kernel, 'eager'), start, before, _NUM_STEPS
  )
  return start, before, states, results


def _accepted(results):
  return mh_results(results).accepted_results


def _printed_rates(step):
  return 0.01, 1e-3 / (1.0 + 4.0 * step / _NUM_STEPS)


def _own_rates(step):
  # 3 coordinates, 9 params, 4 chains.
  rate = min(0.5, 4.0 / (step + 8.0 * (1.0 + 9.0 / 3.0) / 4.0))
  return rate, rate


@pytest.mark.parametrize(
  'shape_rate, rates', [(1e-3, _printed_rates), (None, _own_rates)]
)
def test_mean_factor_and_scale_follow_their_recursions(shape_rate, rates):
  start, before, states, all_results = _run(
    registry.fixed(0.5 * targets.correlated_factor(3, 4.0, seed=8)),
    target_accept_prob=0.3,
    shape_rate=shape_rate,
  )
  mean = start.numpy().mean(axis=0)
  factor = np.asarray(_accepted(before).preconditioner_params)
  variance = 1.0
  for step, (state, results) in enumerate(zip(states, all_results), start=1):
    centered = state.numpy() - mean
    mean_rate, rate = rates(step)
    mean = mean + mean_rate * centered.mean(axis=0)
    whitened = np.linalg.solve(factor, centered.T)
    moment = whitened @ whitened.T / len(centered) - np.eye(3)
    # The lower F with F + F^T = rate * moment: first order of the factor of
    # C (I + rate * moment) C^T.
    tangent = 0.5 * rate * moment
    tangent *= 0.5 / max(np.linalg.norm(tangent, 2), 0.5)
    change = 2.0 * np.tril(tangent) - np.diag(np.diag(tangent))
    factor = factor @ (np.eye(3) + change)
    accept_prob = np.exp(
      np.minimum(mh_results(results).log_accept_ratio, 0.0)
    ).mean()
    variance *= 1.0 + 0.01 * (accept_prob - 0.3) / 0.3
    np.testing.assert_allclose(results.mean, mean, rtol=1e-9)
    # Where a move is shortened, its norm is estimated.
    np.testing.assert_allclose(
      _accepted(results).preconditioner_params, factor, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
      _accepted(results).step_size, variance**0.5, rtol=1e-9
    )
    np.testing.assert_allclose(
      results.mean_accept_prob, accept_prob, rtol=1e-12
    )


def test_the_covariance_moves_towards_that_of_the_states():
  # C C^T <- C C^T + b ((x - mu)(x - mu)^T - C C^T) to first order in b.
  rate = 1e-5
  start, before, states, results = _run(
    registry.fixed(np.eye(3)), shape_rate=rate * _FIRST_DECAY
  )
  factor = np.asarray(_accepted(results[0]).preconditioner_params)
  centered = states[0].numpy() - start.numpy().mean(axis=0)
  expected = centered.T @ centered / len(centered) - np.eye(3)
  change = (factor @ factor.T - np.eye(3)) / rate
  np.testing.assert_allclose(change, expected, rtol=1e-3, atol=1e-3)
  assert np.all(
    np.asarray(_accepted(before).preconditioner_params) == np.eye(3)
  )


def test_a_diagonal_learns_variances_only():
  rate = 1e-5
  start, _, states, results = _run(
    tfpa.preconditioners.diagonal(init_scale=1.0),
    shape_rate=rate * _FIRST_DECAY,
  )
  scales = np.asarray(_accepted(results[0]).preconditioner_params)
  centered = states[0].numpy() - start.numpy().mean(axis=0)
  np.testing.assert_allclose(
    (scales**2 - 1.0) / rate,
    np.mean(centered**2, axis=0) - 1.0,
    rtol=1e-3,
    atol=1e-3,
  )


def test_the_scale_search_moves_the_factor_not_the_step_size():
  _, before, _, results = _run(tfpa.preconditioners.cholesky())
  assert int(before.scale_search.num_trials) > 0
  first = _accepted(results[0])
  assert float(first.step_size) == 1.0
  scale = float(first.preconditioner_params[0, 0])
  assert scale in (0.5, 2.0)
  np.testing.assert_array_equal(first.preconditioner_params, scale * np.eye(3))


def test_far_outliers_never_make_the_factor_singular():
  start = tf.constant(np.full([2, 3], 1e8))
  kernel = tfpa.adaptive_metropolis(
    lambda x: -1e-12 * tf.reduce_sum(x**2, axis=-1),
    50,
    preconditioner=tfpa.preconditioners.cholesky(init_scale=1e-3),
  )
  results = kernel.bootstrap_results(start)._replace(
    mean=tf.zeros([3], tf.float64)
  )
  _, all_results = targets.run_steps(
    targets.stepper(kernel, 'eager'), start, results, 5
  )
  for results in all_results:
    factor = np.asarray(_accepted(results).preconditioner_params)
    assert np.all(np.isfinite(factor)) and np.all(np.diag(factor) > 0.0)


def _learned_correlation(**options):
  """Returns that of the factor after 1000 steps at a correlation of 0.95."""
  precision = np.linalg.inv([[1.0, 0.95], [0.95, 1.0]])
  kernel = tfpa.adaptive_metropolis(
    lambda x: -0.5 * tf.reduce_sum(x * tf.linalg.matvec(precision, x), axis=-1),
    1000,
    **options,
  )

  @tf.function(autograph=False)
  def run(state):
    _, results = tfp.mcmc.sample_chain(
      1,
      state,
      kernel=kernel,
      num_burnin_steps=999,
      trace_fn=None,
      return_final_kernel_results=True,
      seed=(0, 1),
    )[-2:]
    return _accepted(results).preconditioner_params

  factor = run(tf.zeros([8, 2], tf.float64)).numpy()
  covariance = factor @ factor.T
  return covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])


def test_a_correlation_is_learned_in_a_thousand_steps():
  assert abs(_learned_correlation() - 0.95) < 0.02
  # Power: at the printed rate it is not.
  assert _learned_correlation(shape_rate=1e-3) < 0.9


@pytest.mark.parametrize('rate', [0.0, -1.0, np.inf, 'fast'])
def test_a_rate_that_is_none_is_refused(rate):
  with pytest.raises(ValueError, match='shape_rate'):
    tfpa.adaptive_metropolis(_TARGET.log_prob, 10, shape_rate=rate)
