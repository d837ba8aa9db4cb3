"""`tfpa.sample` gives the same bits in any blocks, thinned, or continued."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.driver import checkpoint as checkpoint_lib

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


class _KilledError(Exception):
  """Stands for whatever stops a process."""


def _stop_after(monkeypatch, num_saves):
  """Makes the run die right after its `num_saves`-th checkpoint."""
  save, calls = checkpoint_lib.Checkpoint.save, []

  def dying_save(self, *args):
    save(self, *args)
    calls.append(None)
    if len(calls) == num_saves:
      raise _KilledError

  monkeypatch.setattr(checkpoint_lib.Checkpoint, 'save', dying_save)


@pytest.fixture(scope='module', params=registry.tiered(registry.SAMPLERS))
def spec_and_run(request):
  """Returns a kernel and its run in one block."""
  return request.param, _run(request.param)


@pytest.mark.full
def test_any_blocks_and_a_continued_run_give_the_same_bits(
  spec_and_run, tmp_path, monkeypatch
):
  case, expected = spec_and_run
  with monkeypatch.context() as patch:
    _stop_after(patch, 3)
    with pytest.raises(_KilledError):
      _run(case, block_size=4, checkpoint_dir=tmp_path)
  written = len(list(tmp_path.glob('block_*.npz')))
  assert written == 3
  continued = _run(case, block_size=5, checkpoint_dir=tmp_path)
  _assert_same_bits(continued, expected)
  assert len(list(tmp_path.glob('block_*.npz'))) > written


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


@pytest.mark.full
def test_draws_are_those_of_single_steps_with_folded_seeds(spec_and_run):
  # The documented rule: step t draws from fold_in(seed, t).
  case, run = spec_and_run
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


@pytest.mark.full
def test_thinning_equals_strided_draws(spec_and_run):
  case, run = spec_and_run
  thinned = _run(case, num_results=4, num_steps_between_results=2)
  np.testing.assert_array_equal(thinned.states, run.states[2::3])
  for name, values in thinned.trace.items():
    np.testing.assert_array_equal(values, run.trace[name][2::3])


@pytest.mark.full
def test_uncompiled_runs_agree_to_rounding():
  case = cases.named('langevin')
  compiled, plain = (_run(case, jit_compile=jit) for jit in (True, False))
  np.testing.assert_array_equal(
    compiled.trace['is_accepted'], plain.trace['is_accepted']
  )
  np.testing.assert_allclose(compiled.states, plain.states, rtol=1e-9)


_CHILD = """
import sys, time
import tensorflow as tf
import tfp_adaptive as tfpa
from tfp_adaptive.driver import checkpoint

save = checkpoint.Checkpoint.save
def slow_save(self, *args):
  save(self, *args)
  time.sleep(0.2)  # Time for the parent to kill in the middle of the run.
checkpoint.Checkpoint.save = slow_save

tfpa.sample(
  tfpa.gradient_adaptive_langevin(
    lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1), 10
  ),
  tf.constant([[0.5, -1.0], [2.0, 0.0]], tf.float64),
  num_results=200, seed=5, block_size=2, progress=False,
  checkpoint_dir=sys.argv[1],
)
"""


@pytest.mark.full
def test_a_process_that_is_killed_continues_to_the_same_bits(tmp_path):
  root = pathlib.Path(__file__).parents[2]
  child = subprocess.Popen(
    [sys.executable, '-c', _CHILD, str(tmp_path)],
    env=dict(os.environ, PYTHONPATH=str(root)),
    stderr=subprocess.DEVNULL,
  )
  deadline = time.monotonic() + 120
  while not (tmp_path / 'block_000004.npz').exists():
    assert child.poll() is None, 'the run ended before it was killed'
    assert time.monotonic() < deadline, 'no block was written in 120 s'
    time.sleep(0.05)
  child.send_signal(signal.SIGKILL)
  assert child.wait() == -signal.SIGKILL

  def run(checkpoint_dir):
    return tfpa.sample(
      tfpa.gradient_adaptive_langevin(targets.standard_normal, 10),
      tf.constant([[0.5, -1.0], [2.0, 0.0]], tf.float64),
      num_results=200,
      seed=5,
      progress=False,
      checkpoint_dir=checkpoint_dir,
    )

  _assert_same_bits(run(tmp_path), run(None))
