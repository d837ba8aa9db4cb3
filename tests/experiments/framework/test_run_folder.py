"""Folders of runs: what was edited, swapped, copied or cut is refused."""

import gzip
import json
import shutil
import warnings

import numpy as np
import pytest

from experiments.framework import config as configs
from experiments.framework import runner
from experiments.framework import sessions
from experiments.framework import storage
from experiments.framework.errors import ConfigError
from experiments.framework.storage import RunFolder
from experiments.panel.cells import CellFile
from tests.experiments.framework.made_up_cells import write_cells

VALUES = {
  'name': 'small',
  'target': {'name': 'gaussian_2d', 'rho': 0.5},
  'methods': [{'name': 'mala'}, {'name': 'rwm'}],
  'num_adaptation_steps': 10,
  'num_results': 20,
  'num_repeats': 2,
}
FIRST = 'cells/00_MALA/repeat_00'


def _write_run(path, seed=0, **changes):
  config = configs.parse_config({**VALUES, 'seed': seed, **changes})
  folder = RunFolder.create(path, config)
  write_cells(np.random.default_rng(seed), folder, config)
  return folder.path


@pytest.fixture
def run(tmp_path):
  return _write_run(tmp_path / 'run')


def _swap(one, other):
  aside = one.with_name('aside')
  one.rename(aside)
  other.rename(one)
  aside.rename(other)


def _edit(file, **changes):
  file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def _replace(file, old, new):
  assert old in file.read_text()
  file.write_text(file.read_text().replace(old, new))


def test_cells_are_read_as_they_were_written(run, tmp_path):
  records = storage.join_runs([run])['small']
  assert [r['repeat'] for r in records] == [0, 1, 0, 1]
  assert 'seal' not in records[0]
  other = _write_run(tmp_path / 'other', seed=1)
  assert len(storage.join_runs([run, other])['small']) == 8


def _in_config(old, new):
  return lambda run: _replace(run / 'config.yaml', old, new)


def _in_cell(**changes):
  return lambda run: _edit(run / FIRST / 'cell.json', **changes)


def _written(text):
  return lambda run: (run / FIRST / 'cell.json').write_text(text)


def _swapped(other, file=''):
  return lambda run: _swap(run / FIRST / file, run / 'cells' / other / file)


@pytest.mark.parametrize(
  'damage, word',
  [
    (_in_cell(accept_rate=0.5), 'seal (record)'),
    (_in_cell(seal=None), 'no seal'),
    (_in_cell(seal={}), 'seal'),
    (_written('{'), 'as JSON'),
    (_written('[' * 10**6), 'as JSON'),
    (_written('9' * 5000), 'as JSON'),
    (_written('[]'), 'no seal'),
    (_swapped('00_MALA/repeat_01'), 'seal (repeat)'),
    (_swapped('01_RWM/repeat_00'), 'seal (index, label)'),
    (_swapped('01_RWM/repeat_00', 'arrays.npz'), 'seal (arrays)'),
    (lambda run: (run / FIRST / 'cell.json').unlink(), 'cell.json'),
    (lambda run: (run / FIRST / 'arrays.npz').unlink(), 'seal (arrays)'),
    (lambda run: (run / FIRST / 'arrays.npz').write_bytes(b''), 'arrays'),
    (lambda run: (run / FIRST).rename(run / 'cells/00_MALA/x'), 'no cell'),
    (lambda run: (run / 'config.yaml').unlink(), 'no config.yaml'),
    (_in_config('num_results: 20', 'num_results: 9'), 'seal (config)'),
    (_in_config('num_repeats: 2', 'num_repeats: 1'), 'no cell of the config'),
    (_in_config('seed: 0', 'seed: ['), 'not YAML'),
  ],
)
def test_damaged_runs_are_refused_by_the_file(damage, word, run):
  damage(run)
  with pytest.raises(ConfigError) as refused:
    storage.join_runs([run])
  assert word in str(refused.value)
  assert str(run) in str(refused.value)
  assert len(str(refused.value)) <= 600


def test_a_cell_of_another_run_is_refused(run, tmp_path):
  other = _write_run(tmp_path / 'other', seed=1)
  _swap(run / FIRST, other / FIRST)
  for path in (run, other):
    with pytest.raises(ConfigError, match=r'seal \(config\)'):
      storage.join_runs([path])


def test_a_run_given_twice_is_no_further_repeat(run, tmp_path):
  shutil.copytree(run, tmp_path / 'copy')
  for again in (run, tmp_path / 'copy'):
    with pytest.raises(ConfigError, match='give each once'):
      storage.join_runs([run, again])


def test_draws_of_the_same_seeds_are_no_further_repeats(run, tmp_path):
  longer = _write_run(tmp_path / 'longer', num_repeats=3)
  with pytest.raises(ConfigError, match='draws of the same seeds'):
    storage.join_runs([run, longer])


def test_runs_of_one_name_but_other_lengths_are_not_averaged(run, tmp_path):
  other = _write_run(tmp_path / 'other', seed=1, num_results=40)
  with pytest.raises(ConfigError, match='differs in num_results'):
    storage.join_runs([run, other])
  methods = [{'name': 'mala', 'step_size': 0.1}, {'name': 'rwm'}]
  third = _write_run(tmp_path / 'third', seed=2, methods=methods)
  with pytest.raises(ConfigError, match='the method MALA'):
    storage.join_runs([run, third])


def test_other_white_space_and_another_order_are_the_same_record(run):
  file = run / FIRST / 'cell.json'
  before = storage.join_runs([run])
  values = json.loads(file.read_text())
  file.write_text(json.dumps(dict(reversed(values.items()))))
  (run / 'config.yaml').write_text(
    '# A comment.\n' + (run / 'config.yaml').read_text()
  )
  assert storage.join_runs([run]) == before


def test_a_damaged_cell_is_refused_before_the_others_run(run, monkeypatch):
  folder = RunFolder.open(run)
  plan = runner.make_plan(folder.config())
  shutil.rmtree(run / FIRST)
  _edit(run / 'cells/01_RWM/repeat_01/cell.json', accept_rate=0.5)
  monkeypatch.setattr(runner, 'run_cell', lambda *_: pytest.fail('it ran'))
  with pytest.raises(ConfigError, match='repeat_01'):
    runner.run_plan(plan, folder, None)


@pytest.mark.parametrize(
  'text', ['{', '{}', 'null', '[1]', '[{}]', '[' * 10**6]
)
def test_a_damaged_list_of_sessions_is_refused(text, run):
  (run / 'run.json').write_text(text)
  with pytest.raises(ConfigError, match='run.json'):
    sessions.read(run)


def test_a_run_that_other_versions_began_is_told_when_it_goes_on(tmp_path):
  sessions.append(tmp_path)
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    sessions.append(tmp_path)
  (first, second) = sessions.read(tmp_path)
  assert first['versions'] == second['versions']

  second['versions'] |= {'tfp_adaptive': '0.0.1', 'inference_gym': None}
  (tmp_path / 'run.json').write_text(json.dumps([first, second]))
  told = 'tfp_adaptive 0.0.1 before, .* inference_gym None before'
  with pytest.warns(UserWarning, match=told):
    sessions.append(tmp_path)
  assert sessions.read(tmp_path)[:2] == [first, second]


def test_the_newest_run_is_one_of_that_config_alone(tmp_path):
  config = configs.parse_config({**VALUES, 'name': 'tiny'})
  names = ['tiny-20260101-101010', 'tiny-two-20270101-101010', 'tiny-x-y']
  for name in [*names, 'tiny-20250101-101010', 'tiny-20260102-1']:
    (tmp_path / name).mkdir()
  assert runner.newest_output(config, tmp_path).name == names[0]
  shutil.rmtree(tmp_path / names[0])
  shutil.rmtree(tmp_path / 'tiny-20250101-101010')
  with pytest.raises(ConfigError, match="no run of 'tiny'"):
    runner.newest_output(config, tmp_path)


def test_a_line_of_a_panel_that_is_no_record_is_refused_by_number(tmp_path):
  record = dict.fromkeys(('target', 'method', 'key', 'gates', 'status'), 'x')
  good = json.dumps({**record, 'seed': 0})
  file = CellFile(tmp_path)
  # A killed process leaves a line cut in two.
  file.path.write_text(f'{good}\n{good[:20]}\n')
  assert len(file.records()) == 1
  for wrong in ('3', '[]', '{"target": "x"}', json.dumps(record)):
    file.path.write_text(f'{good}\n{wrong}\n')
    with pytest.raises(ConfigError, match='line 2'):
      file.records()


def test_packed_records_come_first_and_a_broken_archive_is_refused(tmp_path):
  record = dict.fromkeys(('target', 'method', 'key', 'gates', 'status'), 'x')
  file = CellFile(tmp_path)
  lines = [json.dumps({**record, 'seed': seed, 'n': 0}) for seed in (0, 1)]
  packed = gzip.compress('\n'.join(lines).encode())
  file.packed.write_bytes(packed)
  file.append({**record, 'seed': 1, 'n': 1})
  assert [(r['seed'], r['n']) for r in file.records()] == [(0, 0), (1, 1)]
  file.packed.write_bytes(packed[:-12])
  with pytest.raises(ConfigError, match='is broken .* restore it'):
    file.records()
