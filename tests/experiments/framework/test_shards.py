"""Shards: every cell in one of them, and none in two."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.framework import config as configs
from experiments.framework import runner
from experiments.framework import shards
from experiments.framework import storage
from experiments.framework.cell import CellResult
from experiments.framework.errors import ConfigError
from experiments.framework.errors import StorageError
from experiments.framework.shards import Shard
from tests.experiments.framework import made_up_cells as made_up

VALUES = {
  'name': 'small',
  'target': {'name': 'gaussian_2d', 'rho': 0.5},
  'methods': [{'name': 'mala'}, {'name': 'rwm'}],
  'num_adaptation_steps': 10,
  'num_results': 20,
  'num_repeats': 3,
}
NAMES = [f'cell {number}' for number in range(7)]


class _Ran:
  """Stands for `run_cell`."""

  cells = []

  @classmethod
  def run(cls, config, index, method, target, repeat, checkpoint, progress):
    del method, target, checkpoint, progress
    cls.cells.append((index, repeat))
    rng = np.random.default_rng([index, repeat])
    record = made_up._record(rng, config.label(index), repeat)
    return CellResult(record, {'worst_trace': rng.normal(size=20)}, None)


@pytest.fixture
def ran(monkeypatch):
  monkeypatch.setattr(runner, 'run_cell', _Ran.run)
  monkeypatch.setattr(runner.figures, 'draw_all', lambda *_: [])
  monkeypatch.setattr(_Ran, 'cells', [])
  return _Ran.cells


@pytest.fixture
def start(tmp_path):
  """Returns a function that invokes `run`: (exit code, output)."""
  path = tmp_path / 'small.yaml'
  path.write_text(json.dumps(VALUES))

  def start(shard=None, *options, output='run'):
    command = ['run', str(path), '--output', str(tmp_path / output), *options]
    command += [] if shard is None else ['--shard', shard]
    done = CliRunner().invoke(app, command)
    return done.exit_code, ' '.join(done.output.split())

  return start


def _report(*paths):
  done = CliRunner().invoke(app, ['report', *map(str, paths)])
  return done.exit_code, ' '.join(done.output.split())


@pytest.mark.parametrize('count', [1, 2, 3, 7, 9])
def test_every_cell_is_in_one_shard(count):
  parts = [Shard(index, count).of(NAMES) for index in range(count)]
  assert sorted(sum(parts, [])) == NAMES
  assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
  'text, words',
  [
    ('1', 'SLURM_ARRAY_TASK_ID/'),
    ('/', 'SLURM_ARRAY_TASK_ID/'),
    ('-1/4', 'from 0 to n - 1'),
    ('1/4/4', 'from 0 to n - 1'),
    ('4/4', 'numbered from 0: of 4 the last is 3/4.*--array=0-3'),
    ('0/0', 'n is from 1'),
    ('0/1000000', 'n is from 1'),
    ('९/4', 'from 0 to n - 1'),
  ],
)
def test_what_is_no_shard_is_refused_with_how_one_is_written(text, words):
  with pytest.raises(ConfigError, match=words):
    shards.parse(text)


def test_shards_make_the_folder_of_one_run(ran, start, tmp_path):
  assert start(output='alone')[0] == 0
  alone = storage.RunFolder.open(tmp_path / 'alone').records()
  del ran[:]
  code, told = start('1/2')
  assert code == 0, told
  assert ran == [(0, 1), (1, 0), (1, 2)]
  assert 'lacks 3 of 6 cells: MALA, repeat 1 of 3' in told
  assert not (tmp_path / 'run' / 'report.md').exists()
  # What is there is reported, and what is not.
  code, told = _report(tmp_path / 'run')
  assert code == 0
  assert '| RWM |' in told and 'lacks 3 of 6' in told
  code, told = start('0/2')
  assert code == 0 and 'lacks' not in told
  # The last one makes the tables of all.
  assert 'MALA' in (tmp_path / 'run' / 'report.md').read_text()
  folder = storage.RunFolder.open(tmp_path / 'run')
  assert folder.records() == alone
  assert 'lacks' not in _report(folder.path)[1]
  # Nothing is left to run, for a shard and for all.
  del ran[:]
  assert start('0/2')[0] == start(None, '--resume')[0] == 0
  assert ran == []
  homes = sorted(folder.path.glob('shards/2-*/*/run.json'))
  assert [len(json.loads(path.read_text())) for path in homes] == [2, 1]


def test_a_shard_that_died_goes_on_with_its_own_cells(ran, start, tmp_path):
  start('1/2')
  folder = storage.RunFolder.open(tmp_path / 'run')
  folder.cell_path(1, 'RWM', 0).rename(tmp_path / 'lost')
  del ran[:]
  assert start('1/2')[0] == 0
  assert ran == [(1, 0)]


def test_another_number_of_shards_in_one_folder_is_refused(
  ran, start, tmp_path
):
  assert start('0/2')[0] == 0
  num_ran = len(ran)
  code, told = start('0/3')
  assert code == 2
  assert 'is divided into 2 shards; 0/3 was given' in told
  assert 'remove' in told and len(ran) == num_ran
  # As it says.
  names = {path.name for path in (tmp_path / 'run' / 'shards').iterdir()}
  assert len(names) == 1
  assert start('1/2')[0] == 0


def test_shards_of_another_list_are_refused(tmp_path):
  with shards.joined(tmp_path, Shard(0, 2), NAMES):
    pass
  with pytest.raises(ConfigError, match='2 shards of another list of cells'):
    with shards.joined(tmp_path, Shard(1, 2), NAMES[::-1]):
      pytest.fail('began')


def test_the_same_shard_twice_and_a_run_beside_shards_are_refused(
  ran, start, tmp_path
):
  output = tmp_path / 'run'
  config = configs.parse_config(VALUES)
  with storage.shared_folder(output, config, Shard(0, 2)):
    for shard, options in (('0/2', ()), (None, ('--resume',)), (None, ())):
      code, told = start(shard, *options)
      assert code == 2
      assert 'in use by process' in told or 'not empty' in told
    assert ran == []
    assert start('1/2')[0] == 0
  with storage.run_folder(output, config, resume=True):
    code, told = start('0/2')
    assert code == 2 and 'in use by process' in told
  assert start('0/2')[0] == 0


def test_a_shard_that_takes_a_cell_of_its_neighbor_is_caught(
  ran, start, tmp_path, monkeypatch
):
  assert start('1/3')[0] == 0
  assert _report(tmp_path / 'run')[0] == 0
  with monkeypatch.context() as patch:
    # As a slip in the arithmetic would have it: 2, 3, 5 instead of 2, 5.
    patch.setattr(Shard, 'of', lambda self, tasks: [*tasks[2::3], tasks[3]])
    start('2/3')
  for code, told in (_report(tmp_path / 'run'), start('0/3')):
    assert code == 2
    assert "shard 2/3 began the cell 'RWM, repeat 1 of 3'" in told
    assert 'which is of shard 0/3' in told


def test_a_report_that_cannot_be_written_is_told(ran, start, monkeypatch):
  def full(*_):
    raise StorageError('No space left for report.md.')

  monkeypatch.setattr(runner, 'finish', full)
  code, told = start('0/1')
  assert code != 0 and 'No space left for report.md' in told


def test_cells_of_two_sweeps_in_one_folder_are_told(ran, start, tmp_path):
  start('0/2', output='one')
  start('0/3', output='two')
  (division,) = (tmp_path / 'two' / 'shards').iterdir()
  division.rename(tmp_path / 'one' / 'shards' / division.name)
  code, told = _report(tmp_path / 'one')
  assert code == 2
  assert 'mixes shards of two divisions' in told


def test_a_folder_with_other_files_is_refused_and_left_alone(
  start, ran, tmp_path
):
  (tmp_path / 'run').mkdir()
  (tmp_path / 'run' / 'thesis.txt').write_text('')
  code, told = start('0/2')
  assert code == 2 and 'not empty' in told
  assert [p.name for p in (tmp_path / 'run').iterdir()] == ['thesis.txt']


def test_shards_of_two_configs_do_not_meet(ran, start, tmp_path):
  assert start('0/2')[0] == 0
  code, told = start('1/2', '--set', 'seed=5')
  assert code == 2 and 'another config: seed' in told


def test_a_shared_lock_keeps_those_out_who_want_it_alone(tmp_path):
  division = shards.Division(tmp_path, Shard(0, 2), NAMES)
  division.begin()
  calls = []
  assert division.finish(lambda: calls.append(1))
  with shards.writing(division.path):
    assert not division.finish(lambda: calls.append(2))
  assert calls == [1]
  with pytest.raises(StorageError):
    with shards.writing(tmp_path, is_shared=True), shards.writing(tmp_path):
      pytest.fail('both')
