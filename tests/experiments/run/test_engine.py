"""What the engine promises: nothing that finished is lost or made twice."""

import contextlib
import dataclasses
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
import types

import numpy as np
import pytest

from experiments.run import engine
from experiments.run import find
from experiments.run import machine
from experiments.run import ray_executor
from experiments.run import store
from experiments.run import tasks
from experiments.run.errors import ConfigError
from experiments.run.errors import DataError
from experiments.run.study import Study

ROOT = pathlib.Path(__file__).resolve().parents[3]
TINY = str(pathlib.Path(__file__).with_name('tiny.py'))
CELLS = [f'{case} {seed}' for case in range(3) for seed in range(2)]


@pytest.fixture
def log(tmp_path, monkeypatch):
  """Returns a function that lists what was computed so far."""
  path = tmp_path / 'log'
  monkeypatch.setenv('TINY_LOG', str(path))
  return lambda: path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def break_(monkeypatch):
  """Returns a function that makes cells fail from now on."""

  def set_faults(**faults):
    faults = {name[1:].replace('_', ' '): v for name, v in faults.items()}
    monkeypatch.setenv('TINY_FAULTS', json.dumps(faults))

  return set_faults


def _run(
  folder, *, redo=(), shard=None, execute=None, say=id, overrides=(), **changes
):
  """Runs the tiny study; returns {'case seed': record}."""
  job = engine.Job(TINY, str(folder), tuple(overrides))
  found = job.load()
  found = found._replace(study=dataclasses.replace(found.study, **changes))
  cells = tasks.cells(found)
  engine.run(job, found, cells, redo, shard, execute, say)
  return {
    f'{r.case.split()[1]} {r.seed}': r for r in engine.current(folder, cells)
  }


def _values(records):
  """Returns what must agree between two runs of the same cells."""
  return {name: (r.status, r.record, r.key) for name, r in records.items()}


def _arrays(folder):
  return {
    path.relative_to(folder).as_posix(): path.read_bytes()
    for path in pathlib.Path(folder).glob('arrays/*/*.npz')
  }


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """Returns folder and records of a run that nothing disturbed."""
  folder = tmp_path_factory.mktemp('whole')
  return folder, _run(folder)


def test_a_run_leaves_a_record_and_arrays_of_every_cell(whole):
  folder, records = whole
  assert list(records) == CELLS
  for record in records.values():
    assert record.status == 'finished' and record.error is None
    assert record.study == 'tiny'
    assert record.record['nested']['infinite'] is None
    assert len(record.record['nested']['many']) == 3
    assert record.wall_seconds > 0 and record.cpu_seconds >= 0
    assert record.versions['numpy'] == np.__version__
    assert record.commit == machine.commit()
    assert record.machine['cores'] >= 1
    assert store.read_arrays(folder, record)['draws'].shape == (5,)
  left = {path.name for path in folder.iterdir()}
  assert left - {'locks'} == {'records.jsonl', 'study.json', 'arrays'}
  assert not list(folder.glob('locks/*'))
  assert json.loads((folder / 'study.json').read_text())['study'] == 'tiny'


def test_the_commit_is_dirty_if_code_is_untracked(tmp_path, monkeypatch):
  monkeypatch.setattr(machine, '__file__', str(tmp_path / 'machine.py'))
  name = ['-c', 'user.name=a', '-c', 'user.email=a@b.c']
  for words in (['init'], [*name, 'commit', '--allow-empty', '-m', 'a']):
    subprocess.run(['git', *words, '--quiet'], cwd=tmp_path, check=True)
  (tmp_path / 'notes').touch()
  assert not machine.commit.__wrapped__().endswith('-dirty')
  store.write_text(tmp_path / 'experiments/study.py', '')
  assert machine.commit.__wrapped__().endswith('-dirty')


def test_what_has_a_record_is_not_run_again(whole, log):
  folder, records = whole
  said = []
  assert _run(folder, say=said.append) == records
  assert log() == []
  assert said == ['Cells: 6, recorded before: 6.']


@pytest.mark.parametrize('process', ['run', 'case', 'cell'])
def test_results_do_not_depend_on_who_shares_a_process(
  process, whole, tmp_path
):
  assert _values(_run(tmp_path, process=process)) == _values(whole[1])
  assert _arrays(tmp_path) == _arrays(whole[0])


def test_what_fails_is_a_row_and_the_others_run(break_, log, tmp_path):
  break_(_0_1='fails', _1_0='refuses', _2_0='dies')
  said = []
  records = _run(tmp_path, say=said.append)
  statuses = {name: record.status for name, record in records.items()}
  assert statuses == {
    '0 0': 'finished',
    '0 1': 'failed',
    '1 0': 'refused',
    '1 1': 'refused',
    '2 0': 'failed',
    '2 1': 'finished',
  }
  assert records['0 1'].error.startswith('ValueError: it is broken.\n')
  assert 'Traceback' in records['0 1'].error
  assert records['1 1'].error == 'it takes no such case.'
  assert records['2 0'].error == 'the process ended with code 7.'
  assert any('seed 1: failed: ValueError: it is broken.' in s for s in said)
  # Another run leaves them; one that is asked to runs what failed.
  before = log()
  assert _run(tmp_path) == records
  assert log() == before
  break_()
  again = _run(tmp_path, redo=['failed'])
  assert {name for name in again if again[name] != records[name]} == {
    '0 1',
    '2 0',
  }
  # The half before the crash was in its checkpoint.
  assert log()[len(before) :] == ['0 1 first', '0 1 second', '2 0 second']
  assert again['2 0'].status == 'finished'
  assert _run(tmp_path, redo=['refused'])['1 1'].status == 'finished'


def test_what_takes_too_long_is_ended_and_told(break_, tmp_path):
  break_(_1_0='sleeps')
  records = _run(tmp_path, max_seconds=2.0)
  statuses = [record.status for record in records.values()]
  assert statuses == ['finished'] * 2 + ['out of time'] * 2 + ['finished'] * 2
  assert records['1 0'].error == 'the process was ended after 2 s.'
  assert not list(tmp_path.glob('locks/*'))


@pytest.mark.parametrize('num_deaths, num_records', [(1, 6), (2, 4)])
def test_a_worker_killed_before_its_first_cell_is_started_once_more(
  num_deaths, num_records, tmp_path, monkeypatch, capfd
):
  deaths, end = iter([-9] * num_deaths), engine._worker_ended
  monkeypatch.setattr(
    engine,
    '_worker_ended',
    lambda *given: (code, 0) if (code := next(deaths, 0)) else end(*given),
  )
  records = _run(tmp_path)
  assert list(records) == CELLS[-num_records:]
  assert {record.status for record in records.values()} == {'finished'}
  told = capfd.readouterr().err
  assert ('signal 9 (Killed), perhaps because mem' in told) == (num_deaths > 1)


def test_what_a_worker_refuses_ends_the_run_without_a_record(tmp_path, capfd):
  job = engine.Job(TINY, str(tmp_path), device='abacus')
  found = job.load()
  with pytest.raises(ConfigError, match='could not begin'):
    engine.run(job, found, tasks.cells(found))
  assert 'cpu, gpu' in capfd.readouterr().err
  assert not (tmp_path / 'records.jsonl').exists()


def test_other_settings_are_other_cells_of_the_same_folder(tmp_path):
  first = _run(tmp_path, process='run')
  other = _run(tmp_path, process='run', overrides=['scale=2.0'])
  assert other['0 0'].record['value'] == 2 * first['0 0'].record['value']
  assert len(store.read(tmp_path)) == 12
  with pytest.raises(ConfigError, match='run with other settings'):
    store.read_arrays(tmp_path, first['0 0'])


def test_shards_make_the_folder_of_one_run(whole, log, tmp_path):
  finished = []
  finish = lambda folder, records, work: finished.append(len(records))
  for index in (2, 0, 1):
    assert not finished
    _run(tmp_path, shard=tasks.Shard(index, 3), finish=finish)
  assert finished == [6]
  records = _run(tmp_path)
  assert _values(records) == _values(whole[1])
  assert _arrays(tmp_path) == _arrays(whole[0])
  assert len(log()) == 12


def test_what_is_wrong_before_the_first_run_ends_all_of_it(tmp_path):
  def prepare(work):
    raise DataError(f'there are no data in {work.data_dir}.')

  study = Study(lambda _: {'a': 1}, lambda *_: {}, prepare=prepare)
  found = find.Found('s', study, study.settings())
  with pytest.raises(DataError, match='no data in None'):
    engine.run_cells(engine.Job('s', str(tmp_path)), found, tasks.cells(found))
  assert not (tmp_path / 'records.jsonl').exists()


def _process(folder, *options):
  """Starts the command line on the tiny study."""
  return subprocess.Popen(
    [sys.executable, '-m', 'experiments', 'run', TINY]
    + ['--output', str(folder), *options],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def _wait_for_records(folder, count):
  path = pathlib.Path(folder) / 'records.jsonl'
  end = time.monotonic() + 60
  while not path.exists() or path.read_bytes().count(b'\n') < count:
    assert time.monotonic() < end, 'nothing was run'
    time.sleep(0.02)


def test_two_processes_share_the_work_and_run_no_cell_twice(
  whole, log, tmp_path
):
  processes = [_process(tmp_path, '--set', 'seconds=0.2') for _ in range(2)]
  for process in processes:
    told, _ = process.communicate()
    assert process.returncode == 0, told
    assert '6 finished' in told
  assert sorted(log()) == sorted(
    f'{cell} {half}' for cell in CELLS for half in ('first', 'second')
  )
  assert _arrays(tmp_path).keys() == _arrays(whole[0]).keys()


@pytest.mark.parametrize('sent', [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_keeps_what_finished(sent, log, tmp_path):
  process = _process(tmp_path, '--set', 'seconds=0.5')
  _wait_for_records(tmp_path, 2)
  process.send_signal(sent)
  told, _ = process.communicate()
  if sent == signal.SIGINT:
    assert process.returncode == 130
    assert 'Finished cells are kept' in told
  else:
    assert process.returncode == 143
  kept = store.read(tmp_path)
  computed = log()
  assert 2 <= len(kept) < 6
  time.sleep(1.0)  # Nobody works on.
  assert log() == computed
  assert store.read(tmp_path) == kept


@pytest.mark.parametrize(
  'num_cases, seconds, num_kills',
  [(2, 0.02, 1), pytest.param(6, 0.5, 20, marks=pytest.mark.nightly)],
)
def test_killed_at_any_moment_a_run_loses_nothing_and_ends_the_same(
  num_cases, seconds, num_kills, log, tmp_path
):
  overrides = [f'num_cases={num_cases}', f'seconds={seconds}']
  options = [part for text in overrides for part in ('--set', text)]
  options += ['--redo', 'failed']  # A cell whose worker is killed.
  whole = _run(tmp_path / 'whole', overrides=overrides)
  folder, num_before = tmp_path / 'killed', len(log())
  rng = np.random.default_rng(59)
  kept = []

  def check_kept():
    records = store.read(folder) if (folder / 'records.jsonl').exists() else []
    assert [r for r in records if r in kept] == kept  # To the last digit.
    kept[:] = [r for r in records if r.status == 'finished']

  for _ in range(num_kills):
    process = _process(folder, *options)
    time.sleep(rng.uniform(0.0, 2.0 + 6 * seconds))  # Its start, some cells.
    for worker in _descendants(process.pid) - {process.pid}:
      with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)
    time.sleep(rng.uniform(0.0, 1.5))
    process.kill()
    process.communicate()
    check_kept()
  told, _ = _process(folder, *options).communicate()
  assert f'{2 * num_cases} finished' in told
  killed = _run(folder, overrides=overrides)
  check_kept()
  assert _values(killed) == _values(whole)
  assert _arrays(folder) == _arrays(tmp_path / 'whole')
  assert not (folder / 'checkpoints').exists()
  # A cell is begun again only by a kill between its end and its record.
  again = log()[num_before:]
  assert len(again) - len(set(again)) <= 2 * num_kills


class _Ray:
  """Stands for Ray: pickles what travels, and loses what it is told to."""

  class exceptions:  # noqa: N801
    class RayError(Exception):
      pass

    class RayTaskError(RayError):
      def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause

  def __init__(self, lost=()):
    self._lost = lost
    self.is_connected = False

  def init(self, **_):
    self.is_connected = True

  def shutdown(self):
    self.is_connected = False

  def remote(self, **options):
    assert options['max_retries'] == ray_executor.MAX_RETRIES
    return lambda function: types.SimpleNamespace(
      options=lambda name: types.SimpleNamespace(
        remote=lambda *args: (name, pickle.dumps((function, args)))
      )
    )

  def wait(self, references, num_returns):
    assert num_returns == 1
    return references[-1:], references[:-1]  # In whatever order they end.

  def get(self, reference):
    name, sent = reference
    if name in self._lost:
      raise self.exceptions.RayError('its node died')
    function, args = pickle.loads(sent)
    try:
      return function(*args)
    except Exception as error:
      raise self.exceptions.RayTaskError(error) from error


def _cluster(monkeypatch, ray, said=None):
  monkeypatch.setitem(sys.modules, 'ray', ray)
  say = [].append if said is None else said.append
  return ray_executor.Cluster('auto', None, say)


def test_a_cluster_leaves_what_one_process_leaves_but_for_what_it_loses(
  whole, tmp_path, monkeypatch
):
  ray, said = _Ray(['case 1 | a/b, seed 0']), []
  records = _run(tmp_path, execute=_cluster(monkeypatch, ray, said))
  assert list(records) == ['0 0', '0 1', '2 0', '2 1']
  (text,) = said
  assert 'seed 0 (2 cells): lost by the cluster' in text
  assert 'its node died' in text
  records = _run(tmp_path, execute=_cluster(monkeypatch, ray := _Ray()))
  assert _values(records) == _values(whole[1])
  assert _arrays(tmp_path) == _arrays(whole[0])
  assert not ray.is_connected


def test_ray_that_is_missing_or_does_not_answer_is_told(monkeypatch):
  monkeypatch.setitem(sys.modules, 'ray', _Ray())
  with pytest.raises(ConfigError, match='no cluster was reached'):
    ray_executor.Cluster('127.0.0.1:1', None, print)
  monkeypatch.setitem(sys.modules, 'ray', None)
  with pytest.raises(ConfigError, match=r"pip install '.\[cluster\]'"):
    ray_executor.Cluster(None, None, print)


def _descendants(process):
  """Returns the numbers of all processes below one."""
  parents = {}
  for path in pathlib.Path('/proc').glob('[0-9]*'):
    with contextlib.suppress(OSError):
      # pid (name) state parent: the name may hold spaces.
      rest = (path / 'stat').read_text().rpartition(')')[2].split()
      parents[int(path.name)] = int(rest[1])
  below, new = set(), {process}
  while new:
    new = {p for p, parent in parents.items() if parent in new} - below
    below |= new
  return below


def _kill_inside_of_a_cell(folder, raylet, num_cells):
  """Kills a node; returns the name of the cell that one of its workers was at.

  A third of the cells must have finished, and the cell must have a checkpoint.
  """
  end = time.monotonic() + 300
  while time.monotonic() < end:
    time.sleep(0.02)
    if len(_arrays(folder)) < num_cells / 3:
      continue
    workers = _descendants(raylet)
    for lock in folder.glob('locks/*'):
      with contextlib.suppress(OSError, ValueError):
        holder = int(lock.read_text().rpartition('.')[2])
        case, _, seed = lock.name.rpartition('.')
        states = [*folder.glob(f'checkpoints/{case}/{seed}/*/half')]
        if holder in workers and states:
          for process in [raylet, *workers]:
            with contextlib.suppress(ProcessLookupError):
              os.kill(process, signal.SIGKILL)
          # 'case_3_a_b.1234abcd' -> '3'
          return f'{case.split("_")[1]} {seed}'
  raise AssertionError('no worker of the node was inside of a cell')


@pytest.mark.nightly
def test_a_node_that_is_killed_loses_no_cell_and_no_checkpoint(log, tmp_path):
  cluster_utils = pytest.importorskip(
    'ray.cluster_utils', reason="needs the extra: pip install '.[cluster]'"
  )
  options = ['--set', 'num_cases=10', '--set', 'seconds=1.0']
  whole, folder = tmp_path / 'whole', tmp_path / 'cluster'
  _process(whole, *options).communicate()
  assert len(_arrays(whole)) == 20
  num_before = len(log())
  nodes = cluster_utils.Cluster(
    initialize_head=True, head_node_args={'num_cpus': 1}
  )
  try:
    second = nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    (raylet,) = second.all_processes['raylet']
    options += ['--executor', 'ray', '--address', nodes.address]
    process = _process(folder, *options)
    cell = _kill_inside_of_a_cell(folder, raylet.process.pid, 20)
    told, _ = process.communicate()
  finally:
    nodes.shutdown()
  assert process.returncode == 0, told
  assert _arrays(folder) == _arrays(whole)
  # The other node went on from the checkpoint: the first half is not repeated.
  again = log()[num_before:]
  assert again.count(f'{cell} first') == again.count(f'{cell} second') == 1
