"""Draws on disk: those of memory, bit by bit, and read when they are asked for.

A run that was cut off goes on by itself; a folder of anything else is refused.
"""

import errno
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tests.driver import disk_runs
from tfp_adaptive.driver import archive
from tfp_adaptive.driver import checkpoint as checkpoint_lib
from tfp_adaptive.driver import convergence
from tfp_adaptive.driver import folder_lock

zarr = pytest.importorskip('zarr', reason='draws_dir is an extra')


def _assert_same(one, two):
  """Asserts that draws and traces agree bit by bit, in dtype and in shape."""
  for left, right in zip(
    tf.nest.flatten((one.states, one.trace, one.adaptation_trace)),
    tf.nest.flatten((two.states, two.trace, two.adaptation_trace)),
    strict=True,
  ):
    assert left.shape == right.shape and left.dtype == right.dtype
    assert np.asarray(left).tobytes() == np.asarray(right).tobytes()


class _Cut(Exception):
  pass


def _cut_run(monkeypatch, folder, num_saves, **options):
  """Runs until the state after `num_saves` blocks is to be written."""
  save, saved = checkpoint_lib.State.save, []

  def dying_save(self, leaves, **header):
    # The first one says whose the folder is.
    if len(saved) > num_saves:
      raise _Cut
    saved.append(save(self, leaves, **header))

  with monkeypatch.context() as patch, pytest.raises(_Cut):
    patch.setattr(checkpoint_lib.State, 'save', dying_save)
    disk_runs.sample(folder, **options)


def _pair(a, b):
  return targets.standard_normal(a) + targets.standard_normal(b)


_STARTS = {
  'no chains': (targets.standard_normal, disk_runs.START[0]),
  'an axis of one chain': (targets.standard_normal, disk_runs.START[:1]),
  'float32': (targets.standard_normal, np.float32(disk_runs.START)),
  'two chain axes': (
    disk_runs.two_axes,
    np.random.default_rng(5).normal(size=(2, 3, 2, 2)),
  ),
  'list': (_pair, [disk_runs.START, disk_runs.START[:, :1]]),
  'dict': (
    lambda rate, loc: targets.standard_normal(loc) - 0.5 * rate**2,
    dict(rate=disk_runs.START[:, 0], loc=disk_runs.START),
  ),
}


@pytest.mark.parametrize('case', _STARTS)
def test_draws_and_traces_have_the_bits_of_a_run_in_memory(case, tmp_path):
  target, start = _STARTS[case]
  options = dict(
    kernel=tfpa.gradient_adaptive_langevin(target, 4),
    start=start,
    num_steps_between_results=1,
    trace_fn=lambda state, results: {
      'whole': tf.constant(3),
      'parts': tf.nest.flatten(state),
    },
  )
  one, two = disk_runs.sample(**options), disk_runs.sample(tmp_path, **options)
  tf.nest.assert_same_structure(one.states, two.states)
  _assert_same(one, two)
  for left, right in zip(
    tf.nest.flatten((one.final_state, one.final_kernel_results)),
    tf.nest.flatten((two.final_state, two.final_kernel_results)),
  ):
    np.testing.assert_array_equal(left, right)


@pytest.mark.full
def test_compiled_runs_have_the_bits_of_memory_too(tmp_path):
  one = disk_runs.sample(jit_compile=True)
  _assert_same(one, disk_runs.sample(tmp_path, jit_compile=True))
  _assert_same(one, disk_runs.sample(tmp_path, jit_compile=True))


@pytest.mark.parametrize('num_saves', [0, 1, 3])
def test_a_run_cut_between_draws_and_state_goes_on_with_the_same_bits(
  num_saves, tmp_path, monkeypatch
):
  _cut_run(monkeypatch, tmp_path, num_saves)
  _assert_same(disk_runs.sample(tmp_path), disk_runs.sample())


def test_half_a_file_that_a_killed_run_left_is_written_anew(
  tmp_path, monkeypatch
):
  # One coordinate at once: Zarr reads a file before it writes into its groups.
  monkeypatch.setattr(convergence, 'MOST_AT_ONCE', 33)
  _cut_run(monkeypatch, tmp_path, 3)
  left = tmp_path / 'draws.zarr/posterior/x/c.0.2.0'
  left.write_bytes(b'half')
  (left.parent / 'c.0.2.0.12.partial').write_bytes(b'half')
  _assert_same(disk_runs.sample(tmp_path), disk_runs.sample())
  assert not list(tmp_path.rglob('*.partial'))


@pytest.mark.parametrize(
  'damage', [pathlib.Path.unlink, lambda path: path.write_bytes(b'')]
)
def test_draws_that_the_state_counts_and_that_are_gone_are_told(
  damage, tmp_path, monkeypatch
):
  _cut_run(monkeypatch, tmp_path, 2)
  damage(tmp_path / 'draws.zarr/posterior/x/c.0.0.0')
  with pytest.raises(checkpoint_lib.CheckpointError, match='missing|changed'):
    disk_runs.sample(tmp_path)


def test_a_byte_that_changed_on_disk_is_told_when_it_is_read(tmp_path):
  result = disk_runs.sample(tmp_path)
  path = tmp_path / 'draws.zarr/posterior/x/c.0.1.0'
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)
  result.states[:4]
  with pytest.raises(checkpoint_lib.CheckpointError, match='cannot be read'):
    result.states[4:]


@pytest.mark.parametrize(
  'changes',
  [
    dict(seed=(1, 3)),
    dict(block_size=5),
    dict(num_results=12),
    dict(start=disk_runs.START + 1.0),
  ],
  ids=str,
)
def test_a_folder_of_another_run_is_refused(changes, tmp_path):
  disk_runs.sample(tmp_path)
  with pytest.raises(checkpoint_lib.CheckpointError, match='another'):
    disk_runs.sample(tmp_path, **changes)


def test_a_folder_of_other_files_is_refused_and_left_alone(tmp_path):
  (tmp_path / 'draws.zarr').mkdir()
  (tmp_path / 'notes').write_text('mine')
  with pytest.raises(
    checkpoint_lib.CheckpointError, match='holds draws.zarr, notes'
  ):
    disk_runs.sample(tmp_path)
  assert {p.name for p in tmp_path.iterdir()} == {'draws.zarr', 'notes'}


def test_draws_and_checkpoints_do_not_go_on_from_each_other(tmp_path):
  disk_runs.sample(tmp_path / 'a')
  disk_runs.sample(checkpoint_dir=tmp_path / 'b')
  with pytest.raises(checkpoint_lib.CheckpointError, match='as `draws_dir`'):
    disk_runs.sample(checkpoint_dir=tmp_path / 'a')
  with pytest.raises(checkpoint_lib.CheckpointError, match='`checkpoint_dir`'):
    disk_runs.sample(tmp_path / 'b')


def test_what_cannot_be_is_refused_before_anything_is_computed(
  tmp_path, monkeypatch
):
  for folder, options, words in (
    (
      'a',
      dict(checkpoint_dir=tmp_path / 'other'),
      'Leave out `checkpoint_dir`',
    ),
    ('a', dict(trace_fn=lambda *_: tf.constant('word')), 'but got string'),
  ):
    with pytest.raises(ValueError, match=words):
      disk_runs.sample(tmp_path / folder, **options)
  with folder_lock.held(tmp_path / 'c'):
    with pytest.raises(folder_lock.FolderError, match='in use'):
      disk_runs.sample(tmp_path / 'c')
  monkeypatch.setitem(sys.modules, 'zarr', None)
  with pytest.raises(ImportError, match='pip install "zarr>=3"'):
    disk_runs.sample(tmp_path / 'd')
  assert not (tmp_path / 'd').exists()


def test_a_full_disk_is_told_and_loses_only_the_block_being_written(
  tmp_path, monkeypatch
):
  put = zarr.storage.LocalStore.set

  async def filling(self, key, value):
    if f'{self.root}/{key}'.endswith('posterior/x/c.0.1.0'):
      raise OSError(errno.ENOSPC, 'No space left on device')
    await put(self, key, value)

  with monkeypatch.context() as patch:
    patch.setattr(zarr.storage.LocalStore, 'set', filling)
    with pytest.raises(
      checkpoint_lib.CheckpointError, match='No space left.*to continue'
    ):
      disk_runs.sample(tmp_path)
  header, _ = archive.unseal(tmp_path / 'state.npz')
  assert header['num_rows'] == 8  # Four of them discarded.
  _assert_same(disk_runs.sample(tmp_path), disk_runs.sample())


_CHILD = """
import sys
from tests.driver import disk_runs as here
here.sample(sys.argv[1], num_results=4000, block_size=40)
"""


@pytest.mark.nightly
def test_a_run_that_was_killed_goes_on_with_the_same_bits(tmp_path):
  child = subprocess.Popen(
    [sys.executable, '-c', _CHILD, str(tmp_path)],
    cwd=pathlib.Path(__file__).parents[2],
    stderr=subprocess.DEVNULL,
  )
  third = tmp_path / 'draws.zarr/posterior/x/c.0.3.0'
  while not third.exists():
    assert child.poll() is None, 'it ended before it was killed'
    os.sched_yield()
  child.send_signal(signal.SIGKILL)
  child.wait()
  options = dict(num_results=4000, block_size=40)
  _assert_same(
    disk_runs.sample(tmp_path, **options), disk_runs.sample(**options)
  )
