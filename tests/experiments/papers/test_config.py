"""Configs are refused before any computing, with key, value and way out."""

import copy
import pathlib

import pytest
import yaml
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from experiments.papers import config as configs
from experiments.papers import measurements
from experiments.papers.config_study import make_plan
from experiments.run import yaml_files
from experiments.run.errors import ConfigError

CONFIG_DIR = pathlib.Path(__file__).resolve().parents[3] / 'configs'
# A panel's files are of another kind: test_panel.py.
ALL_CONFIGS = [
  path
  for path in sorted(CONFIG_DIR.rglob('*.yaml'))
  if path.parent.name != 'inference_gym'
]

VALUES = {
  'name': 'small',
  'target': {'name': 'gaussian_2d', 'rho': 0.5},
  'methods': [{'name': 'mala'}, {'name': 'hmc', 'num_leapfrog_steps': 3}],
  'num_adaptation_steps': 10,
  'num_results': 20,
}


def _changed(path, value):
  """Returns VALUES with one entry set, at a list of keys."""
  values = copy.deepcopy(VALUES)
  node = values
  for key in path[:-1]:
    node = node[key]
  node[path[-1]] = value
  return values


@pytest.mark.parametrize('path', ALL_CONFIGS, ids=lambda path: path.stem)
def test_every_committed_config_is_valid(path):
  config = configs.load_config(path)
  assert config.name == path.stem
  assert config.description


@pytest.mark.parametrize(
  'path, value, words',
  [
    (['target', 'name'], 'gausian_2d', ['target.name', "mean 'gaussian_2d'"]),
    (['target', 'rho'], 1.5, ['target.rho', '1.5', 'less than 1']),
    (['target', 'rh0'], 0.1, ['target.rh0', "mean 'rho'", 'allowed are']),
    (['methods', 0, 'name'], 'malla', ['methods.0.name', "mean 'mala'"]),
    (['methods', 1], {'name': 'hmc'}, ['methods.1.num_leapfrog_steps', 'requ']),
    (['methods', 1], {'name': 'mala'}, ["label 'MALA'", '2 times', 'label: ']),
    (['num_chains'], 0, ['num_chains', '0', 'greater than or equal to 1']),
    (['numchains'], 3, ['numchains', "mean 'num_chains'", 'allowed are']),
    (['name'], 'a b/c', ['name', 'a b/c']),
  ],
)
def test_refusal_names_key_value_and_what_is_allowed(path, value, words):
  with pytest.raises(ConfigError) as refusal:
    configs.parse_config(_changed(path, value))
  for word in words:
    assert word in str(refusal.value)


@pytest.mark.parametrize(
  'changes, words',
  [
    (
      {'target': {'name': 'Banana'}, 'dtype': 'float64'},
      ['dtype', "'float64'", 'dtype: float32'],
    ),
    (
      {
        'target': {'name': 'neals_gaussian', 'event_size': 4000},
        'methods': [{'name': 'gadrwm'}],
      },
      ['methods.0', '4000^2', 'preconditioner: diagonal'],
    ),
    ({'init': {'kind': 'prior'}}, ['init.kind', 'prior', "'zeros'"]),
    (
      {'methods': [{'name': 'windowed_nuts'}]},
      ['methods.0', 'num_adaptation_steps', 'at least 40'],
    ),
    (
      {'methods': [{'name': 'gadrwm', 'preconditioner': 'arrow'}]},
      ['methods.0', "'arrow'", 'num_globals: '],
    ),
    (
      {
        'methods': [{'name': 'windowed_nuts'}],
        'num_adaptation_steps': 50,
        'discard_adaptation': False,
      },
      ['methods.0', 'discard_adaptation', 'Write true'],
    ),
    (
      {'target': {'name': 'spectrum_gaussian', 'variances': [1.0, -1.0]}},
      ['target.variances', 'above 0'],
    ),
  ],
)
def test_impossible_combinations_are_refused_while_planning(changes, words):
  config = configs.parse_config({**VALUES, **changes})
  with pytest.raises(ConfigError) as refusal:
    make_plan(config)
  for word in words:
    assert word in str(refusal.value)


@pytest.mark.parametrize(
  'line, word',
  [
    ('name: other', "the key 'name' is there twice"),
    ('x: !!python/object/apply:os.getcwd []', 'line 11: could not determine'),
    ('x: [1', 'is not YAML, line 1'),
    ('num_chains: 1:30', "num_chains: '1:30'"),
    ('num_chains: 010', "num_chains: '010'"),
  ],
)
def test_a_file_that_is_no_config_is_refused_by_its_line(line, word, tmp_path):
  path = tmp_path / 'small.yaml'
  text = yaml.safe_dump(VALUES)
  path.write_bytes(text.replace('\n', '\r\n').encode('utf-8-sig'))
  assert yaml_files.load(path) == VALUES
  path.write_text(f'{text}{line}\n')
  with pytest.raises(ConfigError) as refusal:
    configs.load_config(path)
  assert word in str(refusal.value)


def _places(values, path=()):
  """Returns the paths of all entries that hold neither dict nor list."""
  if not isinstance(values, dict | list):
    return [path]
  entries = values.items() if isinstance(values, dict) else enumerate(values)
  return [p for key, value in entries for p in _places(value, (*path, key))]


@settings(max_examples=60, deadline=None)
@given(
  st.sampled_from(_places(VALUES)),
  st.sampled_from([[], {}, [[]], {'a': 1}, {'': {}}]),
)
@example(('methods', 1, 'num_leapfrog_steps'), [2**40, -1])
@example(('target', 'rho'), float('nan'))
@example(('num_results',), True)
@example(('num_results',), 10**12)
@example(('name',), '../up')
def test_a_value_of_another_kind_is_refused_with_its_key(path, value):
  with pytest.raises(ConfigError) as refusal:
    configs.parse_config(_changed(path, value))
  *_, key = (key for key in path if isinstance(key, str))
  assert key in str(refusal.value) and len(str(refusal.value)) <= 600


def test_a_list_of_leapfrog_steps_is_one_method_each():
  values = _changed(
    ['methods'],
    [
      {'name': 'hmc', 'num_leapfrog_steps': [1, 5]},
      {'name': 'hmc', 'num_leapfrog_steps': [2, 3], 'label': 'mine'},
      {'name': 'mala'},
    ],
  )
  config = configs.parse_config(values)
  expected = ['HMC-1', 'HMC-5', 'mine, L=2', 'mine, L=3', 'MALA']
  assert config.labels() == expected
  # What a run stores is read back as it is.
  again = configs.parse_config(config.model_dump(mode='json'))
  assert again == config
  many = {**values['methods'][0], 'num_leapfrog_steps': list(range(1, 5000))}
  with pytest.raises(ConfigError, match='more than 200'):
    configs.parse_config(_changed(['methods'], [many]))


def test_counts_in_gradients_are_shared_out_between_leapfrog_steps():
  values = _changed(
    ['methods'],
    [
      {'name': 'hmc', 'num_leapfrog_steps': 4},
      {'name': 'hmc', 'num_leapfrog_steps': 5, 'num_results': 100},
      {'name': 'mala'},
    ],
  )
  values.update(counts='gradients', num_adaptation_steps=40, num_results=82)
  config = configs.parse_config(values)
  counts = [measurements.step_counts(config, i) for i in range(3)]
  assert counts == [(10, 20), (8, 100), (40, 82)]
