"""Checkpoint folders: what is saved comes back, or nothing does."""

import errno
import os
import stat

import numpy as np
import pytest

from tfp_adaptive.driver import archive
from tfp_adaptive.driver import checkpoint as checkpoint_lib

_SECONDS = {'compile': 1.5, 'adapt': 0.25, 'sample': 2.0}
_RUN = dict(
  kernel=['A', 'B'],
  seed=[1, 2],
  num_results=10,
  settings={},
  start=['float64[2] 0f'],
  start_program=dict(digest='12', contents={}),
  step_program=dict(digest='34', contents={}),
)


def _checkpoint(folder, **changed):
  return checkpoint_lib.Checkpoint(folder, dict(_RUN, **changed))


def _leaves(step):
  return [
    np.full([2, 3], step, np.float64),
    np.array(step, np.int32),
    np.array([True, False]),
  ]


def _block(step):
  return [np.full([4, 2], step, np.float32), np.arange(4) > step]


def _saved(folder, num_blocks=3):
  checkpoint = _checkpoint(folder)
  for step in range(num_blocks):
    checkpoint.save(_leaves(step), step, _block(step), _SECONDS)
  return folder


def test_what_was_saved_comes_back_bit_by_bit(tmp_path):
  leaves, step, blocks, seconds = _checkpoint(_saved(tmp_path)).load()
  assert seconds == _SECONDS
  blocks = list(blocks)
  assert step == 2 and len(blocks) == 3
  for one, two in zip(leaves, _leaves(2), strict=True):
    assert one.dtype == two.dtype
    np.testing.assert_array_equal(one, two)
  for index, block in enumerate(blocks):
    for one, two in zip(block, _block(index), strict=True):
      assert one.dtype == two.dtype
      np.testing.assert_array_equal(one, two)


def _assert_the_last_block_alone_is_lost(folder):
  """Asserts that three blocks are there, and that saving goes on."""
  again = _checkpoint(folder)
  _, step, blocks, _ = again.load()
  assert step == 2 and len(list(blocks)) == 3
  again.save(_leaves(3), 3, _block(3), _SECONDS)
  _, step, blocks, _ = _checkpoint(folder).load()
  assert step == 3 and len(list(blocks)) == 4


def test_a_kill_between_block_and_state_loses_only_that_block(
  tmp_path, monkeypatch
):
  checkpoint = _checkpoint(_saved(tmp_path))
  checkpoint.load()
  write, written = checkpoint_lib._write, []

  def dying_write(path, content):
    if written:
      raise KeyboardInterrupt
    written.append(path)
    write(path, content)

  with monkeypatch.context() as patch:
    patch.setattr(checkpoint_lib, '_write', dying_write)
    with pytest.raises(KeyboardInterrupt):
      checkpoint.save(_leaves(3), 3, _block(3), _SECONDS)
  assert [path.name for path in written] == ['block_000003.npz']
  _assert_the_last_block_alone_is_lost(tmp_path)


def test_a_swapped_block_is_refused(tmp_path):
  _saved(tmp_path)
  one, two = tmp_path / 'block_000000.npz', tmp_path / 'block_000001.npz'
  one.write_bytes(two.read_bytes())
  with pytest.raises(checkpoint_lib.CheckpointError, match=one.name):
    _checkpoint(tmp_path).load()


@pytest.mark.parametrize('missing', ['header', 'digest', None])
def test_a_rewritten_state_with_valid_zip_is_refused(tmp_path, missing):
  _saved(tmp_path)
  path = tmp_path / 'state.npz'
  with np.load(path) as stored:
    arrays = {k: v for k, v in stored.items() if k != missing}
  arrays['0'] = arrays['0'] + 1e-12
  np.savez(path, **arrays)
  with pytest.raises(checkpoint_lib.CheckpointError, match='checksum|header'):
    _checkpoint(tmp_path).load()


def test_another_run_is_refused_by_what_differs(tmp_path):
  _saved(tmp_path)
  with pytest.raises(checkpoint_lib.CheckpointError, match='seed') as error:
    _checkpoint(tmp_path, seed=[1, 3]).load()
  assert 'num_results' not in str(error.value)
  other = dict(digest='56', contents=dict(numbers=['float64 2.0']))
  with pytest.raises(checkpoint_lib.CheckpointError, match='target.*2.0'):
    _checkpoint(tmp_path, start_program=other).load()


@pytest.mark.parametrize('failing', ['fsync', 'replace'])
def test_a_full_disk_is_told_and_loses_only_the_block_being_written(
  tmp_path, monkeypatch, failing
):
  checkpoint = _checkpoint(_saved(tmp_path))
  checkpoint.load()

  def full(*_):
    raise OSError(errno.ENOSPC, 'No space left on device')

  with monkeypatch.context() as patch:
    patch.setattr(archive.os, failing, full)
    with pytest.raises(
      checkpoint_lib.CheckpointError, match='No space left.*to continue'
    ):
      checkpoint.save(_leaves(3), 3, _block(3), _SECONDS)
  assert not list(tmp_path.glob('*.tmp'))
  _assert_the_last_block_alone_is_lost(tmp_path)


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
  path, done = tmp_path / 'file', []
  fsync, replace = os.fsync, os.replace

  def noted_fsync(descriptor):
    found = os.fstat(descriptor)
    is_folder = stat.S_ISDIR(found.st_mode)
    done.append('folder' if is_folder else f'{found.st_size} bytes')
    fsync(descriptor)

  def noted_replace(*names):
    done.append('renamed')
    replace(*names)

  monkeypatch.setattr(archive.os, 'fsync', noted_fsync)
  monkeypatch.setattr(archive.os, 'replace', noted_replace)
  archive.write(path, b'12345')
  assert done == ['5 bytes', 'renamed', 'folder']
  assert path.read_bytes() == b'12345'
