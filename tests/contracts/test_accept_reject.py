"""Moves are all or nothing, and nothing that is not finite gets in."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results
from tfp_adaptive.linear import trajectory
from tfp_adaptive.transport import hamiltonian
from tfp_adaptive.transport import transported_leapfrog

_NUM_CHAINS = 20
_EVENT_SIZE = 3
# Not what suits the target: there is something to learn.
_FACTOR = np.diag([1.0, 0.9, 1.1])


@functools.cache
def _half_space(outside):
  """N(0, I) on x_0 > 0; `outside` is the log density elsewhere."""

  def log_prob(x):
    inside = targets.standard_normal(x)
    return tf.where(x[..., 0] > 0.0, inside, tf.constant(outside, x.dtype))

  return log_prob


def _nan_gradient_outside(x):
  """N(0, I) with a finite value but no gradient where x_0 < 0."""

  @tf.custom_gradient
  def log_prob(x):
    def grad(upstream):
      nan = tf.constant(np.nan, x.dtype)
      return upstream[..., tf.newaxis] * tf.where(x[..., :1] > 0.0, -x, nan)

    return targets.standard_normal(x), grad

  return log_prob(x)


def _starts():
  rng = np.random.default_rng(0)
  return tf.constant(np.abs(rng.normal(size=(_NUM_CHAINS, _EVENT_SIZE))))


@functools.cache
def _run(case, target, num_steps=10):
  """Returns states and results of an adapting run, shared by the tests."""
  options = {}
  if case.learns == 'matrix':
    options['preconditioner'] = registry.fixed(
      _FACTOR, structure=case.structure
    )
  elif case.learns == 'step':
    options['delta'] = 2.0 * case.scale  # Some proposals are rejected.
  kernel = case.build(target, 100, size=_EVENT_SIZE, **options)
  starts = _starts()
  states, results = targets.run(kernel, starts, num_steps)
  return [starts, *states], results


def _teaches(results):
  """Whether adaptations take the step: short ones they leave alone."""
  return not tfp_private.get_innermost(results, 'is_short', default=False)


def _assert_all_finite(structure):
  for leaf in tf.nest.flatten(structure):
    if leaf.dtype.is_floating:
      assert np.all(np.isfinite(leaf)), leaf


@registry.each_sampler
def test_accepted_is_the_proposal_and_rejected_is_the_old_state(case):
  states, all_results = _run(case, targets.standard_normal)
  seen = set()
  for before, after, results in zip(states, states[1:], all_results):
    mh = mh_results(results)
    proposal = np.asarray(mh.proposed_state)
    for chain, accepted in enumerate(np.asarray(mh.is_accepted)):
      expected = proposal[chain] if accepted else before[chain].numpy()
      np.testing.assert_array_equal(after[chain], expected)
      assert np.any(proposal[chain] != before[chain].numpy())
      seen.add(bool(accepted))
  # The second-order sampler is exact here: it accepts all that it proposes.
  assert seen == ({True} if case.name == 'second_order' else {True, False})


@registry.each_sampler
def test_accepted_results_belong_to_the_state(case):
  states, all_results = _run(case, targets.standard_normal)
  for state, results in zip(states[1:], all_results):
    accepted = mh_results(results).accepted_results
    np.testing.assert_allclose(
      accepted.target_log_prob, targets.standard_normal(state), rtol=1e-12
    )
    if case.learns != 'matrix':
      continue  # Gradients in other coordinates.
    for grads in tf.nest.flatten(accepted.grads_target_log_prob):
      np.testing.assert_allclose(grads, -state, rtol=1e-12)


@pytest.mark.parametrize('outside', [-np.inf, np.nan, np.inf])
@registry.each_sampler
def test_proposals_without_a_finite_density_are_rejected(case, outside):
  states, all_results = _run(case, _half_space(outside))
  num_outside = 0
  for state, results in zip(states[1:], all_results):
    mh = mh_results(results)
    is_outside = np.asarray(mh.proposed_state)[:, 0] <= 0.0
    num_outside += is_outside.sum()
    assert not np.any(np.asarray(mh.is_accepted) & is_outside)
    assert np.all(state[:, 0] > 0.0)
    _assert_all_finite(mh.accepted_results)
  assert num_outside > 10  # Otherwise nothing was tested.


@pytest.mark.parametrize('outside', [-np.inf, np.nan])
@registry.each_kernel
def test_diverged_proposals_never_poison_the_adaptation(case, outside):
  _, all_results = _run(case, _half_space(outside))
  num_outside = 0
  for results in all_results:
    mh = mh_results(results)
    if _teaches(results):
      num_outside += np.sum(np.asarray(mh.proposed_state)[:, 0] <= 0.0)
    _assert_all_finite(results._replace(inner_results=mh.accepted_results))
    if hasattr(results, 'num_dropped_gradients'):
      assert int(results.num_dropped_gradients) == num_outside
  assert num_outside > 0  # Otherwise nothing was tested.
  last = mh_results(all_results[-1]).accepted_results.preconditioner_params
  first = _FACTOR if last.shape.rank == 2 else np.diag(_FACTOR)
  assert np.any(first != last)  # The other chains go on adapting.


@registry.each_kernel
def test_gradients_that_are_nan_never_poison_the_adaptation(case):
  states, all_results = _run(case, _nan_gradient_outside)
  num_outside = 0
  for results in all_results:
    mh = mh_results(results)
    # A trajectory that met a NaN on its way ends at NaN.
    if _teaches(results):
      num_outside += np.sum(~(np.asarray(mh.proposed_state)[:, 0] > 0.0))
    params = mh.accepted_results.preconditioner_params
    _assert_all_finite(params)
    if hasattr(results, 'num_dropped_gradients'):
      assert int(results.num_dropped_gradients) == num_outside
  assert num_outside > 10
  _assert_all_finite(states)


# A trajectory has diverged where its energy error is above 1000.


_RATIOS = tf.constant([0.0, 2000.0, -999.0, -1001.0, -np.inf, np.nan])
_CONVERGED = [True, True, True, False, False, False]


def _rows():
  return tf.ones([len(_CONVERGED), 2])


def test_of_a_preconditioned_trajectory():
  step = trajectory.Step(
    _rows(), _rows(), _rows(), trajectory.start_trajectory(_rows())
  )
  found = trajectory.has_converged(step, _RATIOS)
  np.testing.assert_array_equal(found, _CONVERGED)


def test_of_a_trajectory_behind_a_map():
  proposal = hamiltonian.proposal.ProposalResults
  proposed = proposal(*[[]] * len(proposal._fields))._replace(
    trajectory=transported_leapfrog.start_trajectory(_rows(), 2), noise=_rows()
  )
  found, _, noise = hamiltonian._keep_finite(proposed, _RATIOS)
  np.testing.assert_array_equal(found, _CONVERGED)
  # At rest in a flat target.
  np.testing.assert_array_equal(noise[:, 0], np.float32(_CONVERGED))
