"""One step from exact draws leaves the target's law; a wrong one does not."""

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results

_NUM_DRAWS = 50_000
_EVENT_SIZE = 5


def _one_step(spec, mode, temper=1.0):
  target = targets.Banana(_EVENT_SIZE, temper=temper)
  # A factor that is neither the target's nor isotropic.
  rng = np.random.default_rng(5)
  bent = np.eye(_EVENT_SIZE) + 0.2 * np.tril(rng.normal(size=[_EVENT_SIZE] * 2))
  kernel = registry.frozen_kernel(
    spec, target.log_prob, spec.scale * target.factor @ bent
  )
  before = tf.constant(target.draw(_NUM_DRAWS, seed=1))
  step = targets.stepper(kernel, mode)
  after, results = step(
    before, kernel.bootstrap_results(before), tf.constant([3, 4])
  )
  return target, before.numpy(), after.numpy(), results


@pytest.mark.parametrize('mode', targets.MODES)
@registry.each_kernel_and_variant
def test_one_step_leaves_the_target_invariant(spec, mode):
  target, before, after, results = _one_step(spec, mode)
  accepted = np.mean(mh_results(results).is_accepted)
  assert 0.1 < accepted < 0.95  # Otherwise the test has no power.
  # Fails by chance for one seed in 1000; the seed is fixed.
  assert targets.smallest_p_value(target, before, after) > 1e-3


@registry.each_kernel_and_variant
def test_a_target_tempered_by_a_tenth_is_detected(spec):
  target, before, after, _ = _one_step(spec, 'graph', temper=1.1)
  assert targets.smallest_p_value(target, before, after) < 1e-6


def test_exact_draws_pass_and_tempered_draws_fail_the_test_itself():
  target = targets.Banana(_EVENT_SIZE)
  before, after = target.draw(_NUM_DRAWS, 1), target.draw(_NUM_DRAWS, 2)
  assert targets.smallest_p_value(target, before, after) > 1e-3
  assert targets.smallest_p_value(target, before, after / 1.1**0.5) < 1e-6
