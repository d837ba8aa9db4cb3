"""A density that has changed is refused, before draws of two are mixed.

Nothing is sampled here: chains are made of draws that are given.
"""

import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.driver import changed_runs
from tfp_adaptive.driver import progress
from tfp_adaptive.posterior import chains as chains_lib
from tfp_adaptive.posterior import density as density_lib
from tfp_adaptive.posterior import run_file
from tfp_adaptive.posterior import saved
from tfp_adaptive.posterior.model import problem as problem_lib
from tfp_adaptive.posterior.plan import Place
from tfp_adaptive.posterior.posterior import Posterior
from tfp_adaptive.posterior.structures import structure

tfd = tfp.distributions

_NUM_CHAINS = 4
_DRAWS = np.random.default_rng(0).normal(size=(50, _NUM_CHAINS, 2))
_INIT = tf.TensorSpec([2])


def _normal(x, scale=1.0):
  return -0.5 * tf.reduce_sum((x / scale) ** 2, axis=-1)


def _problem(density, init=_INIT):
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


def _posterior(density, init=_INIT):
  problem = _problem(density, init)
  return Posterior(problem, _chains(problem), [], 10.0)


# Densities of which something is changed in place.


def _variable(tmp_path):
  del tmp_path
  center = tf.Variable(0.0)
  return lambda x: _normal(x - center), lambda: center.assign(0.1)


def _array(tmp_path):
  del tmp_path
  array = np.ones(2, np.float32)
  density = changed_runs._in_python(lambda: array)
  return density, lambda: array.__setitem__(1, 1.1)


def _attribute(tmp_path):
  del tmp_path
  model = types.SimpleNamespace(scale=1.0)
  density = changed_runs._in_python(lambda: model.scale)
  return density, lambda: setattr(model, 'scale', 1.1)


def _attribute_of_a_graph(tmp_path):
  del tmp_path
  model = types.SimpleNamespace(scale=1.0)
  density = lambda x: _normal(x, model.scale)
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
  _variable, _array, _attribute, _attribute_of_a_graph, _bound_far_away,
  _table, _file, _hidden_by_a_constant,
]  # fmt: skip


@pytest.mark.parametrize('make', _IN_PLACE)
def test_more_refuses_a_density_that_was_changed_in_place(make, tmp_path):
  density, change = make(tmp_path)
  posterior = _posterior(density)
  saved.check_unchanged(posterior._problem, posterior._chains)
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

  posterior = _posterior(counted)
  for _ in range(3):
    saved.check_unchanged(posterior._problem, posterior._chains)
  assert len(calls) > 10


# Densities that are given again, by their version.


def _of_scale(density):
  return lambda changed: density(1.5 if changed else 1.0)


def _python_behind_a_constant(scale):
  """A Python density whose change is 0.3 float32 units of its value."""

  @tf.custom_gradient
  def density(x):
    def value(z):
      return (-0.5 * (z.numpy() ** 2).sum(-1) / scale**2 - 1.4e6).astype('f4')

    found = tf.py_function(value, [x], tf.float32)
    slope = lambda g: -g[..., tf.newaxis] * x / scale**2
    return tf.ensure_shape(found, x.shape[:-1]), slope

  return density


def _with_data(scale):
  data = np.full(3, scale, np.float32)
  found = changed_runs._in_python(lambda: float(data[0]))
  return found


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
  'python behind a constant': _of_scale(_python_behind_a_constant),
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
  _posterior(version(False)).save(path)
  if name in _ONLY_FAR:
    with pytest.warns(UserWarning, match='belong to the model that was saved'):
      tfpa.load_posterior(path, version(True), init=_INIT)
  else:
    with pytest.raises(
      ValueError, match='another model or other data: log|gra'
    ):
      tfpa.load_posterior(path, version(True), init=_INIT)


# Files.


def _write_folder(path):
  path.unlink()
  path.mkdir()


_DAMAGES = dict(
  flipped=lambda path: path.write_bytes(path.read_bytes().replace(b'1', b'2')),
  empty=lambda path: path.write_bytes(b''),
  a_list=lambda path: path.write_bytes(b'[1, 2]'),
  a_number=lambda path: path.write_bytes(b'{"max_gradients": 4000.0}'),
  not_text=lambda path: path.write_bytes(b'\x80\x81'),
  a_folder=_write_folder,
)


@pytest.mark.parametrize('damage', _DAMAGES)
def test_a_damaged_plan_is_refused_in_words(damage, tmp_path):
  file = _file_of(tmp_path, _normal)
  file.begin(1)
  state = tmp_path / 'adaptation_1' / 'state.npz'
  state.parent.mkdir()
  state.write_bytes(b'')
  assert file.budget(1) == 1e4
  _DAMAGES[damage](tmp_path / 'adaptation_1.json')
  with pytest.raises(ValueError, match=r'adaptation_1.json is damaged: it'):
    file.budget(1)


def test_a_folder_in_the_place_of_a_file_is_refused_in_words(tmp_path):
  (tmp_path / 'adaptation_1.json').mkdir()
  with pytest.raises(ValueError, match='json cannot be written .a folder has'):
    _file_of(tmp_path, _normal).begin(1)
  (tmp_path / 'posterior.npz').mkdir()
  with pytest.raises(ValueError, match='posterior.npz is a folder. Pass the'):
    _file_of(tmp_path, _normal).read()
  with pytest.raises(OSError, match='a folder has its name'):
    _posterior(_normal).save(tmp_path)
