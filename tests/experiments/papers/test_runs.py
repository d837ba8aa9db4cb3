"""Runs of configs: every committed YAML in smoke size, starts, command line."""

import pathlib
import shutil

import numpy as np
import pytest
import xarray as xr
import yaml

from experiments.papers import config as configs
from experiments.papers import config_study
from experiments.papers import starts
from experiments.run import engine
from experiments.run import find
from experiments.run import store
from experiments.run import tasks
from experiments.run.find import Found
from experiments.run.study import Work
from tests.experiments.papers.test_config import ALL_CONFIGS
from tests.experiments.papers.test_config import CONFIG_DIR

# Targets that a smoke run would spend its time on building.
SMALLER = {
  'gp_regression': ['target.num_points=41'],
  'log_gaussian_cox': [
    'target.num_cells_per_side=6',
    'target.simulated_cells_per_side=12',
    'target.counts=simulated',
  ],
  'multi_class_gp': ['target.num_rows=30'],
  'multi_class_gp_hierarchy': ['target.num_rows=30'],
}


def _load(path):
  name = configs.load_config(path).target.name
  return configs.load_config(path, SMALLER.get(name, ()))


def _needs_data(target):
  named = getattr(target, 'dataset', None)
  return named is not None and named != 'digits'


SELF_CONTAINED = [
  path
  for path in ALL_CONFIGS
  if not _needs_data(configs.load_config(path).target)
]


def _with_methods(config, methods):
  values = config.model_dump(mode='json')
  values['methods'] = [method.model_dump(mode='json') for method in methods]
  return configs.parse_config(values)


def _smoke_plan():
  """Yields (path, config, methods): the first of a target, and new ones.

  Compiling a method takes seconds: one of each kind is enough. Windowed NUTS
  takes a minute, and runs in the test of the quickstart.
  """
  seen, pairs = {'windowed_nuts'}, set()
  for path in SELF_CONTAINED:
    config = configs.smoke(_load(path))
    pair = (config.target.name, config.methods[0].name)
    methods = [] if pair in pairs else [config.methods[0]]
    pairs.add(pair)
    methods += [m for m in config.methods[1:] if m.name not in seen]
    methods = list({method.name: method for method in methods[::-1]}.values())
    seen.update(method.name for method in methods)
    if methods:
      yield path, config, methods[::-1]


SMOKE_PLAN = list(_smoke_plan())


def test_values_of_set_count_in_smoke_size():
  panel = CONFIG_DIR / 'inference_gym/panel.yaml'
  for path, key in ((panel, 'num_seeds'), (SELF_CONTAINED[0], 'num_repeats')):
    assert find.load(path, [], True).study.seeds == (0,)
    assert find.load(path, [f'{key}=3'], True).study.seeds == (0, 1, 2)


def _smoke_case(path, config, methods):
  """Returns a parameter; all but one config run by night."""
  marks = [] if path.stem == 'figure4_acceptance' else [pytest.mark.nightly]
  return pytest.param(path, config, methods, id=path.stem, marks=marks)


@pytest.mark.parametrize(
  'path, config, methods', [_smoke_case(*plan) for plan in SMOKE_PLAN]
)
def test_self_contained_config_runs_in_smoke_size(
  path, config, methods, tmp_path
):
  del path
  records = run_here(_with_methods(config, methods), tmp_path)
  assert [one.error for one in records] == [None] * len(methods)
  for record in (one.record for one in records):
    assert np.isfinite(record['ess']['min'])
    assert record['seconds']['sampling'] > 0
    assert record['calls']['sampling']['target'] > 0
  drawn = {file.stem for file in (tmp_path / 'figures').glob('*.png')}
  assert {'traces', 'log_density', 'efficiency'} <= drawn
  assert ('diagonal' in drawn) == config.trace_diagonal


@pytest.fixture
def tiny(tmp_path):
  """A config whose kernel compiles fast."""
  path = tmp_path / 'tiny.yaml'
  values = {
    'name': 'tiny',
    'target': {'name': 'spectrum_gaussian', 'variances': [1.0, 4.0]},
    'methods': [{'name': 'mala'}, {'name': 'gadmala_fast'}],
    'num_chains': 3,
    'num_adaptation_steps': 300,
    'num_results': 400,
    'num_repeats': 1,
  }
  path.write_text(yaml.safe_dump(values))
  return path


@pytest.mark.full
def test_a_cell_that_was_lost_runs_again_to_the_same_draws(tiny, tmp_path):
  methods = 'methods=[{name: mala}, {name: mala, label: other}]'
  config = configs.load_config(tiny, [methods])
  records = run_here(config, tmp_path)
  assert [one.case for one in records] == ['MALA', 'other']
  lost = records[1]
  before = store.read_draws(tmp_path, lost)['posterior'].to_dataset().load()
  file = tmp_path / 'records.jsonl'
  file.write_text(file.read_text().splitlines()[0] + '\n')
  shutil.rmtree(tmp_path / 'draws' / 'other')
  kept, again = run_here(config, tmp_path)
  assert kept == records[0]
  assert again.record['ess'] == lost.record['ess']
  tree = store.read_draws(tmp_path, again)
  xr.testing.assert_equal(before, tree['posterior'].to_dataset().load())
  assert tree['posterior']['unconstrained'].shape == (3, 400, 2)
  assert tree['sample_stats']['lp'].shape == (3, 400)
  assert '| other |' in (tmp_path / 'report.md').read_text()
  calls = again.record['calls']
  assert calls['adaptation']['gradient'] == 300 * 3
  assert calls['sampling']['gradient'] == 400 * 3
  # Five standard errors: two coordinates, known mean.
  assert again.record['max_mean_z_score'] < 5


@pytest.mark.full
def test_adapting_steps_may_be_draws_and_have_a_distance(tiny, tmp_path):
  changes = ['methods=[{name: mala}]', 'discard_adaptation=false']
  (first,) = run_here(configs.load_config(tiny, changes), tmp_path / 'a')
  draws = store.read_draws(tmp_path / 'a', first)['posterior']
  assert draws['unconstrained'].shape == (3, 700, 2)
  changes += [f'reference={tmp_path / "a"}', 'init.scale=90']
  (far,) = run_here(configs.load_config(tiny, changes), tmp_path / 'b')
  (again,) = run_here(configs.load_config(tiny, changes[:3]), tmp_path / 'c')
  assert again.record['mmd']['500'] < 1 < 10 < far.record['mmd']['500']


@pytest.mark.full
def test_a_disk_that_fills_up_costs_the_block_in_progress(
  tiny, tmp_path, monkeypatch
):
  from tfp_adaptive.driver import checkpoint as checkpoint_lib

  overrides = ['block_size=100', 'methods=[{name: mala}]']
  config = configs.load_config(tiny, overrides)
  (whole,) = run_here(config, tmp_path / 'whole')
  write, calls = checkpoint_lib._write, []

  def filling(path, content):
    calls.append(path)
    if len(calls) > 6:
      raise OSError(28, 'No space left on device')
    write(path, content)

  with monkeypatch.context() as patch:
    patch.setattr(checkpoint_lib, '_write', filling)
    (broken,) = run_here(config, tmp_path / 'run')
  assert broken.status == 'failed' and 'No space left' in broken.error
  assert len(list(tmp_path.glob('run/checkpoints/**/block_*.npz'))) == 3
  (tmp_path / 'run' / 'records.jsonl').unlink()  # As --redo failed does.
  (again,) = run_here(config, tmp_path / 'run')
  assert not list(tmp_path.glob('run/checkpoints/**/block_*.npz'))
  assert again.record['is_continued'] and not whole.record['is_continued']
  assert again.record['ess'] == whole.record['ess']
  assert again.record['rhat_max'] == whole.record['rhat_max']


def test_climbing_ends_nearer_to_the_mode(tiny):
  overrides = ['init.kind=climb', 'init.scale=30', 'init.num_steps=400']
  config = configs.load_config(tiny, overrides)
  target = config_study.make_plan(config).target
  low = configs.load_config(tiny, ['init.kind=normal', 'init.scale=30'])
  before = np.abs(starts.make_starts(low, target, 0)).max()
  after = np.abs(starts.make_starts(config, target, 0)).max()
  assert after < 0.5 * before


def _keys(config):
  found = Found(
    config.name, study := config_study.study(config), study.settings()
  )
  return {cell.case: cell.key for cell in tasks.cells(found)}


def test_a_key_holds_what_decides_the_draws_of_a_method(tiny):
  config = configs.load_config(tiny)
  keys = _keys(config)
  assert len(set(keys.values())) == 2
  for same in (
    ['name=other'],
    ['description=text'],
    ['block_size=7'],
    ['num_repeats=9'],
    ['methods=[{name: gadmala_fast}, {name: rwm}]'],
  ):
    other = _keys(configs.load_config(tiny, same))
    assert other['gadMALAf'] == keys['gadMALAf']
  for changed in (
    ['seed=5'],
    ['num_results=500'],
    ['init.kind=zeros'],
    ['target.variances=[1.0, 5.0]'],
    ['methods.1.settings=paper'],
  ):
    assert (
      keys['gadMALAf'] not in _keys(configs.load_config(tiny, changed)).values()
    )


# Runs of a config in this process, for the tests of several rooms.


def run_here(config, folder, data_dir=None) -> list[store.Record]:
  """Runs all cells of a config, writes tables and figures, returns records."""
  folder = pathlib.Path(folder)
  study = config_study.study(config)
  found = find.Found(config.name, study, study.settings())
  data_dir = None if data_dir is None else str(data_dir)
  cells = tasks.cells(found)
  engine.run_cells(engine.Job('', str(folder), data_dir=data_dir), found, cells)
  records = engine.current(folder, cells)
  study.finish(folder, records, Work(found.settings, folder, data_dir))
  return records
