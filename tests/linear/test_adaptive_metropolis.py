"""Adaptive Metropolis against its recursions written in numpy."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results

_NUM_STEPS = 20
_TARGET = targets.Banana(3)
_FAR = 1e6  # Outside of the support.


def _target(x):
  return tf.where(x[..., 0] < _FAR, _TARGET.log_prob(x), -float('inf'))


def _run(preconditioner, dead=(), **options):
  """Returns kernel, starting results, states and results of the run."""
  kernel = tfpa.adaptation.MomentBasedAdaptation(
    tfpa.MetropolisHastings(
      tfpa.proposals.UncalibratedPreconditionedRandomWalk(
        _target, preconditioner
      )
    ),
    num_adaptation_steps=_NUM_STEPS,
    **options,
  )
  rows = [np.full([1, 3], value) for value in dead]
  start = tf.constant(np.concatenate([_TARGET.draw(4), *rows]))
  before = kernel.bootstrap_results(start)
  states, results = targets.run(kernel, start, _NUM_STEPS, results=before)
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
  'shape_rate, rates, dead',
  [
    (1e-3, _printed_rates, ()),
    (None, _own_rates, ()),
    (1e-3, _printed_rates, (_FAR, np.nan)),  # Chains that can never move.
  ],
)
def test_mean_factor_and_scale_follow_their_recursions(shape_rate, rates, dead):
  start, before, states, all_results = _run(
    registry.fixed(0.5 * targets.correlated_factor(3, 4.0, seed=8)),
    target_accept_prob=0.3,
    shape_rate=shape_rate,
    dead=dead,
  )
  mean = start[:4].numpy().mean(axis=0)
  factor = np.asarray(_accepted(before).preconditioner_params)
  variance = 1.0
  for step, (state, results) in enumerate(zip(states, all_results), start=1):
    centered = state[:4].numpy() - mean
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
      np.minimum(mh_results(results).log_accept_ratio[:4], 0.0)
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
  _, all_results = targets.run(kernel, start, 5, results=results)
  for results in all_results:
    factor = np.asarray(_accepted(results).preconditioner_params)
    assert np.all(np.isfinite(factor)) and np.all(np.diag(factor) > 0.0)
