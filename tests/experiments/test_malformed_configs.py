"""A config is read as it is, or refused in one sentence that names the key.

Examples that are written out are faults that were once found; more of them are
in run/test_yaml_files.py and papers/test_config.py.
"""

import copy
import functools
import json
import pathlib

import pytest
import yaml
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from experiments.papers import config as configs
from experiments.run import yaml_files
from experiments.run.errors import ConfigError
from experiments.studies.panel.config import load_panel

CONFIG_DIR = pathlib.Path(__file__).resolve().parents[2] / 'configs'
RUN = {
  'name': 'small',
  'description': 'Two methods, few steps.',
  'target': {'name': 'gaussian_2d', 'rho': 0.5},
  'methods': [
    {'name': 'rwm', 'label': 'first', 'target_accept_prob': 0.25},
    {'name': 'hmc', 'num_leapfrog_steps': 3, 'target_accept_prob': 0.65},
  ],
  'num_chains': 2,
  'num_adaptation_steps': 10,
  'num_results': 20,
  'num_repeats': 2,
  'seed': 3,
  'init': {'kind': 'normal', 'scale': 1.5},
  'jit_compile': False,
}
PANEL = {
  'name': 'small',
  'gates': 'gates.yaml',
  'references': 'reference',
  'targets': [{'name': 'Banana'}, {'name': 'NealsFunnel', 'ndims': 3}],
  'methods': [{'name': 'mala'}, {'name': 'hmc', 'num_leapfrog_steps': 2}],
  'num_seeds': 2,
  'num_chains': 4,
  'gradients_per_chain': 2000,
  'max_draws': 5000,
  'seconds_per_pair': 60.5,
}
GATES = {'version': 1, 'max_rhat': 1.01, 'min_ess': 400.5, 'max_abs_z': 5.5}
QUICK = settings(max_examples=60, deadline=None)


@functools.cache
def committed():
  """Returns the values of all configs of the repository."""
  found = map(yaml_files.load, sorted(CONFIG_DIR.rglob('*.yaml')))
  return [values for values in found if 'methods' in values]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp('configs')
  (path / 'gates.yaml').write_text(yaml.safe_dump(GATES))
  (path / 'reference').mkdir()
  return path


def load(folder, content, overrides=()):
  """Returns a config as the commands read it; `ConfigError` refuses."""
  path = folder / 'config.yaml'
  path.write_bytes(content if isinstance(content, bytes) else content.encode())
  try:
    if 'targets' in yaml_files.load(path):
      return load_panel(path, overrides).config
    return configs.load_config(path, overrides)
  except ConfigError as error:
    # A line for each mistake.
    assert len(str(error)) <= 600
    raise


def dump(values, **options):
  return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, **options)


def refused(folder, values, *words):
  with pytest.raises(ConfigError) as refusal:
    load(folder, dump(values))
  for word in words:
    assert str(word)[:20] in str(refusal.value)


def places(values, path=()):
  """Returns the paths of all entries that hold neither dict nor list."""
  if isinstance(values, dict):
    entries = values.items()
  elif isinstance(values, list):
    entries = enumerate(values)
  else:
    return [path]
  return [
    place for key, value in entries for place in places(value, (*path, key))
  ]


def changed(values, path, value=None, key=None):
  """Returns a copy with one entry set, and with its key renamed."""
  values = copy.deepcopy(values)
  node = values
  for step in path[:-1]:
    node = node[step]
  if key is not None:
    del node[path[-1]]
  node[path[-1] if key is None else key] = value
  return values


@st.composite
def configs_with_a_place(draw):
  """Returns values of a config and the path of one of its entries."""
  values = draw(
    st.one_of(st.sampled_from([RUN, PANEL]), st.sampled_from(committed()))
  )
  return values, draw(st.sampled_from(places(values)))


@QUICK
@given(
  configs_with_a_place(), st.sampled_from([[], {}, [[]], {'a': 1}, {'': {}}])
)
@example((RUN, ('methods', 0, 'name')), ['mala'])
@example((RUN, ('methods', 0, 'name')), {'mala': 1})
@example((RUN, ('methods', 1, 'num_leapfrog_steps')), [])
@example((RUN, ('methods', 1, 'num_leapfrog_steps')), [True])
@example((RUN, ('methods', 1, 'num_leapfrog_steps')), [2**40, -1])
@example((RUN, ('target', 'name')), None)
@example((RUN, ('target', 'rho')), float('nan'))
@example((RUN, ('num_chains',)), True)
@example((RUN, ('num_chains',)), 10**12)
@example((RUN, ('seed',)), 2**62 + 0.5)
@example((RUN, ('jit_compile',)), 'perhaps')
@example((RUN, ('name',)), '../up')
@example((RUN, ('name',)), 'a\n')
@example((RUN, ('methods',)), [])
@example((RUN, ('target',)), [[]])
@example((PANEL, ('targets',)), {})
@example((PANEL, ('targets', 1, 'ndims')), 10**9)
def test_a_value_of_another_type_is_refused_with_its_key(folder, entry, value):
  values, path = entry
  keys = [key for key in path if isinstance(key, str)]
  refused(folder, changed(values, path, value), keys[-1])


@QUICK
@given(configs_with_a_place(), st.text(max_size=30))
@example((RUN, ('num_chains',)), 'numchains')
@example((RUN, ('num_chains',)), 'k' * 5000)
@example((RUN, ('num_chains',)), '<<')
@example((RUN, ('num_chains',)), 'num_chains ')
@example((RUN, ('target', 'rho')), 'a.b')
def test_an_unknown_key_is_refused(folder, entry, key):
  values, path = entry
  # Labels may be any text, and names of known parameters are none of these.
  if isinstance(path[-1], int) or path[0] in ('editions', 'gradients_of'):
    return
  with pytest.raises(ConfigError):
    load(folder, json.dumps(changed(values, path, 1, f'{key}_unknown')))


@QUICK
@given(st.text())
@example('1e3')
@example('2024-01-31')
@example('~')
@example('\\$$')
@example('\ud800')
@example('a\x85b')
def test_a_label_is_kept_as_it_is_or_refused(folder, label):
  values = changed(RUN, ('methods', 0, 'label'), label)
  try:
    config = load(folder, json.dumps(values))
  except ConfigError as error:
    assert 'label' in str(error) or 'U+' in str(error)
    return
  assert config.labels()[0] == label
  assert load(folder, json.dumps(config.model_dump(mode='json'))) == config


@st.composite
def damaged_texts(draw):
  """Returns a config's bytes with some turned, cut, moved or inserted."""
  values = draw(st.sampled_from([RUN, PANEL, *committed()]))
  lines = dump(values).splitlines(keepends=True)
  if draw(st.booleans()):
    lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from(lines)))
    del lines[draw(st.integers(0, len(lines) - 1))]
  content = bytearray(''.join(lines).encode())
  at = st.integers(0, len(content) - 1)
  for place, bit in draw(
    st.lists(st.tuples(at, st.integers(0, 7)), max_size=4)
  ):
    content[place] ^= 1 << bit
  junk = st.sampled_from('[]{}:,-?*&!|>%@`"\'#\t~=<\0\n').map(str.encode)
  place = draw(at)
  content[place:place] = draw(junk) * draw(st.integers(0, 3))
  if draw(st.booleans()):
    del content[draw(at) :]
  return bytes(content)


@settings(max_examples=200, deadline=None)
@given(damaged_texts())
@example(dump(RUN).encode('utf-16-le'))
@example(dump(RUN).encode() + b'\xff\xfe')
@example(dump(RUN).encode() + b'\0' * 100)
@example(dump(RUN).encode() + b'x: *none\n')
@example(dump(RUN).encode() + b'<<: 3\n')
@example(dump(RUN).encode() + b'<<: <<\n')
@example(dump(RUN).encode() + b'&a &b x: 1\n')
@example(dump(RUN).encode() + b'? [a, b]\n: 1\n')
@example(dump(RUN).encode() + b'x: =\n')
@example(dump(RUN).encode() + b'=: 1\n')
@example(dump(RUN).encode() + b'---\n' + dump(RUN).encode())
@example(b'%YAML 9.9\n---\na: 1')
@example(b'!!map')
@example(b'- - -')
@example(b'')
def test_a_damaged_text_is_a_config_or_is_refused(folder, content):
  try:
    config = load(folder, content)
  except ConfigError:
    return
  # What is read can be stored and is read again as it is.
  again = type(config).model_validate(config.model_dump(mode='json'))
  assert again == config


@pytest.mark.parametrize(
  'override',
  ['name', '=3', '', 'name=[', 'name={a', 'name="', 'name: a', '.=1', '..=1',
   'methods.9.name=am', 'methods.-1.name=am', 'methods.0.name.x=1',
   'methods.0.name=[mala]', 'methods.0=3', 'methods=3', 'num_chains=x',
   'num_chains=1.5', 'num_chains=true', 'num_chains=*a', 'num_chains=%',
   'num_chains=!!python/object:os.system x', 'num_chains=0b_', 'num_chains=\0',
   'num_chains=' + '9' * 5000, 'num_chains=' + '[' * 3000, 'num_chains=\x07',
   'num_chains=2024-02-31', 'num_chains=1\n---\n2', 'k' * 9000 + '=1',
   'methods.0.<<=1', 'name=\u00e9', 'methods=[' + 'x, ' * 9000 + ']'],
)  # fmt: skip
def test_an_override_that_does_not_fit_is_refused(override, folder):
  with pytest.raises(ConfigError):
    load(folder, dump(RUN), [override])


@QUICK
@given(st.sampled_from([RUN, PANEL]), st.data())
def test_an_override_by_the_same_value_changes_nothing(folder, values, data):
  path = data.draw(st.sampled_from(places(values)))
  value = functools.reduce(lambda node, key: node[key], path, values)
  override = f'{".".join(map(str, path))}={json.dumps(value)}'
  expected = load(folder, dump(values))
  assert load(folder, dump(values), [override]) == expected


@pytest.mark.parametrize(
  'name, text',
  [('gates.yaml', text) for text in ('', '3', '[' * 500, 'a\x07', 'x: [')]
  + [('gates.yaml', 'version: 1'), ('gates.yaml', None)]
  + [
    ('reference/Banana.json', text)
    for text in ('', '{', '[' * 10**5, '9' * 5000, 'x', '\0')
  ],
)
def test_a_broken_file_beside_a_panel_is_refused(name, text, tmp_path):
  (tmp_path / 'gates.yaml').write_text(yaml.safe_dump(GATES))
  (tmp_path / 'reference').mkdir()
  path = tmp_path / name
  if text is None:
    path.unlink()
  else:
    path.write_text(text)
  with pytest.raises(ConfigError, match=f'{path.name}|max_rhat: '):
    load(tmp_path, dump(PANEL))
    load_panel(tmp_path / 'config.yaml').key('Banana', 'mala')
