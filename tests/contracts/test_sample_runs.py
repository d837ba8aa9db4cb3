"""`tfpa.sample` gives the same bits in any blocks, thinned, or continued."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tests.contracts import registry
from tests.contracts import resumed
from tests.contracts import targets

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
  for field in one._fields:
    if field == 'seconds':
      continue
    for a, b in zip(
      tf.nest.flatten(getattr(one, field)),
      tf.nest.flatten(getattr(two, field)),
      strict=True,
    ):
      np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


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


def test_a_run_is_its_adaptation_then_its_results(spec_and_run):
  case, run = spec_and_run
  assert run.states.shape == (_NUM_RESULTS, *_START.shape)
  assert run.trace['is_accepted'].shape == (_NUM_RESULTS, len(_START))
  assert run.adaptation_trace['is_accepted'].shape == (
    _NUM_ADAPTING,
    len(_START),
  )
  assert int(run.final_kernel_results.step) == _NUM_ADAPTING + _NUM_RESULTS
  np.testing.assert_array_equal(run.states[-1], run.final_state)
  np.testing.assert_allclose(
    run.trace['target_log_prob'], targets.standard_normal(run.states), rtol=1e-9
  )


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
