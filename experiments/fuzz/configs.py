"""Broken configs: of runs and of panels, and `--set` of the command line."""

import functools
import json
import pathlib

import yaml

from experiments.fuzz import config_texts
from experiments.fuzz.case import ACCEPT
from experiments.fuzz.case import Case
from experiments.fuzz.case import EITHER
from experiments.fuzz.case import pick
from experiments.fuzz.case import REFUSE
from experiments.fuzz.config_values import OF_ANY
from experiments.fuzz.config_values import PANEL
from experiments.fuzz.config_values import RUN
from experiments.fuzz.config_values import STRUCTURE
from experiments.fuzz.values import at
from experiments.fuzz.values import leaves
from experiments.papers import config as configs
from experiments.papers import tables
from experiments.papers.config_study import make_plan
from experiments.papers.labels import in_markdown
from experiments.run import yaml_files
from experiments.run.store import Record
from experiments.studies.panel.config import load_panel

__all__ = ['make']

# Targets that are built in no time.
_CHEAP = ('banana', 'gaussian_2d', 'neals_gaussian', 'spectrum_gaussian')
_CONFIG_DIR = pathlib.Path(__file__).resolve().parents[2] / 'configs'
_GATES = {'version': 1, 'max_rhat': 1.01, 'min_ess': 400.5, 'max_abs_z': 5.5}
_BAD_GATES = (
  '', '3', 'version: 1', 'max_rhat: [', '[' * 500, 'a\x07', '- 1',
  'version: 1\nmax_rhat: 0.5\nmin_ess: 1.5\nmax_abs_z: 5.5\n',
  'version: 1\nmax_rhat: x\nmin_ess: 1.5\nmax_abs_z: 5.5\n',
)  # fmt: skip
_BAD_JSON = ('', '{', '[' * 10**5, '9' * 5000, "{'a': 1}", 'x', '\x00')


@functools.cache
def _committed():
  """Returns the values of all configs of the repository."""
  paths = sorted(_CONFIG_DIR.rglob('*.yaml'))
  found = [yaml_files.load(path) for path in paths]
  return [values for values in found if 'methods' in values]


def make(rng, folder):
  """Returns a `Case`, its files written below an empty folder."""
  kind = pick(rng, ['run', 'run', 'panel', 'committed', 'committed'])
  values = {'run': RUN, 'panel': PANEL}.get(kind) or pick(rng, _committed())
  name, text, overrides, expected = _mutated(rng, kind, values)
  if expected != EITHER and isinstance(text, str) and rng.random() < 0.3:
    name, text = config_texts.neutral(rng, name, text)
  path = _write(folder, text, rng, name)
  is_drawn = name.startswith('odd label')
  is_same = expected == ACCEPT and not is_drawn
  return Case(
    name,
    expected,
    f'{kind} {_shown(text)} --set {_shown(str(list(overrides)))}',
    lambda: _load(path, overrides, values if is_same else None),
  )


def _mutated(rng, kind, values):
  """Returns (name of the mutation, text, overrides, what is expected)."""
  group = rng.random()
  if group < 0.5:
    names = OF_ANY if kind == 'committed' else list(STRUCTURE)
    name = pick(rng, names)
    values, expected = STRUCTURE[name](rng, kind, values)
    text = config_texts.dump(values)
    # In JSON a label such as 1e3 keeps its quotes.
    text = json.dumps(values) if name == 'odd label' else text
    return name, text, (), expected
  if group < 0.65 and kind != 'committed':
    name, overrides, expected = _override(rng, kind)
    return name, config_texts.dump(values), overrides, expected
  name, text, expected = config_texts.mutate(rng, values)
  return name, text, (), expected


def _write(folder, text, rng, name):
  path = folder / 'config.yaml'
  (folder / 'gates.yaml').write_text(yaml.safe_dump(_GATES))
  (folder / 'reference').mkdir()
  if name.startswith('bad gates'):
    (folder / 'gates.yaml').write_text(pick(rng, _BAD_GATES))
  if name.startswith('bad reference'):
    (folder / 'reference' / 'Banana.json').write_text(pick(rng, _BAD_JSON))
  if name.startswith('no file'):
    return folder / pick(rng, ['none.yaml', 'x' * 400, 'a\0b', 'reference', ''])
  if isinstance(text, str):
    text = text.encode('utf-8', 'surrogatepass')
  path.write_bytes(text)
  return path


def _shown(text):
  return repr(text if len(text) < 300 else text[:200] + text[-80:])


def _load(path, overrides, original):
  """Reads a config as `run` does; plans it where that is cheap."""
  if 'targets' in yaml_files.load(path):
    panel = load_panel(path, overrides)
    panel.key(next(iter(panel.targets)), next(iter(panel.methods)))
    found = panel.config
  else:
    found = configs.load_config(path, overrides)
    smoke = configs.smoke(found)
    if found.target.name in _CHEAP:
      make_plan(smoke)
    wrong = _shown_wrong(found)
    if wrong:
      return wrong
  if original is None:
    return None
  model = type(found)
  values = configs.expand_methods(original)
  return None if found == model.model_validate(values) else 'another config'


def _shown_wrong(config):
  """Returns how a label fails to be shown as it is; None where it does not."""
  records = [
    Record(config.name, label, 0, None, 'failed', {}, 'E')
    for label in config.labels()
  ]
  text = tables.to_markdown(config.name, records)
  for label in config.labels():
    if f'| {in_markdown(label)} |' not in text:
      return f'the table does not show the label {label[:50]!r}'
  return None


_BAD_OVERRIDES = (
  'name', '=3', '', 'name=[', 'name={a', 'name="', "name='", 'name: a',
  'methods.9.name=am', 'methods.first.name=am', 'methods.-1.name=am',
  'methods.\u00b2.name=am', 'methods.0.name.x=1', 'methods.0.name=[mala]',
  'methods.0.name={a: 1}', 'methods..name=am', 'methods.0=3', 'methods=3',
  'num_chains=x', 'num_chains=1.5', 'num_chains=true', 'num_chains=*a',
  'num_chains=!!int x', 'num_chains=!!python/object:os.system x',
  'num_chains=0b_', 'num_chains=0x', 'num_chains=%', 'num_chains=@', 'x' * 9000,
  'num_chains=' + '9' * 5000, 'num_chains=' + '[' * 3000, 'num_chains=\0',
  'num_chains=\x07', 'num_chains=2024-02-31', 'num_chains=- 1\n- 2',
  'num_chains=1\n---\n2', 'methods.' + '9' * 5000 + '.name=am', '.=1', '..=1',
  '.'.join('a' * 2000) + '=1', 'k' * 9000 + '=1',
  'methods.0.' + 'k' * 5000 + '=1',
  'methods.0.<<=1', 'num_chains=0xffffffffffffffffffffff', 'name=\u00e9',
  'methods=[' + 'x, ' * 9000 + ']', 'num_chains=' + '1' * 70000,
)  # fmt: skip


def _override(rng, kind):
  if rng.random() < 0.85:
    return 'bad --set', (pick(rng, _BAD_OVERRIDES),), REFUSE
  values = RUN if kind == 'run' else PANEL
  path = pick(rng, [p for p in leaves(values) if p[-1] != 'description'])
  value = at(values, path)
  text = json.dumps(value)
  key = '.'.join(map(str, path))
  return 'same --set', (f'{key}={text}',), ACCEPT
