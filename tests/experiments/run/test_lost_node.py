"""A node of a cluster is killed with all of its workers inside of a cell."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip('experiments.run.engine', reason='it has not landed')
cluster_utils = pytest.importorskip(
  'ray.cluster_utils', reason="needs the extra: pip install '.[cluster]'"
)

pytestmark = pytest.mark.nightly
_ROOT = pathlib.Path(__file__).resolve().parents[3]
_TINY = str(pathlib.Path(__file__).with_name('tiny.py'))
_NUM_CASES = 10  # With two seeds each.


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


def _run(folder, *options):
  return subprocess.Popen(
    [sys.executable, '-m', 'experiments', 'run', _TINY, '--output', str(folder)]
    + ['--set', f'num_cases={_NUM_CASES}', '--set', 'seconds=1.0', *options],
    cwd=_ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def _arrays(folder):
  return {
    path.relative_to(folder): path.read_bytes()
    for path in folder.glob('arrays/*/*.npz')
  }


def _kill_inside_of_a_cell(folder, raylet):
  """Kills a node; returns the name of the cell that one of its workers was at.

  A third of the cells must have finished, and the cell must have a checkpoint.
  """
  end = time.monotonic() + 300
  while time.monotonic() < end:
    time.sleep(0.02)
    if len(_arrays(folder)) < 2 * _NUM_CASES / 3:
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


def test_a_node_that_is_killed_loses_no_cell_and_no_checkpoint(
  tmp_path, monkeypatch
):
  whole, folder = tmp_path / 'whole', tmp_path / 'cluster'
  told, _ = _run(whole).communicate()
  assert len(_arrays(whole)) == 2 * _NUM_CASES, told
  monkeypatch.setenv('TINY_LOG', str(tmp_path / 'log'))
  nodes = cluster_utils.Cluster(
    initialize_head=True, head_node_args={'num_cpus': 1}
  )
  try:
    second = nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    (raylet,) = second.all_processes['raylet']
    process = _run(folder, '--executor', 'ray', '--address', nodes.address)
    cell = _kill_inside_of_a_cell(folder, raylet.process.pid)
    told, _ = process.communicate()
  finally:
    nodes.shutdown()
  assert process.returncode == 0, told
  assert _arrays(folder) == _arrays(whole)
  log = (tmp_path / 'log').read_text().splitlines()
  # The other node went on from the checkpoint: the first half is not repeated.
  assert log.count(f'{cell} first') == log.count(f'{cell} second') == 1
