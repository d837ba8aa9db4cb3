"""One step from exact draws leaves the target's law; a wrong one does not."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import latent_model
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results

_NUM_DRAWS = 50_000
_EVENT_SIZE = 5
# The second-order sampler accepts all that it proposes here: its law is tested
# with few chains.
_CASES = registry.KERNELS + [
  case for case in registry.LATENT if case.name != 'second_order'
]
each_case = pytest.mark.parametrize(
  'case', registry.tiered(_CASES, registry.BASELINES)
)


def _on_field(case, temper):
  """Returns the law of a field and a kernel with a tempered likelihood."""
  function = functools.partial(latent_model.log_likelihood, temper=temper)
  return latent_model.LAW, latent_model.build(case, function=function)


def _on_banana(case, temper):
  """Returns a bent law and a kernel of the tempered one."""
  target = targets.Banana(_EVENT_SIZE, temper=temper)
  # A factor that is neither the target's nor isotropic.
  rng = np.random.default_rng(5)
  bent = np.eye(_EVENT_SIZE) + 0.2 * np.tril(rng.normal(size=[_EVENT_SIZE] * 2))
  return target, registry.frozen_kernel(
    case, target.log_prob, case.scale * target.factor @ bent
  )


def _one_step(case, temper=1.0):
  is_field = case.problem.kind == 'field'
  law, kernel = (_on_field if is_field else _on_banana)(case, temper)
  before = tf.constant(law.draw(_NUM_DRAWS, seed=1))
  step = targets.stepper(kernel, 'graph')
  after, results = step(
    before, kernel.bootstrap_results(before), tf.constant([3, 4])
  )
  return law, before.numpy(), after.numpy(), results


# Other modes take the same step: see test_modes.py.
@each_case
def test_one_step_leaves_the_target_invariant(case):
  law, before, after, results = _one_step(case)
  accepted = np.mean(mh_results(results).is_accepted)
  assert 0.1 < accepted < 0.95  # Otherwise the test has no power.
  # Fails by chance for one seed in 1000; the seed is fixed.
  assert targets.smallest_p_value(law, before, after) > 1e-3


@each_case
def test_a_target_tempered_by_a_tenth_is_detected(case):
  # pCN sees the likelihood through its ratio only: less in one step.
  temper = 1.5 if case.name == 'pcn' else 1.1
  law, before, after, _ = _one_step(case, temper)
  assert targets.smallest_p_value(law, before, after) < 1e-6
