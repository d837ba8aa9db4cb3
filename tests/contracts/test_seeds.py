"""The same seed gives the same draws, however the run is cut."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from experiments.samplers import cases
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results

_START = np.random.default_rng(2).normal(size=(3, 2))


def _kernel(case, num_adaptation_steps=6):
  return case.build(targets.standard_normal, num_adaptation_steps, size=2)


def _step(kernel, seed):
  start = tf.constant(_START)
  return kernel.one_step(start, kernel.bootstrap_results(start), seed=seed)


@registry.each_sampler
def test_the_same_seed_gives_the_same_step_and_another_another(case):
  kernel = _kernel(case)
  first, _ = _step(kernel, (1, 2))
  again, _ = _step(kernel, tf.constant([1, 2]))
  other, other_results = _step(kernel, (1, 3))
  np.testing.assert_array_equal(first, again)
  assert np.any(mh_results(other_results).proposed_state != again)
  assert first.shape == other.shape


@registry.each_kernel
def test_chains_draw_independent_noise(case):
  kernel = registry.frozen_kernel(case, targets.standard_normal, np.eye(2))
  start = tf.zeros([20_000, 2], tf.float64)
  _, results = kernel.one_step(
    start, kernel.bootstrap_results(start), seed=(1, 2)
  )
  noise = mh_results(results).proposed_results.noise.numpy()
  # Correlations of independent normals have standard error 1 / sqrt(n).
  standard_error = len(noise) ** -0.5
  assert abs(np.mean(noise[:, 0] * noise[:, 1])) < 4 * standard_error
  assert abs(np.mean(noise[1:] * noise[:-1])) < 4 * standard_error
  assert len(np.unique(noise)) == noise.size


@registry.each_sampler
def test_a_step_runs_again_from_its_recorded_seed(case):
  kernel = _kernel(case)
  state = tf.constant(_START)
  results = kernel.bootstrap_results(state)
  after, after_results = kernel.one_step(state, results)  # No seed given.
  again, again_results = kernel.one_step(
    state, results, seed=mh_results(after_results).seed
  )
  np.testing.assert_array_equal(after, again)
  for one, two in zip(
    tf.nest.flatten(after_results), tf.nest.flatten(again_results)
  ):
    np.testing.assert_array_equal(one, two)


def test_sample_chain_with_thinning_equals_strided_draws():
  kernel = _kernel(cases.named('langevin'))
  every, second = (
    tfp.mcmc.sample_chain(
      num_results,
      tf.constant(_START),
      kernel=kernel,
      num_steps_between_results=between,
      trace_fn=None,
      seed=tf.constant([1, 2], tf.int32),
    )
    for num_results, between in ((5, 0), (3, 1))
  )
  np.testing.assert_array_equal(second, every[::2])
