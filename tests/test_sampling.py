"""`tfpa.sample`: what it says, records, and continues from."""

import io
import json
import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.internal import checkpoint as checkpoint_lib

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


@pytest.mark.parametrize('value', [-np.inf, np.nan, np.inf])
def test_starts_without_finite_density_are_refused_by_chain(value):
  def target(x):
    inside = targets.standard_normal(x)
    return tf.where(x[:, 0] > 0.0, inside, tf.constant(value, x.dtype))

  start = np.abs(_START)
  start[1] *= -1.0
  with pytest.raises(ValueError, match='start of chain 1 ') as error:
    _sample(_kernel(target=target), start)
  assert 'chain 0' not in str(error.value)
  assert 'chain 2' not in str(error.value)


def test_many_bad_starts_are_counted_not_listed():
  def never(x):
    return np.nan * tf.reduce_sum(x, axis=-1)

  with pytest.raises(ValueError, match='and 15 more'):
    _sample(_kernel(target=never), np.ones([25, 2]))


@pytest.mark.slow
def test_chains_that_never_moved_are_named():
  # Chain 1 starts on a point so dense that no move away is ever accepted.
  def spiked(x):
    is_spike = tf.reduce_all(tf.equal(x, 9.0), axis=-1)
    density = targets.standard_normal(x)
    return tf.where(is_spike, tf.constant(1e4, x.dtype), density)

  start = np.array([[0.1, 0.2], [9.0, 9.0], [0.3, 0.1]])
  kernel = tfpa.adaptive_metropolis(
    spiked, 0, preconditioner=tfpa.preconditioners.cholesky(init_scale=0.5)
  )
  with pytest.warns(UserWarning, match=r'No move was accepted .* chain 1\.'):
    _sample(kernel, start, num_results=30)


@pytest.mark.slow
def test_diverging_proposals_are_warned_of_and_traced():
  def half(x):
    inside = targets.standard_normal(x)
    return tf.where(x[:, 0] > 0.0, inside, tf.constant(-np.inf, x.dtype))

  with pytest.warns(UserWarning, match='diverged'):
    run = _sample(_kernel(target=half), np.abs(_START), num_results=40)
  assert 0.01 < run.trace['diverging'].mean() < 1.0
  assert np.all(run.states[..., 0] > 0.0)


@pytest.fixture(scope='module')
def plain_run():
  """Returns an ordinary run with an extra trace and what it wrote."""
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    run = _sample(
      num_results=30,
      num_burnin_steps=7,
      trace_fn=lambda state, results: {
        'sum': tf.reduce_sum(state, axis=-1),
        'step': results.step,
      },
    )
  return run, caught


def test_the_larger_of_adaptation_and_burnin_is_discarded(plain_run):
  run, _ = plain_run
  assert int(run.final_kernel_results.step) == 7 + 30
  np.testing.assert_array_equal(
    run.adaptation_trace['extra']['step'], 1 + np.arange(7)
  )
  np.testing.assert_array_equal(run.trace['extra']['step'], 8 + np.arange(30))


def test_the_trace_is_lean_and_shaped_by_chains(plain_run):
  run, _ = plain_run
  for name in (
    'target_log_prob',
    'is_accepted',
    'log_accept_ratio',
    'diverging',
  ):
    assert run.trace[name].shape == (30, 3)
    assert run.adaptation_trace[name].shape == (7, 3)
  for name in (
    'mean_accept_prob',
    'num_dropped_gradients',
    'entropy_weight',
    'log_scale',
  ):
    assert run.trace[name].shape == (30,)
  assert run.trace['is_accepted'].dtype == bool
  np.testing.assert_allclose(
    run.trace['target_log_prob'], targets.standard_normal(run.states)
  )


def test_trace_fn_is_recorded_beside_the_default_trace(plain_run):
  run, _ = plain_run
  np.testing.assert_allclose(
    run.trace['extra']['sum'], run.states.sum(axis=-1), rtol=1e-12
  )


def test_arrays_are_on_the_host_and_seconds_are_told(plain_run):
  run, _ = plain_run
  assert isinstance(run.states, np.ndarray)
  assert all(isinstance(a, np.ndarray) for a in tf.nest.flatten(run.trace))
  assert set(run.seconds) == {'compile', 'adaptation', 'sampling'}
  assert all(seconds >= 0.0 for seconds in run.seconds.values())


def test_an_ordinary_run_gives_no_warning(plain_run):
  _, caught = plain_run
  assert not [w for w in caught if w.category is UserWarning]


@pytest.mark.slow
def test_a_bound_reached_by_the_adaptation_is_warned_of():
  kernel = tfpa.gradient_adaptive_langevin(
    targets.standard_normal,
    4,
    criterion=tfpa.criteria.generalized_speed_measure(
      0.5, max_entropy_weight=1e-5, min_entropy_weight=1e-6
    ),
  )
  with pytest.warns(UserWarning, match='`entropy_weight` at its bound'):
    _sample(kernel, num_results=20)


@pytest.mark.slow
def test_kernels_of_tfp_are_driven_too():
  kernel = tfp.mcmc.HamiltonianMonteCarlo(targets.standard_normal, 0.5, 2)
  run = _sample(kernel, num_results=6, num_burnin_steps=2)
  assert run.states.shape == (6, 3, 2)
  assert run.trace['is_accepted'].shape == (6, 3)
  assert np.any(run.states[0] != run.states[-1])


@pytest.mark.slow
def test_structures_of_states_come_back_as_they_were():
  start = {'b': tf.ones([3, 2]), 'a': tf.zeros([3])}
  kernel = _kernel(
    target=lambda a, b: -0.5 * (a**2 + tf.reduce_sum(b**2, axis=-1))
  )
  run = tfpa.sample(
    kernel, start, 4, seed=(1, 2), progress=False, jit_compile=False
  )
  assert set(run.states) == {'a', 'b'}
  assert run.states['a'].shape == (4, 3)
  assert run.states['b'].shape == (4, 3, 2)
  assert run.states['b'].dtype == np.float32


@pytest.mark.slow
def test_a_single_chain_without_chain_dimension_runs():
  run = tfpa.sample(
    _kernel(), tf.ones([2]), 4, seed=(1, 2), progress=False, jit_compile=False
  )
  assert run.states.shape == (4, 2)
  assert run.trace['is_accepted'].shape == (4,)


def test_a_target_that_xla_cannot_compile_is_named_by_its_op():
  def target(x):
    matrix = tf.eye(2, dtype=x.dtype) + 0.0 * x[:, :1, tf.newaxis]
    return targets.standard_normal(x) + tf.linalg.slogdet(matrix)[1]

  with pytest.raises(ValueError, match='(?s)cannot be compiled.*jit_compile'):
    _sample(_kernel(target=target), jit_compile=True)


@pytest.mark.slow
def test_an_int_seed_repeats_the_run():
  one = _sample(num_results=2, seed=5)
  two = _sample(num_results=2, seed=5)
  np.testing.assert_array_equal(one.states, two.states)


def test_progress_writes_lines_when_there_is_no_terminal(capsys):
  _sample(num_results=3, progress=True)
  written = capsys.readouterr().err
  assert '7/7' in written and 'steps/s' in written


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


def test_a_finished_run_is_read_back_without_a_step(finished, tmp_path):
  run, files = finished
  again = _continue(_folder_with(tmp_path, files))
  np.testing.assert_array_equal(again.states, run.states)
  # Not a step was taken: the wall times are those of the first run.
  assert again.seconds == run.seconds


def test_a_checkpoint_cut_after_its_first_blocks_is_refused(finished, tmp_path):
  _, files = finished
  folder = _folder_with(tmp_path, files)
  (folder / 'block_000002.npz').unlink()
  with pytest.raises(
    checkpoint_lib.CheckpointError, match='block_000002.*missing'
  ):
    _continue(folder)


@pytest.mark.parametrize('name', ['state.npz', 'block_000001.npz'])
@pytest.mark.parametrize('damage', ['flipped', 'truncated', 'empty'])
def test_damaged_files_are_refused_by_name(finished, tmp_path, name, damage):
  _, files = finished
  content = files[name]
  damaged = {
    'flipped': _flip(content, len(content) // 2),
    'truncated': content[: len(content) // 2],
    'empty': b'',
  }[damage]
  folder = _folder_with(tmp_path, dict(files, **{name: damaged}))
  with pytest.raises(checkpoint_lib.CheckpointError, match=name):
    _continue(folder)
  # Nothing was half-loaded or overwritten.
  assert (folder / name).read_bytes() == damaged


def test_a_flipped_byte_of_the_state_is_refused_or_changes_nothing(
  finished, tmp_path
):
  # Bytes of zip metadata that no array needs may differ without harm.
  _, files = finished
  content = files['state.npz']
  with np.load(io.BytesIO(content)) as stored:
    run = json.loads(str(stored['header']))['run']
    start_values = stored['start_values']
  folder = _folder_with(tmp_path, files)

  def load():
    return checkpoint_lib.Checkpoint(folder, run, start_values).load()

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


@pytest.mark.parametrize(
  'options, difference',
  [
    (dict(seed=(1, 3)), 'seed'),
    (dict(num_results=9), 'num_results'),
    (dict(num_burnin_steps=9), 'num_discarded'),
    (dict(num_steps_between_results=1), 'steps_per_result'),
    (dict(kernel=_kernel(5)), 'num_discarded'),
    (
      dict(
        kernel=tfpa.gradient_adaptive_random_walk(targets.standard_normal, 4)
      ),
      'kernel',
    ),
    (
      dict(kernel=_kernel(target=lambda x: 2.0 * targets.standard_normal(x))),
      'the target',
    ),
    (
      # The same log density at the starts, another gradient.
      dict(kernel=_kernel(target=_as_at_the_start)),
      'the target',
    ),
    (
      dict(
        kernel=tfpa.gradient_adaptive_langevin(
          targets.standard_normal, 4, target_accept_prob=0.6
        )
      ),
      'target_accept_prob .saved .0.55., asked for .0.6.',
    ),
    (
      dict(kernel=_kernel(), trace_fn=lambda state, _: state[:, 0]),
      'recorded',
    ),
    (dict(start=_START[:2]), 'leaves'),
    (dict(start=_START.astype(np.float32)), 'leaves'),
    (dict(start=_START + 1.0), 'the start'),
    (dict(start=-_START), 'the start'),
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
