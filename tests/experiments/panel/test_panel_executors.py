"""A panel in shards or on a cluster: every pair once, nothing lost.

The pairs are made up, but for one that is cut off in the middle of a seed.
"""

import pathlib
import pickle
import shutil

import pytest
import yaml
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.framework import executors
from experiments.framework import shards
from experiments.framework.errors import ConfigError
from experiments.panel import config as configs
from experiments.panel import pair
from experiments.panel import records
from experiments.panel import run
from experiments.panel.cells import CellFile
from tfp_adaptive.driver import checkpoint as checkpoint_lib

GATES = (
  pathlib.Path(__file__).resolve().parents[3]
  / 'configs'
  / 'inference_gym'
  / 'gates.yaml'
)
VALUES = {
  'name': 'small',
  'gates': 'gates.yaml',
  'references': 'reference',
  'targets': [{'name': 'Banana'}, {'name': 'EightSchools'}],
  'methods': [{'name': 'mala'}, {'name': 'rwm'}, {'name': 'gadmala_fast'}],
  'num_seeds': 2,
  'num_chains': 4,
  'gradients_per_chain': 200,
  'max_draws': 5000,
  'seconds_per_pair': 60,
  'targets_without_xla': ['Banana'],
}


@pytest.fixture
def config_file(tmp_path):
  shutil.copy(GATES, tmp_path / 'gates.yaml')
  path = tmp_path / 'panel.yaml'
  path.write_text(yaml.safe_dump(VALUES))
  return path


@pytest.fixture
def panel(config_file):
  return configs.load_panel(config_file)


class _Pairs:
  """Stands for the processes of pairs: notes them, and writes records."""

  def __init__(self, panel, file, ended=None):
    self._panel, self._file = panel, file
    self._ended = ended or {}
    self.seen = []

  def __call__(self, target_index, method_index, seconds):
    del seconds
    pair = target_index, method_index
    self.seen.append(pair)
    if pair in self._ended:
      return self._ended[pair]
    lead = records.head(self._panel, *pair, self._panel.key(*pair))
    for seed in range(2):
      self._file.append({**lead, 'seed': seed, 'status': 'finished'})
    return None


def _run(panel, file, work, executor=None, methods=()):
  said = []
  run.run_panel(
    panel,
    file,
    run.pairs(panel, (), methods),
    run.Options('none'),
    said.append,
    work,
    executor,
  )
  return said


def _in_shard(panel, file, work, index, count, methods=()):
  names = run.pair_names(panel.config, run.pairs(panel, (), methods))
  shard = shards.Shard(index, count)
  with shards.joined(file.folder, shard, names) as division:
    return _run(panel, file, work, executors.Shared(division), methods)


def test_shards_of_a_panel_run_every_pair_once(panel, tmp_path):
  file = CellFile(tmp_path / 'out')
  work = _Pairs(panel, file)
  _in_shard(panel, file, work, 1, 2)
  assert work.seen == [(0, 1), (1, 0), (1, 2)]
  _in_shard(panel, file, work, 0, 2)
  assert sorted(work.seen) == run.pairs(panel)
  said = _in_shard(panel, file, work, 0, 2)
  assert len(work.seen) == 6 and len(file.records()) == 12
  assert said[1] == '[3/6] Banana | gadMALAf: 2 kept'


def test_shards_with_other_filters_are_refused(panel, tmp_path):
  file = CellFile(tmp_path / 'out')
  work = _Pairs(panel, file)
  _in_shard(panel, file, work, 0, 2)
  with pytest.raises(ConfigError, match='another list .*--only-method'):
    _in_shard(panel, file, work, 1, 2, methods=('RWM', 'MALA'))


class _Cluster(executors.Local):
  """Runs the last pair first, and loses one."""

  is_remote = True

  def run(self, function, tasks, started, status):
    for task in list(tasks)[::-1]:
      if task.argument[:2] == (0, 1):
        yield task, executors.Lost('NodeDiedError: gone')
        continue
      value = function(task.argument)
      assert status(value) in ('finished', 'out of time')
      yield task, value


def test_a_lost_pair_stays_to_be_run_and_one_out_of_time_does_not(
  panel, tmp_path
):
  file = CellFile(tmp_path / 'out')
  ended = {(1, 1): ('out of time', 'stopped after 60 s.')}
  said = _run(panel, file, _Pairs(panel, file, ended), _Cluster())
  assert '  Banana | RWM lost: NodeDiedError: gone' in said
  status = {(r['target'], r['method']): r['status'] for r in file.records()}
  assert len(file.records()) == 10
  assert ('Banana', 'RWM') not in status
  assert status.pop(('EightSchools', 'RWM')) == 'out of time'
  assert set(status.values()) == {'finished'}
  work = _Pairs(panel, file)
  _run(panel, file, work)
  assert work.seen == [(0, 1)]


def test_the_work_of_a_pair_travels(panel, tmp_path):
  options = run.Options(tmp_path / 'panel.yaml', is_shared=True)
  labels = panel.config.target_labels(), panel.config.method_labels()
  work = run.PairWork(options, tmp_path, *map(tuple, labels))
  sent = pickle.loads(pickle.dumps(work))
  command = run.pair_command(sent.options, sent.folder, 'Banana', 'RWM')
  assert command[-1] == '--shared'
  assert sent.methods == ('MALA', 'RWM', 'gadMALAf')


def test_shards_of_a_panel_need_a_folder_and_are_told_when_mixed(
  config_file, panel, tmp_path
):
  command = ['run', str(config_file), '--shard', '0/2']
  done = CliRunner().invoke(app, command)
  assert done.exit_code == 2 and 'without --output' in done.output
  file = CellFile(tmp_path / 'out')
  _in_shard(panel, file, _Pairs(panel, file), 0, 2)
  (division,) = (file.folder / 'shards').iterdir()
  shutil.copytree(division, division.with_name('3-00000000'))
  command = ['panel', 'report', '--config', str(config_file)]
  done = CliRunner().invoke(app, [*command, '--output', str(file.folder)])
  assert done.exit_code == 2
  assert 'mixes shards of two divisions' in ' '.join(done.output.split())


class _Killed(BaseException):
  """Stands for a signal."""


@pytest.mark.full
def test_a_seed_that_was_cut_off_goes_on_from_its_checkpoint(
  panel, tmp_path, monkeypatch
):
  save, saved = checkpoint_lib.Checkpoint.save, []

  def cutting(self, *args):
    save(self, *args)
    saved.append(self)
    # The first block of the second seed.
    if len(saved) == num_blocks + 1:
      raise _Killed

  monkeypatch.setattr(checkpoint_lib.Checkpoint, 'save', cutting)

  def start(name):
    file, states = CellFile(tmp_path / name), tmp_path / name / 'states'
    try:
      pair.run_pair(panel, 0, 2, file, checkpoints=states, report=str)
    except _Killed:
      assert len(list(states.iterdir())) == 1
    return file, states

  num_blocks = 1000
  whole, _ = start('whole')
  num_blocks = len(saved) // 2
  assert num_blocks >= 2
  del saved[:]
  start('cut')
  cut, states = start('cut')
  assert len(saved) == 2 * num_blocks
  assert list(states.iterdir()) == []
  for one, other in zip(whole.records(), cut.records(), strict=True):
    for key in ('seed', 'status', 'accept_rate', 'ess', 'z', 'squared_bias'):
      assert one[key] == other[key]
