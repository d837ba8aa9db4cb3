"""`tfpa.sample` gives the same bits in any blocks, thinned, or continued."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tests.contracts import registry
from tests.contracts import resumed
from tests.contracts import targets
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results

_START = np.random.default_rng(3).normal(size=(3, 2))
_NUM_ADAPTING = 10
_NUM_RESULTS = 12
# The other kernels run the same blocks uncompiled: compiling takes seconds.
_COMPILED = ('langevin_exact', 'random_walk')


def _run(case, **options):
  arguments = dict(
    num_results=_NUM_RESULTS,
    seed=(1, 2),
    progress=False,
    block_size=22,
    jit_compile=case.name in _COMPILED,
  )
  arguments.update(options)
  return tfpa.sample(
    case.build(targets.standard_normal, _NUM_ADAPTING, size=2),
    tf.constant(_START),
    **arguments,
  )


def _assert_same_bits(one, two):
  one, two = (run._replace(seconds=None) for run in (one, two))
  tf.nest.map_structure(np.testing.assert_array_equal, one, two)


@pytest.fixture(scope='module', params=registry.tiered(registry.SAMPLERS))
def spec_and_run(request):
  """Returns a kernel and its run in one block."""
  return request.param, _run(request.param)


@pytest.mark.full
def test_any_blocks_and_a_continued_run_give_the_same_bits(
  spec_and_run, tmp_path, monkeypatch
):
  case, expected = spec_and_run
  with resumed.interrupted(monkeypatch, 3):
    _run(case, block_size=4, checkpoint_dir=tmp_path)
  assert len(list(tmp_path.glob('block_*.npz'))) == 3
  continued = _run(case, block_size=5, checkpoint_dir=tmp_path)
  _assert_same_bits(continued, expected)


def test_draws_are_those_of_single_steps_with_folded_seeds():
  # The documented rule: step t draws from fold_in(seed, t).
  case = cases.named('langevin')
  run = _run(case)
  kernel = case.build(targets.standard_normal, _NUM_ADAPTING, size=2)
  state = tf.constant(_START)
  results = kernel.bootstrap_results(state)
  for step in range(_NUM_ADAPTING + 2):
    seed = tf.random.experimental.stateless_fold_in(
      tf.constant([1, 2], tf.int32), step, alg='philox'
    )
    state, results = kernel.one_step(state, results, seed=seed & 0x7FFFFFFF)
    if step >= _NUM_ADAPTING:
      np.testing.assert_allclose(
        run.states[step - _NUM_ADAPTING], state, rtol=1e-8, atol=1e-10
      )


def test_thinning_equals_strided_draws():
  case = cases.named('langevin')
  run = _run(case)
  thinned = _run(case, num_results=4, num_steps_between_results=2)
  np.testing.assert_array_equal(thinned.states, run.states[2::3])
  for name, values in thinned.trace.items():
    np.testing.assert_array_equal(values, run.trace[name][2::3])


# The same seed gives the same draws, however the run is cut.


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
  tf.nest.map_structure(
    np.testing.assert_array_equal, after_results, again_results
  )
