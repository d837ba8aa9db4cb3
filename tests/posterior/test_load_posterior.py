"""A saved posterior is the same posterior, and goes on with the same bits."""

import copy
import types
import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.driver import changed_runs
from tfp_adaptive.driver import archive
from tfp_adaptive.driver import progress
from tfp_adaptive.posterior import chains as chains_lib
from tfp_adaptive.posterior import density as density_lib
from tfp_adaptive.posterior import run_file
from tfp_adaptive.posterior import saved as saved_lib
from tfp_adaptive.posterior.engines import recorded
from tfp_adaptive.posterior.model import problem as problem_lib
from tfp_adaptive.posterior.plan import Place
from tfp_adaptive.posterior.posterior import Posterior
from tfp_adaptive.posterior.posterior import Stage
from tfp_adaptive.posterior.structures import structure

tfb = tfp.bijectors
tfd = tfp.distributions

_INIT = dict(
  place=tf.TensorSpec([2], tf.float64), scale=tf.TensorSpec([], tf.float64)
)
_BIJECTORS = dict(scale=tfb.Exp())


def _density(shift=0.0):
  def log_prob(place, scale):
    square = tf.reduce_sum((place - shift) ** 2, axis=-1)
    return -0.5 * square - scale

  return log_prob


def _posterior(choice):
  """Returns a `Posterior` without the search for its structure."""
  problem = problem_lib.of_density(_density(), _INIT, _BIJECTORS, 4)
  chains = _started(problem, choice, num_adaptation_steps=60, num_draws=100)
  chains.run_block()
  chains.run_block()  # Chains are full: every second draw has gone.
  return Posterior(
    problem, chains, [Stage('look', 'x', 1.5, 2.0)], 10.0, '`max_seconds`'
  )


def _started(problem, choice, num_adaptation_steps, num_draws):
  """Returns `Chains` of a problem, adapted and with a first block."""
  density = density_lib.Density(problem, 4)
  starts = problem.draw_starts(4, [1, 2])
  engine = chains_lib.engine_of(
    density, choice, starts, [1, 2], num_adaptation_steps, False
  )
  return chains_lib.start(
    engine, choice, density, num_draws, recorded.Options()
  )


def _loaded(path, density=None, **changed):
  options = dict(init=_INIT, bijectors=_BIJECTORS) | changed
  return tfpa.load_posterior(path, density or _density(), **options)


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
  """Returns a posterior behind a conditional map, and its file."""
  choice = structure.rebuilt('conditional Gaussian', 3, {}, [2], [0.5])
  posterior = _posterior(choice)
  path = tmp_path_factory.mktemp('saved') / 'made' / 'posterior.npz'
  posterior.save(path)
  return posterior, path


def _assert_same_draws(one, two):
  both = [(p.states, p.trace) for p in (one, two)]
  tf.nest.map_structure(np.testing.assert_array_equal, *both)


@pytest.mark.full
def test_what_is_loaded_is_what_was_saved(saved):
  posterior, path = saved
  loaded = _loaded(path)
  _assert_same_draws(loaded, posterior)
  assert repr(loaded) == repr(posterior) and loaded.thinning == 2
  assert loaded.choice == 'conditional Gaussian'
  assert loaded.report == posterior.report
  started = [
    p.kernel.bootstrap_results(p.unconstrained[-1]) for p in (loaded, posterior)
  ]
  tf.nest.map_structure(np.testing.assert_array_equal, *started)


@pytest.mark.full
def test_it_goes_on_with_the_same_bits(saved):
  posterior, path = saved
  before = posterior.unconstrained
  more, again = posterior.more(100), _loaded(path).more(100)
  _assert_same_draws(again, more)
  assert len(more.unconstrained) == len(before) + 100
  np.testing.assert_array_equal(more.unconstrained[: len(before)], before)
  assert more.num_gradients > posterior.num_gradients
  # Power: noise of other steps is other noise.
  chains = copy.copy(posterior._chains)
  chains.engine = copy.copy(chains.engine)
  chains.engine.num_steps += 1
  chains.extend_to(200)
  chains.run_block()
  count = len(chains.draws)
  assert np.any(chains.draws != more.unconstrained[:count])


@pytest.mark.full
def test_another_model_is_refused(saved):
  path = saved[1]
  with pytest.raises(ValueError, match='or other data: log density where'):
    _loaded(path, _density(shift=0.1))
  other = dict(_INIT, place=tf.TensorSpec([3], tf.float64))
  with pytest.raises(ValueError, match=r'3 coordinates \(place\[0\].* 4 '):
    _loaded(path, init=other)
  single = {name: tf.TensorSpec(spec.shape) for name, spec in _INIT.items()}
  with pytest.raises(ValueError, match='float64.*float32'):
    _loaded(path, init=single)


@pytest.mark.full
def test_a_model_that_differs_only_far_from_the_chains_is_told(saved):
  posterior, path = saved
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    _loaded(path)

  def other(place, scale):
    # A prior that is felt only far from the chains.
    far = tf.nn.relu(tf.reduce_sum(place**2, axis=-1) - 1e6)
    return _density()(place, scale) - far

  with pytest.warns(UserWarning, match='another program of the log density'):
    found = _loaded(path, other)
  np.testing.assert_array_equal(found.unconstrained, posterior.unconstrained)
  with pytest.raises(ValueError, match='has changed since the draws were made'):
    found.more(10)
  # The draws do not become those of the other model when they are saved.
  found.save(path.with_name('again.npz'))
  with pytest.warns(UserWarning, match='another program of the log density'):
    _loaded(path.with_name('again.npz'), other)
  problem = problem_lib.of_density(other, _INIT, _BIJECTORS, 4)
  with pytest.raises(ValueError, match='or another `checkpoint_dir`'):
    saved_lib.restore(path, *saved_lib.read(path), problem)


@pytest.mark.full
def test_files_that_are_none_are_refused(saved, tmp_path):
  content = saved[1].read_bytes()
  path = tmp_path / 'posterior.npz'
  with pytest.raises(FileNotFoundError, match='There is no file'):
    _loaded(path)
  path.write_bytes(content[:-1000])
  with pytest.raises(ValueError, match='is damaged'):
    _loaded(path)
  path.write_bytes(archive.seal(dict(kind='other'), {}))
  with pytest.raises(ValueError, match='holds no posterior'):
    _loaded(path)
  with pytest.raises(ValueError, match='is a folder. Pass the file'):
    _loaded(tmp_path)
  header, arrays = archive.unseal(saved[1])
  del arrays['point.rows']
  path.write_bytes(archive.seal(dict(header, version='0.0'), arrays))
  with pytest.raises(ValueError, match='saved by version 0.0'):
    _loaded(path)


@pytest.mark.full
def test_other_data_are_refused_by_name_though_no_density_tells(tmp_path):
  model = tfd.JointDistributionNamed(
    dict(
      mu=tfd.Normal(np.float64(0.0), 1.0),
      y=lambda mu: tfd.Sample(tfd.Normal(mu, 1.0), 3),
    )
  )
  data = np.array([1.0, 2.0, 4.5])
  problem = problem_lib.of_joint(model, dict(y=data), num_chains=4)
  choice = structure.Choice(*structure.default_matrix(1))
  chains = _started(problem, choice, num_adaptation_steps=20, num_draws=40)
  posterior = Posterior(problem, chains, [], 10.0)
  path = tmp_path / 'posterior.npz'
  posterior.save(path)
  _assert_same_draws(tfpa.load_posterior(path, model, y=data), posterior)
  # In another order they are as likely everywhere.
  with pytest.raises(ValueError, match='other data: they differ in y'):
    tfpa.load_posterior(path, model, y=data[::-1].copy())


@pytest.mark.parametrize('event_size', [1, 3, 2000])
def test_every_structure_is_rebuilt_by_its_name(event_size):
  for name in structure._builders(event_size):
    is_map = 'conditional' in name
    found = dict(
      drivers=(0,) if is_map else (), exponents=(1.0,) if is_map else ()
    )
    choice = structure.rebuilt(name, event_size, dict(a=1.0), **found)
    assert choice._replace(part=None) == structure.Choice(
      name, None, dict(a=1.0), **found
    )
    assert hasattr(choice.part, 'bijector') == is_map


# A density that has changed is refused, before draws of two are mixed.


_NUM_CHAINS = 4
_DRAWS = np.random.default_rng(0).normal(size=(50, _NUM_CHAINS, 2))
_INIT_CHANGED = tf.TensorSpec([2])


def _normal(x, scale=1.0):
  return -0.5 * tf.reduce_sum((x / scale) ** 2, axis=-1)


def _problem(density, init=_INIT_CHANGED):
  return problem_lib.of_density(density, init, None, _NUM_CHAINS)


def _chains(problem):
  """Returns `Chains` of a problem that hold draws of a standard normal."""
  draws = _DRAWS.astype(problem.dtype.as_numpy_dtype)
  choice = structure.Choice(*structure.default_matrix(2))
  density = density_lib.Density(problem, _NUM_CHAINS, problem.dtype)
  engine = chains_lib.engine_of(density, choice, draws[-1], [1, 2], 10, False)
  chains = chains_lib.Chains(engine, choice, density, 50)
  engine.num_steps, chains.num_blocks = 10, 1
  chains.recorded = [(draws, dict(target_log_prob=_normal(draws).numpy()))]
  return chains


def _posterior_changed(density, init=_INIT_CHANGED):
  problem = _problem(density, init)
  return Posterior(problem, _chains(problem), [], 10.0)


# Densities of which something is changed in place.


def _variable(tmp_path):
  del tmp_path
  center = tf.Variable(0.0)
  return lambda x: _normal(x - center), lambda: center.assign(0.1)


def _attribute(tmp_path):
  del tmp_path
  model = types.SimpleNamespace(scale=1.0)
  density = changed_runs._in_python(lambda: model.scale)
  return density, lambda: setattr(model, 'scale', 1.1)


def _bound_far_away(tmp_path):
  del tmp_path
  model = types.SimpleNamespace(bound=1e3)
  density = lambda x: _normal(x) - tf.nn.relu(x[:, 0] - model.bound)
  return density, lambda: setattr(model, 'bound', 2e3)


def _table(tmp_path):
  del tmp_path
  table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 1.0)
  key = tf.constant([0], tf.int64)
  density = lambda x: _normal(x, tf.reshape(table.lookup(key), []))
  return density, lambda: table.insert(key, [1.1])


def _file(tmp_path):
  path = tmp_path / 'scale.txt'
  path.write_text('1.0')

  def density(x):
    return _normal(x, tf.strings.to_number(tf.io.read_file(str(path))))

  return density, lambda: path.write_text('1.001')


def _hidden_by_a_constant(tmp_path):
  del tmp_path
  center = tf.Variable(0.0)
  # One float32 unit of the value is 0.125 nats.
  return lambda x: _normal(x - center) - 1.4e6, lambda: center.assign(0.01)


_IN_PLACE = [
  _variable, _attribute, _bound_far_away, _table, _file, _hidden_by_a_constant,
]  # fmt: skip


@pytest.mark.parametrize('make', _IN_PLACE)
def test_more_refuses_a_density_that_was_changed_in_place(make, tmp_path):
  density, change = make(tmp_path)
  posterior = _posterior_changed(density)
  saved_lib.check_unchanged(posterior._problem, posterior._chains)
  change()
  with pytest.raises(ValueError, match='has changed since the draws were mad'):
    posterior.more(10)


def test_a_random_density_and_one_that_counts_its_calls_are_not_refused():
  calls = []

  def in_python(x):
    calls.append(1)
    return _normal(x)

  def counted(x):
    calls.append(1)
    value = tf.py_function(in_python, [x], x.dtype)
    noise = 0.1 * tf.random.normal(x.shape[:-1])
    return tf.ensure_shape(value, x.shape[:-1]) + noise

  posterior = _posterior_changed(counted)
  for _ in range(3):
    saved_lib.check_unchanged(posterior._problem, posterior._chains)
  assert len(calls) > 10


# Densities that are given again, by their version.


def _of_scale(density):
  return lambda changed: density(1.5 if changed else 1.0)


def _with_data(scale):
  data = np.full(3, scale, np.float32)
  return changed_runs._in_python(lambda: float(data[0]))


def _felt_far_away(changed):
  bound = 1e3 if changed else 2e3
  return lambda x: _normal(x) - tf.nn.relu(x[:, 0] - bound)


def _code_felt_far_away(changed):
  bound = 1e3 if changed else 2e3

  def density(x):
    value = tf.py_function(
      lambda v: _normal(v) - tf.nn.relu(v[:, 0] - bound), [x], x.dtype
    )
    return tf.ensure_shape(value, x.shape[:-1])

  return density


_VERSIONS = {
  'data of Python code': _of_scale(_with_data),
  'a number': _of_scale(lambda scale: lambda x: _normal(x, scale)),
  'a small number': lambda c: lambda x: _normal(x, 1.0 + 1e-5 * c),
  'far away': _felt_far_away,
  'far away in Python': _code_felt_far_away,
}
_ONLY_FAR = ('far away', 'far away in Python')


def _file_of(folder, density):
  settings = types.SimpleNamespace(
    checkpoint_dir=folder, num_chains=_NUM_CHAINS, min_ess=10.0,
    reports=progress.SILENT,
    max_gradients=1e4, identity=lambda: dict(seed=[0, 3]),
  )  # fmt: skip
  return run_file.RunFile(_problem(density), settings)


@pytest.mark.parametrize('phase', ['improve', 'sample', 'done'])
@pytest.mark.parametrize('name', _VERSIONS)
def test_a_checkpoint_of_another_density_is_refused(name, phase, tmp_path):
  version = _VERSIONS[name]
  file = _file_of(tmp_path, version(False))
  file.write(_chains(file._problem), [], Place(phase=phase), '')
  kept = _file_of(tmp_path, version(False)).read()
  np.testing.assert_array_equal(kept.chains.draws, np.float32(_DRAWS))
  with pytest.raises(ValueError, match='posterior.npz (belongs|was writ)') as e:
    _file_of(tmp_path, version(True)).read()
  words = '`tfpa.load_posterior` reads the draws'
  assert (words in str(e.value)) == (name in _ONLY_FAR)


@pytest.mark.parametrize('name', _VERSIONS)
def test_old_draws_are_read_with_a_density_that_agrees_near_them(
  name, tmp_path
):
  version, path = _VERSIONS[name], tmp_path / 'posterior.npz'
  _posterior_changed(version(False)).save(path)
  if name in _ONLY_FAR:
    with pytest.warns(UserWarning, match='belong to the model that was saved'):
      tfpa.load_posterior(path, version(True), init=_INIT_CHANGED)
  else:
    with pytest.raises(
      ValueError, match='another model or other data: log|gra'
    ):
      tfpa.load_posterior(path, version(True), init=_INIT_CHANGED)


# Files.


def _write_folder(path):
  path.unlink()
  path.mkdir()


def _empty(path):
  path.write_bytes(b'')


@pytest.mark.parametrize('damage', [_empty, _write_folder])
def test_a_damaged_plan_is_refused_in_words(damage, tmp_path):
  file = _file_of(tmp_path, _normal)
  file.begin(1)
  state = tmp_path / 'adaptation_1' / 'state.npz'
  state.parent.mkdir()
  state.write_bytes(b'')
  assert file.budget(1) == 1e4
  damage(tmp_path / 'adaptation_1.npz')
  with pytest.raises(ValueError, match=r'adaptation_1.npz is damaged: it'):
    file.budget(1)


def test_a_folder_in_the_place_of_a_file_is_refused_in_words(tmp_path):
  (tmp_path / 'adaptation_1.npz').mkdir()
  with pytest.raises(
    ValueError, match='_1.npz cannot be written .a folder has'
  ):
    _file_of(tmp_path, _normal).begin(1)
  (tmp_path / 'posterior.npz').mkdir()
  with pytest.raises(ValueError, match='posterior.npz is a folder. Pass the'):
    _file_of(tmp_path, _normal).read()
  with pytest.raises(OSError, match='a folder has its name'):
    _posterior_changed(_normal).save(tmp_path)
