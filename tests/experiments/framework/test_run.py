"""Runs: every committed YAML in smoke size, resume, failures, reports."""

import json
import pathlib

import numpy as np
import pytest
import rich.console
import xarray as xr
import yaml
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.data.sources import SOURCES
from experiments.framework import cell
from experiments.framework import config as configs
from experiments.framework import figures
from experiments.framework import runner
from experiments.framework import sessions
from experiments.framework import starts
from experiments.framework import storage
from experiments.framework.errors import ConfigError
from experiments.framework.errors import DeviceError
from experiments.framework.registry import METHODS

CONFIG_DIR = pathlib.Path(__file__).resolve().parents[3] / 'configs'
# Those of the panel are of another kind; test_panel.py has them.
ALL_CONFIGS = sorted(
  path
  for path in CONFIG_DIR.rglob('*.yaml')
  if path.parent.name != 'inference_gym'
)

# Targets that a smoke run would spend its time on building.
SMALLER = {
  'gp_regression': ['target.num_points=41'],
  'latent_volatility': ['target.num_days=30'],
  'log_gaussian_cox': [
    'target.num_cells_per_side=6',
    'target.simulated_cells_per_side=12',
    'target.counts=simulated',
  ],
  'multi_class_gp': ['target.num_rows=30'],
}


def _load(path):
  name = configs.load_config(path).target.name
  return configs.load_config(path, SMALLER.get(name, ()))


def _needs_data(target):
  named = getattr(target, 'dataset', None)
  return named is not None and named != 'digits'


# Windowed NUTS below, those of other libraries in test_peers.py.
TESTED_ELSEWHERE = {
  'blackjax_chees',
  'blackjax_meads',
  'blackjax_nuts',
  'numpyro_nuts',
  'nutpie',
  'replica_exchange',
  'snaper_hmc',
  'windowed_nuts',
}

SELF_CONTAINED = [
  path
  for path in ALL_CONFIGS
  if not _needs_data(configs.load_config(path).target)
]


def _quiet():
  return rich.console.Console(quiet=True)


def _run(config, path, data_dir=None):
  """Runs a config without progress; returns folder and records."""
  plan = runner.make_plan(config, data_dir)
  folder = storage.RunFolder.create(path, config)
  return folder, runner.run_plan(plan, folder, _quiet(), progress=False)


def _with_methods(config, methods):
  values = config.model_dump(mode='json')
  values['methods'] = [method.model_dump(mode='json') for method in methods]
  return configs.parse_config(values)


def _smoke_plan():
  """Yields (path, methods): the first of a target, and those not yet seen.

  Compiling a method takes seconds: one of each kind is enough. Windowed NUTS
  takes a minute and has a test of its own.
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


# One in the quick tier, others by night; in the full one some of two papers,
# where those of the others are classifications on a local copy, below.
_QUICK = ('figure4_acceptance',)
_FULL = ('figure20_stochastic_volatility', 'figure4_skew_normal')


def _smoke_case(path, config, methods):
  marks = [] if path.stem in _QUICK else [pytest.mark.nightly]
  if path.stem in _FULL:
    marks = [pytest.mark.full]
  return pytest.param(path, config, methods, id=path.stem, marks=marks)


@pytest.mark.parametrize(
  'path, config, methods', [_smoke_case(*plan) for plan in SMOKE_PLAN]
)
def test_self_contained_config_runs_in_smoke_size(
  path, config, methods, tmp_path
):
  del path
  folder, records = _run(_with_methods(config, methods), tmp_path / 'run')
  assert [record.get('error') for record in records] == [None] * len(methods)
  for record in records:
    assert np.isfinite(record['ess']['min'])
    assert record['seconds']['sampling'] > 0
    assert record['calls']['sampling']['target'] > 0
  drawn = {file.stem for file in (folder.path / 'figures').glob('*.png')}
  assert {'traces', 'log_density', 'efficiency'} <= drawn
  assert ('diagonal' in drawn) == config.trace_diagonal


def test_every_method_is_run_by_some_self_contained_config():
  run = {method.name for _, _, methods in SMOKE_PLAN for method in methods}
  assert run == set(METHODS.names()) - TESTED_ELSEWHERE


@pytest.mark.full
def test_windowed_nuts_runs_on_a_plain_density(tmp_path):
  values = {
    'name': 'windowed',
    'target': {'name': 'spectrum_gaussian', 'variances': [1.0, 4.0]},
    'methods': [{'name': 'windowed_nuts', 'max_tree_depth': 3}],
    'num_chains': 8,
    'num_adaptation_steps': 40,
    'num_results': 20,
    'jit_compile': False,
  }
  _, records = _run(configs.parse_config(values), tmp_path / 'run')
  assert records[0].get('error') is None
  assert records[0]['calls']['sampling']['gradient'] >= 8 * 20
  # Five standard errors: two coordinates, known mean.
  assert records[0]['max_mean_z_score'] < 5


def test_windowed_nuts_without_that_form_is_refused(tmp_path):
  values = {
    'name': 'windowed',
    'target': {'name': 'spectrum_gaussian', 'variances': [1.0, 4.0]},
    'methods': [{'name': 'windowed_nuts', 'parameterization': 'centered'}],
    'num_adaptation_steps': 40,
    'num_results': 20,
  }
  with pytest.raises(ConfigError, match='no other forms'):
    runner.make_plan(configs.parse_config(values))


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
def test_run_resume_and_report_from_the_command_line(
  tiny, tmp_path, monkeypatch
):
  command, output = CliRunner(), str(tmp_path / 'run')
  first = command.invoke(app, ['run', str(tiny), '--output', output])
  assert first.exit_code == 0, first.output
  folder = storage.RunFolder.open(output)
  records = folder.records()
  assert [r['label'] for r in records] == ['MALA', 'gadMALAf']

  # Only the cell that is missing runs again, with the same draws.
  lost = folder.cell_path(1, 'gadMALAf', 0)
  before = (
    xr.open_datatree(lost / 'draws.zarr')['posterior'].to_dataset().load()
  )
  lost.rename(tmp_path / 'lost')
  ran = []
  monkeypatch.setattr(
    runner,
    'run_cell',
    lambda config, index, *args: (
      ran.append(index) or cell.run_cell(config, index, *args)
    ),
  )
  arguments = ['run', str(tiny), '--output', output, '--resume']
  second = command.invoke(app, arguments)
  assert second.exit_code == 0, second.output
  assert ran == [1]
  after = xr.open_datatree(lost / 'draws.zarr')['posterior'].to_dataset().load()
  xr.testing.assert_equal(before, after)
  assert len(sessions.read(folder.path)) == 2

  report = command.invoke(app, ['report', output])
  assert '| gadMALAf |' in report.output
  page = command.invoke(app, ['report', output, '--html'])
  assert '<td>MALA</td>' in page.output

  again = command.invoke(app, ['run', str(tiny), '--output', output])
  assert again.exit_code == 2
  other = [*arguments, '--set', 'num_results=500']
  assert command.invoke(app, other).exit_code == 2

  record = folder.read_cell(1, 'gadMALAf', 0)
  assert record['calls']['adaptation']['gradient'] == 300 * 3
  assert record['calls']['sampling']['gradient'] == 400 * 3
  # Five standard errors: two coordinates, known mean.
  assert record['max_mean_z_score'] < 5
  tree = xr.open_datatree(lost / 'draws.zarr')
  assert tree['posterior']['unconstrained'].shape == (3, 400, 2)
  assert tree['sample_stats']['lp'].shape == (3, 400)


class _Failing:
  """A `sample_fn` that fails."""

  def __call__(self, **kwargs):
    raise FloatingPointError('nothing left')


def test_a_failed_method_is_a_row_and_a_non_zero_exit(
  tiny, tmp_path, monkeypatch
):
  make_plan = runner.make_plan

  def failing_plan(config, data_dir=None):
    plan = make_plan(config, data_dir)
    methods = [m._replace(sample_fn=_Failing()) for m in plan.methods]
    return plan._replace(methods=methods)

  monkeypatch.setattr(runner, 'make_plan', failing_plan)
  output = tmp_path / 'run'
  result = CliRunner().invoke(app, ['run', str(tiny), '--output', str(output)])
  assert result.exit_code == 1
  assert 'nothing left' in (output / 'report.md').read_text()
  records = json.loads((output / 'results.json').read_text())
  assert {record['status'] for record in records} == {'failed'}
  assert 'FloatingPointError' in records[0]['error']
  assert not list(output.rglob('*.tmp'))


def _write_data(folder, name):
  rng = np.random.default_rng(0)
  rows, columns = SOURCES[name].shape
  np.savez(
    folder / f'{name}.npz',
    X=rng.normal(size=(rows, columns)),
    y=rng.integers(0, 2, size=rows),
  )


@pytest.mark.full
@pytest.mark.parametrize(
  'name',
  ['gradient_adaptive_mcmc/ripley.yaml', 'auxiliary_gradient/gp_ripley.yaml'],
)
def test_classification_config_runs_on_a_local_copy(name, tmp_path):
  _write_data(tmp_path, 'ripley')
  config = configs.smoke(configs.load_config(CONFIG_DIR / name))
  config = _with_methods(config, config.methods[:1])
  _, records = _run(config, tmp_path / 'run', str(tmp_path))
  assert records[0]['status'] == 'finished'


@pytest.mark.parametrize(
  'path',
  sorted((CONFIG_DIR / 'auxiliary_gradient').glob('*.yaml')),
  ids=lambda path: path.stem,
)
def test_every_latent_gaussian_config_can_be_planned(path, tmp_path):
  config = configs.smoke(_load(path))
  if getattr(config.target, 'dataset', None) == 'mnist':
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, [30, 784]), np.arange(30) % 10
    np.savez(tmp_path / 'mnist.npz', X=images, y=labels)
  elif _needs_data(config.target):
    _write_data(tmp_path, config.target.dataset)
  plan = runner.make_plan(config, str(tmp_path))
  assert len(plan.methods) == len(config.methods)
  is_latent = plan.target.latent is not None
  assert is_latent or plan.target.hierarchy is not None


def test_starts_are_shared_by_methods_and_differ_between_repeats(tiny):
  config = configs.load_config(tiny)
  target = runner.make_plan(config).target
  first = starts.make_starts(config, target, 0)
  assert first.shape == (3, 2)
  np.testing.assert_array_equal(first, starts.make_starts(config, target, 0))
  assert np.all(first != starts.make_starts(config, target, 1))
  seeds = {cell.cell_seed(config, label, r) for label in 'ab' for r in (0, 1)}
  assert len(seeds) == 4


def test_climbing_ends_nearer_to_the_mode(tiny):
  overrides = ['init.kind=climb', 'init.scale=30', 'init.num_steps=400']
  config = configs.load_config(tiny, overrides)
  target = runner.make_plan(config).target
  low = configs.load_config(tiny, ['init.kind=normal', 'init.scale=30'])
  before = np.abs(starts.make_starts(low, target, 0)).max()
  after = np.abs(starts.make_starts(config, target, 0)).max()
  assert after < 0.5 * before


def test_refusals_on_the_command_line_exit_with_two(tiny):
  command = CliRunner()
  wrong = command.invoke(app, ['run', str(tiny), '--set', 'num_chains=x'])
  assert wrong.exit_code == 2
  missing = command.invoke(app, ['report', '/nowhere'])
  assert missing.exit_code == 2
  device = command.invoke(app, ['run', str(tiny), '--device', 'abacus'])
  assert device.exit_code == 2


def test_an_absent_device_says_what_there_is():
  from experiments.framework import devices

  with pytest.raises(DeviceError, match='cpu, gpu, tpu'):
    devices.on_device('abacus')


def test_list_and_schema_name_configs_targets_and_methods():
  listed = CliRunner().invoke(app, ['list'])
  assert listed.exit_code == 0, listed.output
  for word in ('neals_gaussian.yaml', 'gadmala_fast(', 'EightSchools('):
    assert word in listed.output
  schema = CliRunner().invoke(app, ['schema'])
  assert 'properties' in json.loads(schema.output)


def test_a_run_of_another_config_is_not_resumed(tiny, tmp_path):
  config = configs.load_config(tiny)
  storage.RunFolder.create(tmp_path / 'run', config)
  changed = configs.load_config(tiny, ['seed=5'])
  with pytest.raises(ConfigError, match='seed'):
    storage.RunFolder.open(tmp_path / 'run', changed)
  with pytest.raises(ConfigError, match='not the folder of a run'):
    storage.RunFolder.open(tmp_path)


def test_figures_of_an_empty_run_are_none(tiny, tmp_path):
  config = configs.load_config(tiny)
  folder = storage.RunFolder.create(tmp_path / 'run', config)
  target = runner.make_plan(config).target
  assert figures.draw_all(folder, config, target) == []
