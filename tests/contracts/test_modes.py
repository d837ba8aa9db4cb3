"""Eager, in a graph and under XLA every kernel takes the same step."""

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results

_NUM_STEPS = 9
_NUM_ADAPTING = 7


pytestmark = pytest.mark.full


@pytest.fixture(scope='module', params=registry.tiered(registry.SAMPLERS))
def case_and_runs(request):
  """Returns a case and mode -> (states, results): adapting, then frozen."""
  target = targets.Banana(3)
  kernel = request.param.build(target.log_prob, _NUM_ADAPTING, size=3)
  start = tf.constant(target.draw(5))
  runs = {}
  for mode in targets.MODES:
    step = targets.stepper(kernel, mode)
    runs[mode] = targets.run_steps(
      step, start, kernel.bootstrap_results(start), _NUM_STEPS
    )
    if mode != 'eager':
      assert step.experimental_get_tracing_count() == 1
  return request.param, runs


@pytest.mark.parametrize('mode', ['graph', 'xla'])
def test_states_decisions_and_all_results_agree(case_and_runs, mode):
  _, runs = case_and_runs
  eager, compiled = tf.nest.flatten(runs['eager']), tf.nest.flatten(runs[mode])
  for expected, got in zip(eager, compiled, strict=True):
    if expected.dtype.is_floating:
      # float64: 1e-16 a product, amplified by the chain's few steps.
      np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-11)
    else:
      np.testing.assert_array_equal(got, expected)


def test_the_compared_steps_search_learn_and_are_then_frozen(case_and_runs):
  case, runs = case_and_runs
  if case.learns != 'matrix':
    pytest.skip('no matrix is learned')
  _, results = runs['eager']
  learning = results[_NUM_ADAPTING - 1]
  assert int(results[0].scale_search.num_trials) > 0
  assert int(learning.scale_search.num_trials) == 0
  kept = [mh_results(r).accepted_results for r in results]
  *_, last = kept[:_NUM_ADAPTING]
  learned = np.asarray(last.preconditioner_params)
  ones = np.eye(3) if learned.ndim == 2 else np.ones(3)
  assert np.any(learned != learned.flat[0] * ones)
  for after in kept[_NUM_ADAPTING:]:
    np.testing.assert_array_equal(after.preconditioner_params, learned)
    np.testing.assert_array_equal(after.step_size, last.step_size)
