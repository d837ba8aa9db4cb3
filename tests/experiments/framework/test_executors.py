"""Executors: who runs which cell, what is begun again, what is told as lost.

Cells are made up; the executor of a cluster is one that loses its workers as a
plan says. Ray itself is started by one test, where it is installed.
"""

import json
import pickle
import sys

import numpy as np
import pytest
import rich.console
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.framework import config as configs
from experiments.framework import executors
from experiments.framework import outputs
from experiments.framework import progress_table
from experiments.framework import runner
from experiments.framework import storage
from experiments.framework.cell import CellResult
from experiments.framework.errors import StorageError
from tests.experiments.framework import made_up_cells as made_up

VALUES = {
  'name': 'small',
  'target': {'name': 'gaussian_2d', 'rho': 0.5},
  'methods': [{'name': 'mala'}, {'name': 'rwm'}],
  'num_adaptation_steps': 10,
  'num_results': 20,
  'num_repeats': 3,
}
NUM_CELLS = 6


class _Killed(BaseException):
  """Stands for a signal that ends the worker of a cluster."""


class _Workers(executors.Local):
  """A cluster that loses its worker at given tries; retries as Ray does."""

  is_remote = True
  device = None

  def __init__(self, losses=(), max_retries=5):
    self._losses = dict(losses)
    self._max_retries = max_retries
    self.num_tries = {}

  def run(self, function, tasks, started, status):
    del started
    # The last first: in whatever order they end.
    for task in list(tasks)[::-1]:
      value = self._tried(function, task)
      if not isinstance(value, executors.Lost):
        assert status(value) in ('finished', 'failed')
      yield task, value

  def _tried(self, function, task):
    for number in range(1, self._max_retries + 2):
      self.num_tries[task.number] = number
      _Cells.is_killed = number <= self._losses.get(task.number, 0)
      try:
        # As it travels.
        sent = pickle.loads(pickle.dumps((function, task.argument)))
        return sent[0](sent[1])
      except _Killed:
        continue
    return executors.Lost('WorkerCrashedError: killed')


class _Cells:
  """Stands for `run_cell`: two blocks, the first kept in its checkpoints."""

  is_killed = False
  computed = []

  @classmethod
  def run(cls, config, index, method, target, repeat, checkpoint, progress):
    del method, target, progress
    block = checkpoint / 'block_000000.npz'
    is_continued = block.exists()
    if not is_continued:
      cls.computed.append((index, repeat, 'first'))
      checkpoint.mkdir(parents=True, exist_ok=True)
      block.write_bytes(b'draws')
    if cls.is_killed:
      raise _Killed
    cls.computed.append((index, repeat, 'second'))
    rng = np.random.default_rng([index, repeat])
    record = made_up._record(rng, config.label(index), repeat)
    record['warnings'] = []
    record['is_continued'] = is_continued
    return CellResult(record, {'worst_trace': rng.normal(size=20)}, None)


@pytest.fixture
def computed(monkeypatch):
  monkeypatch.setattr(runner, 'run_cell', _Cells.run)
  monkeypatch.setattr(runner.figures, 'draw_all', lambda *_: [])
  monkeypatch.setattr(_Cells, 'computed', [])
  monkeypatch.setattr(_Cells, 'is_killed', False)
  return _Cells.computed


@pytest.fixture
def config_file(tmp_path):
  path = tmp_path / 'small.yaml'
  path.write_text(json.dumps(VALUES))
  return path


def _run(path, executor=None, resume=False):
  """Runs the config; returns the folder and the records."""
  config = configs.parse_config(VALUES)
  plan = runner.make_plan(config)
  console = rich.console.Console(quiet=True)
  with storage.run_folder(path, config, resume) as folder:
    records = runner.run_plan(plan, folder, console, False, executor)
  return folder, records


def _digests(folder):
  """Returns {cell: bytes of its arrays}."""
  return {
    path.parent.relative_to(folder.path).as_posix(): path.read_bytes()
    for path in sorted(folder.path.glob('cells/*/*/arrays.npz'))
  }


def _invoke(*arguments):
  done = CliRunner().invoke(app, ['run', *map(str, arguments)])
  return done.exit_code, ' '.join(done.output.split())


def test_a_cluster_leaves_what_one_process_leaves(computed, tmp_path):
  alone, records = _run(tmp_path / 'alone')
  many, others = _run(tmp_path / 'many', _Workers())
  assert _digests(alone) == _digests(many)
  assert len(_digests(many)) == NUM_CELLS
  assert records == others
  assert (many.path / 'report.md').exists()


def test_a_lost_worker_costs_the_block_in_progress_and_no_more(
  computed, tmp_path
):
  alone, _ = _run(tmp_path / 'alone')
  del computed[:]
  workers = _Workers({1: 1, 4: 5})
  many, records = _run(tmp_path / 'many', workers)
  assert _digests(alone) == _digests(many)
  assert workers.num_tries == {0: 1, 1: 2, 2: 1, 3: 1, 4: 6, 5: 1}
  # Each block of each cell once.
  assert len(computed) == len(set(computed)) == 2 * NUM_CELLS
  continued = [r['is_continued'] for r in records]
  assert continued == [False, True, False, False, True, False]


def test_a_cell_that_no_worker_survives_is_told_and_left_for_the_next_run(
  computed, tmp_path
):
  folder, records = _run(tmp_path / 'many', _Workers({2: 99}))
  lost = [r for r in records if r['status'] == 'failed']
  assert [(r['label'], r['repeat']) for r in lost] == [('MALA', 2)]
  assert 'WorkerCrashedError' in lost[0]['error']
  assert folder.missing() == ['MALA, repeat 3 of 3']
  assert 'lacks 1 of 6 cells: MALA, repeat 3' in storage.told_missing(folder)
  del computed[:]
  _, records = _run(tmp_path / 'many', _Workers(), resume=True)
  assert {r['status'] for r in records} == {'finished'}
  # From its checkpoint.
  assert computed == [(0, 2, 'second')]
  assert storage.told_missing(folder) == ''


def test_a_worker_that_was_given_up_and_lives_is_waited_for(
  computed, tmp_path, monkeypatch
):
  config = configs.parse_config(VALUES)
  folder = storage.RunFolder.create(tmp_path / 'run', config)
  work = runner.CellWork(str(folder.path))
  cell = config.cells()[0]
  lock = folder.path / 'locks' / '00_00'

  def other_finishes(seconds):
    del seconds
    record = made_up._record(np.random.default_rng(7), 'MALA', 0)
    folder.write_cell(*cell, record, {})
    held.close()

  held = outputs.contextlib.ExitStack()
  held.enter_context(outputs.writing(lock))
  monkeypatch.setattr(outputs.time, 'sleep', other_finishes)
  assert work(cell)['seconds']['compile'] == 1.5
  assert computed == []
  with outputs.writing(lock):
    with pytest.raises(StorageError, match='in use by process'):
      with outputs.alone(lock, seconds=0.0):
        pytest.fail('two workers in one cell')


@pytest.mark.parametrize(
  'options, words',
  [
    (['--executor', 'slurm'], "'slurm' was given; allowed are local, ray"),
    (['--address', 'a:1'], 'write --executor ray, too'),
    (['--shard', '0/2', '--executor', 'ray', '--output', 'x'], 'leave one out'),
    (['--shard', '0/2'], 'without --output'),
  ],
)
def test_what_does_not_go_together_is_refused(config_file, options, words):
  code, output = _invoke(config_file, *options)
  assert code == 2
  assert words in output


def test_ray_that_is_not_installed_is_told_before_a_folder_is_made(
  config_file, tmp_path, monkeypatch
):
  monkeypatch.setitem(sys.modules, 'ray', None)
  output = tmp_path / 'run'
  code, told = _invoke(config_file, '--executor', 'ray', '--output', output)
  assert code == 2
  assert "pip install '.[cluster]'" in told
  assert not output.exists()


def test_one_table_counts_what_became_of_every_group():
  console = rich.console.Console(quiet=True)
  with progress_table.ProgressTable(console) as table:
    for group in ('a', 'a', 'b', 'b', 'b'):
      table.add(group)
    table.ended('a', 'finished', 2.0, num_tries=3)
    table.ended('b', 'failed', 1.0)
    table.ended('b', 'out of time', 3.0)
    table.ended('b', 'lost')
  columns = [list(column.cells) for column in table.table().columns]
  assert [str(cell) for cell in columns[0]] == ['a', 'b']
  assert columns[1:] == [
    ['1', '0'],
    ['1', '0'],
    ['0', '2'],
    ['0', '1'],
    ['2', '0'],
    ['2.0', '2.0'],
  ]


@pytest.mark.nightly
def test_ray_runs_the_cells_and_says_what_it_cannot_reach(
  config_file, tmp_path
):
  pytest.importorskip('ray', reason="needs the extra: pip install '.[cluster]'")
  from ray.cluster_utils import Cluster

  alone = _invoke(config_file, '--output', tmp_path / 'alone')
  assert alone[0] == 0, alone
  options = ['--executor', 'ray', '--output', tmp_path / 'many']
  code, told = _invoke(config_file, *options, '--address', '127.0.0.1:1')
  assert code == 2
  assert 'no cluster was reached' in told
  assert not (tmp_path / 'many').exists()
  nodes = Cluster(initialize_head=True, head_node_args={'num_cpus': 1})
  try:
    code, told = _invoke(config_file, *options, '--address', nodes.address)
  finally:
    nodes.shutdown()
  assert code == 0, told
  one, other = (
    _digests(storage.RunFolder.open(tmp_path / name))
    for name in ('alone', 'many')
  )
  assert one == other
