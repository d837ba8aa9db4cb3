"""What is worth knowing of a step is found by name, in any loop."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tests.contracts import targets


def test_a_trace_of_tfp_has_what_an_adaptation_knows():
  kernel = tfpa.gradient_adaptive_langevin(targets.standard_normal, 20)
  kernel = tfp.mcmc.TransformedTransitionKernel(kernel, tfp.bijectors.Exp())
  start = tf.ones([3, 2], tf.float64)
  _, stats = tfp.mcmc.sample_chain(
    30,
    start,
    kernel=kernel,
    trace_fn=lambda state, results: tfpa.sample_stats(kernel, results),
    seed=(0, 1),
  )
  for name in ('target_log_prob', 'is_accepted', 'diverging'):
    assert stats[name].shape == [30, 3]
  for name in (
    'step_size',
    'entropy_weight',
    'mean_accept_prob',
    'num_dropped_gradients',
    'log_scale',
  ):
    assert stats[name].shape == [30]
  weights = stats['entropy_weight'].numpy()
  assert len(set(weights[:20])) > 1 and len(set(weights[20:])) == 1


@pytest.mark.parametrize(
  'name', ['marginal', 'elliptical_slice', 'replica_exchange']
)
def test_every_family_has_its_own(name):
  case = cases.named(name)
  kernel, start = case.build(), case.problem.start()
  results = kernel.bootstrap_results(start)
  stats = tfpa.sample_stats(kernel, results)
  assert stats['target_log_prob'].shape == [3]
  assert all(np.all(np.isfinite(np.float64(x))) for x in stats.values())
