"""Acceptance follows exp(log ratio), chain by chain, and merges all or none."""

import collections
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa

ShiftResults = collections.namedtuple(
  'ShiftResults', ['target_log_prob', 'log_acceptance_correction', 'seed']
)


class _Shift(tfp.mcmc.TransitionKernel):
  """Proposes state + 1 with a prescribed log density and correction."""

  parameters, is_calibrated = {}, False

  def __init__(self, log_prob, correction, name=None):
    self.parameters = dict(log_prob=log_prob, correction=correction, name=name)

  def one_step(self, current_state, previous_kernel_results, seed=None):
    state = tf.nest.map_structure(lambda x: x + 1.0, current_state)
    return state, ShiftResults(
      self.parameters['log_prob'], self.parameters['correction'], seed
    )

  def bootstrap_results(self, init_state):
    zeros = tf.zeros_like(self.parameters['log_prob'])
    return ShiftResults(zeros, zeros, tf.zeros([2], tf.int32))


def _step(log_prob, correction=None, state=None, seed=(1, 2)):
  log_prob = tf.constant(log_prob, tf.float64)
  correction = (
    tf.zeros_like(log_prob)
    if correction is None
    else tf.constant(correction, tf.float64)
  )
  kernel = tfpa.MetropolisHastings(_Shift(log_prob, correction))
  if state is None:
    state = tf.zeros([*log_prob.shape, 2], tf.float64)
  return kernel.one_step(
    state, kernel.bootstrap_results(state), seed=tf.constant(seed)
  )


@pytest.mark.parametrize('log_ratio', [-3.0, -0.7, -0.01])
def test_the_rate_of_acceptance_is_exp_of_the_log_ratio(log_ratio):
  num_chains = 50_000
  _, results = _step(np.full(num_chains, log_ratio))
  expected = math.exp(log_ratio)
  standard_error = math.sqrt(expected * (1.0 - expected) / num_chains)
  rate = np.mean(results.is_accepted)
  assert abs(rate - expected) < 4 * standard_error
  assert abs(rate - 0.9 * expected) > 4 * standard_error  # It could fail.


def test_the_correction_enters_the_ratio():
  _, results = _step([-1.0, -2.0], correction=[0.25, 3.0])
  np.testing.assert_allclose(results.log_accept_ratio, [-0.75, 1.0])
  assert bool(results.is_accepted[1])


@pytest.mark.parametrize('value', [-np.inf, np.inf, np.nan])
def test_values_that_are_not_finite_are_rejected(value):
  state, results = _step([value, 0.5])
  np.testing.assert_array_equal(results.is_accepted, [False, True])
  np.testing.assert_array_equal(state, [[0.0, 0.0], [1.0, 1.0]])
  assert results.log_accept_ratio[0] == -np.inf
  np.testing.assert_array_equal(
    results.accepted_results.target_log_prob, [0.0, 0.5]
  )


@pytest.mark.parametrize('structure', ['dict', 'list', 'tuple'])
def test_structures_are_merged_part_by_part(structure):
  parts = dict(a=tf.zeros([2], tf.float64), b=tf.zeros([2, 3], tf.float64))
  state = {
    'dict': parts,
    'list': list(parts.values()),
    'tuple': tuple(parts.values()),
  }[structure]
  after, _ = _step([-np.inf, 0.5], state=state)
  tf.nest.assert_same_structure(state, after)
  for part in tf.nest.flatten(after):
    assert np.all(part[0] == 0.0) and np.all(part[1] == 1.0)


def test_the_seed_is_recorded_and_kept_out_of_the_accepted_results():
  _, results = _step([0.5, 0.5], seed=(7, 8))
  np.testing.assert_array_equal(results.seed, [7, 8])
  assert results.accepted_results.seed == []
  # The proposal draws from another seed than the decision and the step.
  assert np.any(results.proposed_results.seed != results.seed)
