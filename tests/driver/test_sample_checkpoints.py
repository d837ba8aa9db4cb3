"""Checkpoints of `sample`: the same run is continued, and no other."""

import io
import json
import os

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.driver import archive
from tfp_adaptive.driver import checkpoint as checkpoint_lib
from tfp_adaptive.driver import folder_lock

_START = np.random.default_rng(4).normal(size=(3, 2))


def _kernel(num_adaptation_steps=4, target=targets.standard_normal):
  return tfpa.gradient_adaptive_langevin(target, num_adaptation_steps)


def _as_at_the_start(x):
  value = targets.standard_normal(x)
  return value + tf.reduce_sum(0.1 * (x - _START) * tf.ones_like(x), axis=-1)


def _sample(kernel=None, start=_START, **options):
  # Uncompiled: a block of these steps is traced faster than compiled.
  arguments = dict(
    num_results=5, seed=(1, 2), progress=False, jit_compile=False
  )
  arguments.update(options)
  return tfpa.sample(kernel or _kernel(), tf.constant(start), **arguments)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """Returns a finished run and the files that it wrote."""
  folder = tmp_path_factory.mktemp('run')
  run = _sample(num_results=8, block_size=4, checkpoint_dir=folder)
  return run, {path.name: path.read_bytes() for path in folder.iterdir()}


def _folder_with(tmp_path, files):
  for name, content in files.items():
    (tmp_path / name).write_bytes(content)
  return tmp_path


def _continue(folder, **options):
  arguments = dict(num_results=8, block_size=4, checkpoint_dir=folder)
  arguments.update(options)
  return _sample(**arguments)


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


def _langevin(**options):
  return tfpa.gradient_adaptive_langevin(targets.standard_normal, 4, **options)


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
    (dict(kernel=_langevin(target_accept_prob=0.6)), 'target_accept_prob'),
    (dict(kernel=_langevin(optimizer=tfpa.optimizers.adam(0.02))), 'a step'),
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
      _sample(checkpoint_dir=tmp_path)
  assert _sample(checkpoint_dir=tmp_path).states.shape == (5, *_START.shape)


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
