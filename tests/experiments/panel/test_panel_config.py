"""A panel's config is refused before any computing, by key and value."""

import pathlib

import pytest
import typer.testing

from experiments.__main__ import app
from experiments.framework.errors import ConfigError
from experiments.panel import config as configs
from experiments.panel import run

SMALL = pathlib.Path(__file__).parents[3] / 'configs/stochastic_volatility.yaml'
PANEL = (
  pathlib.Path(__file__).resolve().parents[3]
  / 'configs'
  / 'inference_gym'
  / 'panel.yaml'
)


@pytest.fixture(scope='module')
def panel():
  return configs.load_panel(PANEL)


def test_the_committed_panel_holds_no_setting_by_target(panel):
  assert len(panel.config.targets) == 15
  assert panel.config.num_seeds >= 10
  for method in panel.config.methods:
    given = method.model_fields_set - {'name', 'label', 'settings'}
    assert given <= {'num_leapfrog_steps', 'preconditioner', 'mass_matrix'}


@pytest.mark.parametrize(
  ('override', 'words'),
  [
    ('targets.0.name=Bananna', ['targets.0.name', "did you mean 'Banana'"]),
    ('methods.0.name=gadmala', ['methods.0.name', 'gadmala_fast']),
    ('targets.0.size=3', ['targets.0.size', 'unknown key', 'ndims']),
    ('methods.0.sise=3', ['methods.0.sise', 'unknown key', 'preconditioner']),
    ('num_chain=3', ['num_chain', "did you mean 'num_chains'"]),
    ('num_chains=0', ['num_chains', 'greater than or equal to 1']),
    ('init.kind=no', ['init', 'normal']),
    ('methods.0.num_results=9', ['methods.0.num_results', 'one budget']),
    ('float64_targets=[banana]', ['float64_targets', "did you mean 'Banana'"]),
    ('editions_of_method.gadmala=2', ['editions_of_method', 'gadMALAf']),
    ('targets_without_xla=[banana]', ['targets_without_xla', "'Banana'"]),
    (
      'gradients_of_target.banana=900',
      ['gradients_of_target', "did you mean 'Banana'"],
    ),
    ('gradients_of_target.Banana=9', ['gradients_of_target', '100']),
    ('gates=none.yaml', ['there is no config file']),
    ('targets.1.name=Banana', ["'Banana' is there 2 times"]),
  ],
)
def test_mistakes_are_named(override, words):
  with pytest.raises(ConfigError) as caught:
    configs.load_panel(PANEL, [override])
  for word in words:
    assert word in str(caught.value)


def test_the_key_knows_all_that_decides_a_cell(panel, tmp_path):
  key = panel.key(0, 0)
  same = configs.load_panel(
    PANEL, ['num_seeds=3', 'seconds_per_pair=1', 'methods.2.label=x']
  )
  assert same.key(0, 0) == key
  others = [
    'edition=2',
    'num_chains=3',
    'gradients_per_chain=777',
    'max_draws=777',
    'targets.0.ndims=3',
    'methods.0.init_scale=1.0',
    'seed=1',
    'init.scale=2.0',
    'float64_targets=[Banana]',
    'gradients_of_target.Banana=778',
    'targets_without_xla=[Banana]',
    'editions_of_method.gadMALAf=2',
    'editions_of_target.Banana=2',
  ]
  keys = {configs.load_panel(PANEL, [o]).key(0, 0) for o in others}
  keys |= {key, panel.key(1, 0)}
  (tmp_path / 'Banana.json').write_text('{}')
  keys.add(panel._replace(reference_dir=tmp_path).key(0, 0))
  gates = panel.gates.model_copy(update={'min_ess': 1.0})
  keys.add(panel._replace(gates=gates).key(0, 0))
  assert len(keys) == len(others) + 4


def test_a_target_may_have_gradients_of_its_own(panel):
  other = configs.load_panel(PANEL, ['gradients_of_target.EightSchools=777'])
  index = panel.config.target_labels().index('EightSchools')
  assert other.budget(index).gradients_per_chain == 777
  assert other.key(0, 0) == panel.key(0, 0)
  # For that target it is as if all had them.
  for_all = configs.load_panel(PANEL, ['gradients_per_chain=777'])
  assert other.key(index, 0) == for_all.key(index, 0) != panel.key(index, 0)


def test_a_target_may_do_without_xla(panel):
  other = configs.load_panel(PANEL, ['targets_without_xla=[EightSchools]'])
  index = other.config.target_labels().index('EightSchools')
  assert other.pair_config(0, 0).jit_compile
  assert not other.pair_config(index, 0).jit_compile
  assert other.key(0, 0) == panel.key(0, 0)


def test_a_changed_sampler_alone_is_run_anew(panel):
  same = ['editions_of_method.gadMALAf=1', 'editions_of_target.Banana=1']
  assert configs.load_panel(PANEL, same).key(0, 0) == panel.key(0, 0)
  other = configs.load_panel(PANEL, ['editions_of_method.AM=2'])
  changed = {
    other.config.method_label(index)
    for index in range(len(other.config.methods))
    if other.key(0, index) != panel.key(0, index)
  }
  assert changed == {'AM'}


def test_filters_choose_by_label_and_pattern(panel):
  chosen = run.pairs(panel, ['Banana', '*SP500*'], ['am', 'AM'][1:])
  labels = {panel.config.target_label(t) for t, _ in chosen}
  assert len(chosen) == len(labels) == 3
  with pytest.raises(ConfigError, match='--only-method'):
    run.pairs(panel, (), ['nutz'])


def test_a_refused_panel_ends_the_command_with_its_message(tmp_path):
  result = typer.testing.CliRunner().invoke(
    app,
    ['run', str(PANEL), '--output', str(tmp_path), '--only-target', 'Bananna'],
  )
  assert result.exit_code == 2
  assert "did you mean 'Banana'" in result.output + str(result.stderr)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  'config, options, words',
  [
    (PANEL, ['--smoke'], '--smoke is not of panels'),
    (PANEL, ['--resume'], '--resume is not of panels: they go on by'),
    (SMALL, ['--only-method', 'AM'], '--only-method is of panels alone'),
    (SMALL, ['--redo', 'failed'], '--redo is of panels alone'),
  ],
)
def test_options_that_would_be_passed_over_are_refused(
  config, options, words, tmp_path
):
  command = ['run', str(config), '--output', str(tmp_path / 'run'), *options]
  result = typer.testing.CliRunner().invoke(app, command)
  assert result.exit_code == 2
  assert words in ' '.join((result.output + str(result.stderr)).split())
  assert not list(tmp_path.iterdir())


def test_configs_are_listed_with_the_panel_among_them():
  result = typer.testing.CliRunner().invoke(app, ['list'])
  assert result.exit_code == 0
  assert 'panel.yaml' in result.output
  assert 'gates.yaml' not in result.output
