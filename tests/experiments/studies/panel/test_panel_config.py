"""A panel's config is refused before any computing, by key and value."""

import pytest

from experiments.run import find
from experiments.run import tasks
from experiments.run.errors import ConfigError
from experiments.studies.panel import config as configs

PANEL = configs.DEFAULT


@pytest.fixture(scope='module')
def panel():
  return configs.load_panel(PANEL)


@pytest.mark.parametrize(
  ('override', 'words'),
  [
    ('targets.0.name=Bananna', ['targets.0.name', "did you mean 'Banana'"]),
    ('targets.0.size=3', ['targets.0.size', 'unknown key', 'ndims']),
    ('num_chain=3', ['num_chain', "did you mean 'num_chains'"]),
    ('methods.0.num_results=9', ['methods.0.num_results', 'one budget']),
    ('float64_targets=[banana]', ['float64_targets', "did you mean 'Banana'"]),
    (
      'gradients_of_target.banana=900',
      ['gradients_of_target', "did you mean 'Banana'"],
    ),
    ('gradients_of_target.Banana=9', ['gradients_of_target', '100']),
    ('targets.1.name=Banana', ["'Banana' is there 2 times"]),
  ],
)
def test_mistakes_are_named(override, words):
  with pytest.raises(ConfigError) as caught:
    configs.load_panel(PANEL, [override])
  for word in words:
    assert word in str(caught.value)


def test_the_key_knows_all_that_decides_a_cell(panel, tmp_path):
  names = 'Banana', 'gadMALAf'
  key = panel.key(*names)
  same = configs.load_panel(
    PANEL, ['num_seeds=3', 'seconds_per_pair=1', 'methods.2.label=x']
  )
  assert same.key(*names) == key
  others = [
    'edition=2',
    'num_chains=3',
    'gradients_per_chain=777',
    'max_draws=777',
    'methods.0.settings=paper',
    'seed=1',
    'init.scale=2.0',
    'float64_targets=[Banana]',
    'gradients_of_target.Banana=778',
    'targets_without_xla=[Banana]',
  ]
  keys = {configs.load_panel(PANEL, [o]).key(*names) for o in others}
  keys |= {key, panel.key('NealsFunnel', 'gadMALAf')}
  # A label holds what is set of a target.
  wide = configs.load_panel(PANEL, ['targets.0.ndims=3'])
  keys.add(wide.key('Banana_3', 'gadMALAf'))
  (tmp_path / 'Banana.json').write_text('{}')
  keys.add(panel._replace(reference_dir=tmp_path).key(*names))
  gates = panel.gates.model_copy(update={'min_ess': 1.0})
  keys.add(panel._replace(gates=gates).key(*names))
  assert len(keys) == len(others) + 5


def test_the_engine_finds_the_cases_and_seeds_of_a_panel(panel):
  found = find.load(str(PANEL), ['num_seeds=3'])
  assert found.name == 'inference_gym'
  cells = tasks.cells(found, ['Banana | AM', '*SP500 | nutpie*'])
  assert [(cell.case, cell.seed) for cell in cells[:4]] == [
    *(('Banana | AM', seed) for seed in range(3)),
    ('VectorizedStochasticVolatilitySP500 | nutpie (low rank)', 0),
  ]
  assert found.study.max_seconds == panel.config.seconds_per_pair
  # A key is that of the case: another target's budget leaves it alone.
  other = find.load(str(PANEL), ['gradients_of_target.Banana=777'])
  changed = tasks.cells(other, ['Banana | AM', '*SP500 | nutpie*'], (0,))
  assert [a.key == b.key for a, b in zip(cells[::3], changed)] == [
    False,
    True,
    True,
  ]
  smoke = find.load(str(PANEL), is_smoke=True)
  assert smoke.study.seeds == (0,)
