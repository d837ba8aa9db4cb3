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
from tests.driver import child
from tests.driver import test_sample
from tfp_adaptive.driver import archive
from tfp_adaptive.driver import checkpoint
from tfp_adaptive.driver import checkpoint as checkpoint_lib
from tfp_adaptive.driver import convergence
from tfp_adaptive.driver import folder_lock

zarr = pytest.importorskip('zarr', reason='draws_dir is an extra')

_START = test_sample.START
# One for all runs, so that its steps are traced once.
_KERNEL = test_sample._kernel()


def run_draws(folder=None, **options):
  """Returns a short run, whose draws are in `folder` where it is given."""
  options = dict(kernel=_KERNEL, num_results=11, block_size=4) | options
  return test_sample.run_short(draws_dir=folder, **options)


def _two_axes(x):
  """Returns the log-density of states of two axes."""
  return -0.5 * tf.reduce_sum(x**2, axis=(-2, -1))


def _reads(monkeypatch):
  """Returns a list that fills with (file, range) of what Zarr reads."""
  found, get = [], zarr.storage.LocalStore.get

  async def noted_get(self, key, prototype, byte_range=None):
    value = await get(self, key, prototype, byte_range)
    if value is not None and not key.endswith('.json'):
      found.append((f'{self.root}/{key}', str(byte_range)))
    return value

  monkeypatch.setattr(zarr.storage.LocalStore, 'get', noted_get)
  return found


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
    run_draws(folder, **options)


def _pair(a, b):
  return targets.standard_normal(a) + targets.standard_normal(b)


_STARTS = {
  'no chains': (targets.standard_normal, _START[0]),
  'an axis of one chain': (targets.standard_normal, _START[:1]),
  'float32': (targets.standard_normal, np.float32(_START)),
  'two chain axes': (
    _two_axes,
    np.random.default_rng(5).normal(size=(2, 3, 2, 2)),
  ),
  'list': (_pair, [_START, _START[:, :1]]),
  'dict': (
    lambda rate, loc: targets.standard_normal(loc) - 0.5 * rate**2,
    dict(rate=_START[:, 0], loc=_START),
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
  one, two = run_draws(**options), run_draws(tmp_path, **options)
  tf.nest.assert_same_structure(one.states, two.states)
  _assert_same(one, two)
  last = [(r.final_state, r.final_kernel_results) for r in (one, two)]
  tf.nest.map_structure(np.testing.assert_array_equal, *last)


@pytest.mark.full
def test_compiled_runs_have_the_bits_of_memory_too(tmp_path):
  one = run_draws(jit_compile=True)
  _assert_same(one, run_draws(tmp_path, jit_compile=True))
  _assert_same(one, run_draws(tmp_path, jit_compile=True))


@pytest.mark.parametrize('num_saves', [0, 1, 3])
def test_a_run_cut_between_draws_and_state_goes_on_with_the_same_bits(
  num_saves, tmp_path, monkeypatch
):
  _cut_run(monkeypatch, tmp_path, num_saves)
  _assert_same(run_draws(tmp_path), run_draws())


def test_half_a_file_that_a_killed_run_left_is_written_anew(
  tmp_path, monkeypatch
):
  # One coordinate at once: Zarr reads a file before it writes into its groups.
  monkeypatch.setattr(convergence, 'MOST_AT_ONCE', 33)
  _cut_run(monkeypatch, tmp_path, 3)
  left = tmp_path / 'draws.zarr/posterior/x/c.0.2.0'
  left.write_bytes(b'half')
  (left.parent / 'c.0.2.0.12.partial').write_bytes(b'half')
  _assert_same(run_draws(tmp_path), run_draws())
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
    run_draws(tmp_path)


def test_a_byte_that_changed_on_disk_is_told_when_it_is_read(tmp_path):
  result = run_draws(tmp_path)
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
    dict(start=_START + 1.0),
  ],
  ids=str,
)
def test_a_folder_of_another_run_is_refused(changes, tmp_path):
  run_draws(tmp_path)
  with pytest.raises(checkpoint_lib.CheckpointError, match='another'):
    run_draws(tmp_path, **changes)


def test_a_folder_of_other_files_is_refused_and_left_alone(tmp_path):
  (tmp_path / 'draws.zarr').mkdir()
  (tmp_path / 'notes').write_text('mine')
  with pytest.raises(
    checkpoint_lib.CheckpointError, match='holds draws.zarr, notes'
  ):
    run_draws(tmp_path)
  assert {p.name for p in tmp_path.iterdir()} == {'draws.zarr', 'notes'}


def test_draws_and_checkpoints_do_not_go_on_from_each_other(tmp_path):
  run_draws(tmp_path / 'a')
  run_draws(checkpoint_dir=tmp_path / 'b')
  with pytest.raises(checkpoint_lib.CheckpointError, match='as `draws_dir`'):
    run_draws(checkpoint_dir=tmp_path / 'a')
  with pytest.raises(checkpoint_lib.CheckpointError, match='`checkpoint_dir`'):
    run_draws(tmp_path / 'b')


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
      run_draws(tmp_path / folder, **options)
  with folder_lock.held(tmp_path / 'c'):
    with pytest.raises(folder_lock.FolderError, match='in use'):
      run_draws(tmp_path / 'c')
  monkeypatch.setitem(sys.modules, 'zarr', None)
  with pytest.raises(ImportError, match='pip install "zarr>=3"'):
    run_draws(tmp_path / 'd')
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
      run_draws(tmp_path)
  header, _ = archive.unseal(tmp_path / 'state.npz')
  assert header['num_rows'] == 8  # Four of them discarded.
  _assert_same(run_draws(tmp_path), run_draws())


_CHILD = """
import sys
from tests.driver import test_draws_on_disk as here
here.run_draws(sys.argv[1], num_results=4000, block_size=40)
"""


@pytest.mark.nightly
def test_a_run_that_was_killed_goes_on_with_the_same_bits(tmp_path):
  process = subprocess.Popen(
    [sys.executable, '-c', _CHILD, str(tmp_path)],
    cwd=pathlib.Path(__file__).parents[2],
    stderr=subprocess.DEVNULL,
  )
  third = tmp_path / 'draws.zarr/posterior/x/c.0.3.0'
  while not third.exists():
    assert process.poll() is None, 'it ended before it was killed'
    os.sched_yield()
  process.send_signal(signal.SIGKILL)
  process.wait()
  options = dict(num_results=4000, block_size=40)
  _assert_same(run_draws(tmp_path, **options), run_draws(**options))


# Draws on disk read as numpy's own arrays, in summaries and in ArviZ.


def test_draws_that_are_gone_are_no_numbers_in_their_place(tmp_path):
  result = run_draws(tmp_path)
  (tmp_path / 'draws.zarr/posterior/x/c.0.1.0').unlink()
  assert np.isfinite(result.states[:4]).all()
  for wanted in (slice(None), 5, slice(3, 5), slice(None, None, -1)):
    with pytest.raises(checkpoint.CheckpointError, match='is missing'):
      result.states[wanted]
  for path in (tmp_path / 'draws.zarr/sample_stats/diverging').glob('c.*'):
    path.unlink()
  with pytest.raises(checkpoint.CheckpointError, match='is missing'):
    result.trace['diverging'][...]


@pytest.fixture(scope='module')
def pair(tmp_path_factory):
  """Returns a run of two parts in memory and the same one on disk."""
  kernel = tfpa.gradient_adaptive_langevin(
    lambda a, b: _two_axes(a) - 0.5 * b**2, 4
  )
  start = np.random.default_rng(6).normal(size=(2, 3, 4, 3))
  options = dict(kernel=kernel, start=[start, start[..., 0, 0]])
  options.update(num_results=130, block_size=20)
  with pytest.MonkeyPatch.context() as patch:
    # Four coordinates at once.
    patch.setattr(convergence, 'MOST_AT_ONCE', 4 * 6 * 130)
    with pytest.warns(UserWarning):
      options['folder'] = tmp_path_factory.mktemp('run')
      return (
        run_draws(**dict(options, folder=None)),
        run_draws(**options),
        options,
      )


@pytest.mark.parametrize(
  'key',
  [
    -1,
    slice(3, 50),
    slice(100, 20),
    (slice(None), 1),
    (Ellipsis, 2),
    (slice(90, 1, -7), slice(None, None, -1), 0, slice(1, None), 1),
  ],
  ids=str,
)
def test_slices_are_those_of_the_array(key, pair):
  one, two = pair[0].states[0], pair[1].states[0]
  found = two[key]
  assert np.shape(found) == one[key].shape
  np.testing.assert_array_equal(found, one[key])


def test_rows_means_and_any_go_by_blocks(pair):
  one, two = pair[0], pair[1]
  np.testing.assert_array_equal(list(two.states[1]), one.states[1])
  np.testing.assert_array_equal(
    np.concatenate(list(two.states[1].blocks())), one.states[1]
  )
  for axis in (None, 0, (0, 1), (0, -1)):
    np.testing.assert_allclose(
      np.mean(two.states[0], axis=axis), one.states[0].mean(axis), rtol=1e-12
    )
  accepted = two.trace['is_accepted']
  assert np.mean(accepted) == one.trace['is_accepted'].mean()
  np.testing.assert_array_equal(
    np.any(accepted, axis=0), one.trace['is_accepted'].any(axis=0)
  )


def test_the_summary_is_that_of_memory(pair):
  one, two = pair[0].run, pair[1].run
  assert set(one['worst']) == set(convergence.Diagnosis._fields)
  for field, (value, place) in one['worst'].items():
    np.testing.assert_allclose(two['worst'][field][0], value, rtol=1e-12)
    assert two['worst'][field][1] == place
  assert one['worst_of_every'] == two['worst_of_every'] == 1


def test_the_tree_is_that_of_memory_and_opens_without_its_draws(
  pair, monkeypatch
):
  xarray = pytest.importorskip('xarray', reason='named draws are an extra')
  expected, found = pair[0].to_arviz(), _reads(monkeypatch)
  tree = pair[1].to_arviz()
  assert not [file for file, _ in found if '/x0/' in file or '/lp/' in file]
  assert set(tree.children) == {'posterior', 'sample_stats'}
  for group in tree.children:
    xarray.testing.assert_identical(
      expected[group].to_dataset().drop_attrs(),
      tree[group].to_dataset().drop_attrs(),
    )
  same = ('kernel', 'tuning_steps', 'num_gradients', 'steps_per_result')
  assert all(tree.attrs[name] == expected.attrs[name] for name in same)
  named = pair[1].to_arviz(['loc', 'scale']).posterior
  assert named['loc'].dims == ('chain', 'draw', 'loc_dim_0', 'loc_dim_1')
  np.testing.assert_array_equal(named['scale'], expected.posterior['x1'])
  with pytest.raises(ValueError, match='need 2 different names without'):
    pair[1].to_arviz(['loc'])


# The memory of a process that runs long, in processes of their own.


_LIMITED = """
import pathlib
import resource
import sys
import warnings
import numpy as np
import tensorflow as tf
import tfp_adaptive as tfpa

folder, = sys.argv[1:] or [None]
tf.zeros([1]).numpy()
text = pathlib.Path('/proc/self/status').read_text()
(line,) = (x for x in text.splitlines() if x.startswith('VmData:'))
# The system refuses more than 700 MiB beyond what importing TensorFlow took.
limit = 1024 * int(line.split()[1]) + 700 * 2**20
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
warnings.simplefilter('ignore')
scales = np.geomspace(0.1, 10.0, 1000).astype(np.float32)
kernel = tfpa.gradient_adaptive_langevin(
  lambda x: -0.5 * tf.reduce_sum((x / scales) ** 2, axis=-1),
  2000,
  preconditioner=tfpa.preconditioners.diagonal(),
)
start = scales * tf.random.stateless_normal([4, 1000], seed=(0, 1))
result = tfpa.sample(
  kernel, start, 25_000, seed=1, progress=False, draws_dir=folder
)
print(result.states.shape, result.run['worst_of_every'])
"""


@pytest.mark.nightly
def test_draws_on_disk_need_no_memory_that_grows_with_them(tmp_path):
  pytest.importorskip('zarr', reason='draws_dir is an extra')
  # The summary is of all draws, not of one in several.
  told = child.run('-c', _LIMITED, tmp_path)
  assert told.split() == ['(25000,', '4,', '1000)', '1']
  # The negative control: draws of 400 MB and their summary do not fit.
  with pytest.raises(AssertionError):
    child.run('-c', _LIMITED)
