"""Checkpoint folders: what is saved comes back, or nothing does."""

import errno
import io
import json
import os
import stat

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tests.driver import test_sample
from tfp_adaptive.driver import archive
from tfp_adaptive.driver import checkpoint as checkpoint_lib
from tfp_adaptive.driver import folder_lock

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


# Checkpoints of `sample`: the same run is continued, and no other.


_START, _kernel = test_sample.START, test_sample._kernel


def _as_at_the_start(x):
  value = targets.standard_normal(x)
  return value + tf.reduce_sum(0.1 * (x - _START) * tf.ones_like(x), axis=-1)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """Returns a finished run and the files that it wrote."""
  folder = tmp_path_factory.mktemp('run')
  run = test_sample.run_short(
    num_results=8, block_size=4, checkpoint_dir=folder
  )
  return run, {path.name: path.read_bytes() for path in folder.iterdir()}


def _folder_with(tmp_path, files):
  for name, content in files.items():
    (tmp_path / name).write_bytes(content)
  return tmp_path


def _continue(folder, **options):
  arguments = dict(num_results=8, block_size=4, checkpoint_dir=folder)
  arguments.update(options)
  return test_sample.run_short(**arguments)


@pytest.mark.full
def test_a_finished_run_is_read_back_without_a_step(finished, tmp_path):
  run, files = finished
  again = _continue(_folder_with(tmp_path, files))
  np.testing.assert_array_equal(again.states, run.states)
  # Not a step was taken: the wall times are those of the first run.
  assert again.seconds == run.seconds


def test_blocks_of_discarded_steps_have_no_states(finished):
  run, files = finished
  sizes = [
    len(np.load(io.BytesIO(files[f'block_{i:06d}.npz']))['0']) for i in range(3)
  ]
  assert sizes == [0, 4, 4]
  # Nor has the memory of a run.
  assert run.states.base.nbytes == run.states.nbytes


def test_a_checkpoint_cut_after_its_first_blocks_is_refused(finished, tmp_path):
  _, files = finished
  folder = _folder_with(tmp_path, files)
  (folder / 'block_000002.npz').unlink()
  with pytest.raises(
    checkpoint_lib.CheckpointError, match='block_000002.*missing'
  ):
    _continue(folder)


@pytest.fixture
def loading(finished, tmp_path):
  """Returns a folder with the files, and a function that loads from it."""
  _, files = finished
  with np.load(io.BytesIO(files['state.npz'])) as stored:
    run = json.loads(str(stored['header']))['run']
  folder = _folder_with(tmp_path, files)

  def load():
    leaves, step, blocks, seconds = checkpoint_lib.Checkpoint(
      folder, run
    ).load()
    return leaves, step, list(blocks), seconds

  return folder, load


@pytest.mark.parametrize('name', ['state.npz', 'block_000001.npz'])
@pytest.mark.parametrize('damage', ['flipped', 'truncated', 'empty'])
def test_damaged_files_are_refused_by_name(loading, name, damage):
  folder, load = loading
  content = (folder / name).read_bytes()
  damaged = {
    'flipped': _flip(content, len(content) // 2),
    'truncated': content[: len(content) // 2],
    'empty': b'',
  }[damage]
  (folder / name).write_bytes(damaged)
  with pytest.raises(checkpoint_lib.CheckpointError, match=name):
    load()
  # Nothing was overwritten.
  assert (folder / name).read_bytes() == damaged


def test_a_flipped_byte_of_the_state_is_refused_or_changes_nothing(loading):
  # Bytes of zip metadata that no array needs may differ without harm.
  folder, load = loading
  content = (folder / 'state.npz').read_bytes()
  expected, num_refused = load(), 0
  for position in np.linspace(0, len(content) - 1, 80).astype(int):
    (folder / 'state.npz').write_bytes(_flip(content, position))
    try:
      loaded = load()
    except checkpoint_lib.CheckpointError as error:
      assert 'state.npz is damaged' in str(error)
      num_refused += 1
      continue
    assert loaded[1] == expected[1]
    for one, two in zip(loaded[0], expected[0], strict=True):
      np.testing.assert_array_equal(one, two)
  assert num_refused > 40


def _flip(content, position):
  changed = bytearray(content)
  changed[position] ^= 0x10
  return bytes(changed)


@pytest.mark.full
@pytest.mark.parametrize(
  'options, difference',
  [
    (dict(seed=(1, 3)), 'seed'),
    (dict(num_results=9), 'num_results'),
    (dict(kernel=_kernel(5)), 'num_discarded'),
    (
      dict(kernel=tfpa.adaptive_metropolis(targets.standard_normal, 4)),
      'kernel',
    ),
    # The same log density at the starts, another gradient.
    (dict(kernel=_kernel(target=_as_at_the_start)), 'the target'),
    # A datum corrected in its ninth digit.
    (
      dict(kernel=_kernel(target=lambda x: targets.standard_normal(x - 1e-9))),
      'the target.*1e-09',
    ),
    (dict(kernel=_kernel(target_accept_prob=0.6)), 'target_accept_prob'),
    (dict(kernel=_kernel(optimizer=tfpa.optimizers.adam(0.02))), 'a step'),
    (dict(kernel=_kernel(), trace_fn=lambda state, _: state[:, 0]), 'recorded'),
    (dict(start=_START + 1e-9), 'the start'),
    (dict(jit_compile=True), 'jit_compile'),
  ],
  ids=lambda value: value if isinstance(value, str) else '',
)
def test_checkpoints_of_another_run_are_refused_by_what_differs(
  finished, tmp_path, options, difference
):
  _, files = finished
  folder = _folder_with(tmp_path, files)
  with pytest.raises(
    checkpoint_lib.CheckpointError, match=f'another run.*{difference}'
  ):
    _continue(folder, **options)
  assert (folder / 'state.npz').read_bytes() == files['state.npz']


@pytest.mark.full
def test_a_folder_in_use_is_refused_by_its_holder(tmp_path):
  with folder_lock.held(tmp_path):
    with pytest.raises(RuntimeError, match=f'in use by process {os.getpid()}'):
      test_sample.run_short(checkpoint_dir=tmp_path)
  assert test_sample.run_short(checkpoint_dir=tmp_path).states.shape == (
    5,
    *_START.shape,
  )


def test_a_file_that_may_not_be_read_is_not_called_damaged(
  tmp_path, monkeypatch
):
  path = tmp_path / 'state.npz'
  path.write_bytes(archive.seal({}, dict(x=np.arange(3))))

  def refused(*args, **kwargs):
    raise PermissionError(13, 'Permission denied')

  with monkeypatch.context() as patch, pytest.raises(PermissionError):
    patch.setattr(np, 'load', refused)
    archive.unseal(path)
  assert archive.unseal(path)[1]['x'].tolist() == [0, 1, 2]
  whole = path.read_bytes()
  shifted = whole[:-6] + bytes([whole[-6] ^ 128]) + whole[-5:]
  for content in (b'', whole[:100], b'PK' + bytes(100), shifted):
    path.write_bytes(content)
    with pytest.raises(archive.Damaged):
      archive.unseal(path)
