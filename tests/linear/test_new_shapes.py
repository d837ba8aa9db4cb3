"""A new low-rank shape voids the step size, its rate and learned lengths."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results

_SCALES = np.array([1.0, 1.0, 1.0, 30.0])
_TARGET_ACCEPT_PROB = 0.6


@functools.cache
def _results():
  """Returns those of six steps, the fourth with a fit that gains much."""
  kernel = tfpa.fisher_divergence_hamiltonian(
    lambda x: targets.standard_normal(x / _SCALES),
    100,
    preconditioner=tfpa.preconditioners.low_rank(1, init_scale=1.0),
    target_accept_prob=_TARGET_ACCEPT_PROB,
    max_num_leapfrog_steps=2,
  )
  start = tf.constant(_SCALES * np.random.default_rng(0).normal(size=(20, 4)))
  before = kernel.bootstrap_results(start)
  _, results = targets.run(kernel, start, 6, results=before)
  # The fit at the sixth step gains little over that.
  last = [float(result.statistics.pairs.last) for result in results]
  assert last == [0.0, 0.0, 0.0, 4.0, 4.0, 4.0]
  assert results[-1].statistics.next_fit == 9.0
  return results


@pytest.mark.full
def test_the_step_size_starts_anew_at_a_new_shape():
  results = _results()
  excess = [float(r.mean_accept_prob) - _TARGET_ACCEPT_PROB for r in results]
  assert np.min(np.abs(excess)) > 0.01
  logs = [np.log(mh_results(r).accepted_results.step_size) for r in results]
  logs = np.array([0.0, *logs])
  # The step with the fit was taken before it, of a rate as of late ones.
  np.testing.assert_allclose(
    logs[4], -0.25 * np.log(4.0) + 0.0075 * excess[3], rtol=1e-9
  )
  # Three of the first shape, and two of the next one.
  rates = 0.5 * np.array([2.0, 3.0, 4.0]) ** -0.6
  steps = np.diff(logs) / excess
  np.testing.assert_allclose(steps[:3], rates, rtol=1e-9)
  np.testing.assert_allclose(steps[4:], rates[:2], rtol=1e-9)


@pytest.mark.full
def test_learned_lengths_are_forgotten_at_a_new_shape():
  lengths = [result.trajectory_length for result in _results()]
  assert [float(known.time) for known in lengths] == [1, 2, 3, 0, 1, 2]
  assert not np.any(lengths[3].weights) and not np.any(lengths[3].jumps)
  # What was taken is counted on.
  assert [int(known.num_steps) for known in lengths] == [1, 2, 3, 4, 5, 6]
