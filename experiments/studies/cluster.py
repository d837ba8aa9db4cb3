"""Is anything lost or changed when a sweep runs in several processes?

  python -m experiments.studies.cluster [--output docs/results/cluster.json]

40 small cells run in one process; in four shards at once; on two Ray nodes; and
on two of which one is killed with all of its workers in the middle of a cell.
All nodes are processes of this machine, with one CPU each. Needs the extra
`cluster`. Every digest of draws must be that of the run in one process.
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import numpy as np
import rich.console

__all__ = ['Cell', 'main', 'summarize']

_CONFIG = {
  'name': 'cluster',
  'target': {'name': 'spectrum_gaussian', 'variances': [1.0, 4.0, 0.25]},
  'methods': [
    {'name': 'mala'},
    {'name': 'rwm'},
    {'name': 'gadmala_fast'},
    {'name': 'gadrwm'},
  ],
  'num_chains': 3,
  'num_adaptation_steps': 500,
  'num_results': 1000,
  'num_repeats': 10,
  'block_size': 100,
  'jit_compile': False,
}
_NUM_SHARDS = 4
# Of the cells finished, when the node is killed, at least.
_SHARE = 0.3
# Blocks of the cell that its worker is in, of 15.
_BLOCKS = range(3, 11)
_SECONDS = 1200.0


def main():
  """Runs the sweeps, shows and writes what came of them."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--output', type=pathlib.Path)
  arguments = parser.parse_args()
  console = rich.console.Console()
  with tempfile.TemporaryDirectory(prefix='cl') as root:
    root = pathlib.Path(root)
    (root / 'cluster.yaml').write_text(json.dumps(_CONFIG))
    runs = {}
    for name, run in (
      ('one process', _one_process),
      ('four shards', _shards),
      ('two nodes', _two_nodes),
      ('two nodes, one killed', _two_nodes_one_killed),
    ):
      runs[name] = run(root, root / name.replace(' ', '_').replace(',', ''))
      console.print(f'{name}: {runs[name]["seconds"]:.0f} s')
  summary = summarize(runs)
  console.print(summary)
  if arguments.output is not None:
    arguments.output.write_text(json.dumps(summary, indent=1) + '\n')


def summarize(runs):
  """Returns a dict for each way to run, with what differs from the first.

  Args:
    runs: {way: dict with `cells`, {name: `Cell`}, `seconds` and `groups`}.
  """
  wanted = next(iter(runs.values()))['cells']
  rows = []
  for name, run in runs.items():
    cells = run['cells']
    same = [
      k for k in wanted if k in cells and cells[k].digest == wanted[k].digest
    ]
    row = {
      'way': name,
      'num_cells': len(wanted),
      'num_lost': len(set(wanted) - set(cells)),
      'num_same_bits': len(same),
      'num_continued': sum(cell.is_continued for cell in cells.values()),
      'seconds': round(run['seconds'], 1),
      'seconds_in_cells': round(sum(c.seconds for c in cells.values()), 1),
    }
    if run['groups']:
      between = [_between(*group) for group in run['groups']]
      row['seconds_between_cells'] = round(float(np.mean(between)), 2)
    rows.append({**row, **run.get('more', {})})
  return rows


class Cell(NamedTuple):
  """What is compared of a cell; seconds are wall time, `end` of the clock."""

  digest: str
  seconds: float
  end: float
  is_continued: bool


def _between(cells, num_workers):
  """Returns seconds of a worker from a cell to its next one, on average.

  In them a cell is measured and written and the next is found; they do not hold
  the start of the processes.

  Args:
    cells: list of `Cell` that the workers ran, busy from the first to the last.
    num_workers: how many.
  """
  ends = sorted(cells, key=lambda cell: cell.end)
  # The first of each worker is its start.
  first, rest = ends[num_workers - 1], ends[num_workers:]
  passed = num_workers * (rest[-1].end - first.end)
  return (passed - sum(cell.seconds for cell in rest)) / len(rest)


def _command(root, output, *options):
  """Starts `run` of the config; returns the process."""
  command = [sys.executable, '-m', 'experiments', 'run']
  command += [str(root / 'cluster.yaml'), '--output', str(output), *options]
  return subprocess.Popen(
    command,
    stdout=(root / f'{output.name}.log').open('a'),
    stderr=subprocess.STDOUT,
    env=_environment(),
  )


def _environment():
  path = pathlib.Path(__file__).resolve().parents[2]
  return dict(os.environ, TF_CPP_MIN_LOG_LEVEL='3', PYTHONPATH=str(path))


def _finished(processes, root, output, start, group, **more):
  """Waits for commands; returns what `summarize` takes.

  Args:
    processes: of the commands.
    root: folder with their logs.
    output: folder of the results.
    start: of the clock.
    group: {name: `Cell`} -> list of (cells, number of their workers).
    **more: further members.
  """
  codes = [process.wait(_SECONDS) for process in processes]
  seconds = time.monotonic() - start
  if any(codes):
    raise RuntimeError((root / f'{output.name}.log').read_text()[-3000:])
  cells = _cells(output)
  return {'cells': cells, 'seconds': seconds, 'groups': group(cells), **more}


def _cells(output):
  """Returns {name: `Cell`}, in the order of the config; digest of all draws."""
  import arviz_base  # noqa: F401
  import xarray

  found = {}
  for path in sorted(output.glob('cells/*/repeat_*')):
    digest = hashlib.sha256()
    groups = xarray.open_datatree(path / 'draws.zarr')
    for group in ('posterior', 'sample_stats'):
      for name, values in sorted(groups[group].data_vars.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    with np.load(path / 'arrays.npz') as arrays:
      for name in sorted(arrays):
        digest.update(name.encode() + arrays[name].tobytes())
    record = json.loads((path / 'cell.json').read_text())
    found['/'.join(path.parts[-2:])] = Cell(
      digest.hexdigest(),
      record['seconds']['wall'],
      (path / 'cell.json').stat().st_mtime,
      record['is_continued'],
    )
  return found


def _one_process(root, output):
  start = time.monotonic()
  group = lambda cells: [(list(cells.values()), 1)]
  return _finished([_command(root, output)], root, output, start, group)


def _shards(root, output):
  start = time.monotonic()
  processes = [
    _command(root, output, '--shard', f'{i}/{_NUM_SHARDS}')
    for i in range(_NUM_SHARDS)
  ]

  def group(cells):
    cells = list(cells.values())
    return [(cells[i::_NUM_SHARDS], 1) for i in range(_NUM_SHARDS)]

  return _finished(processes, root, output, start, group)


def _two_nodes(root, output):
  with _cluster(root / 'a') as (address, _):
    more = {'seconds_per_empty_task': round(_per_empty_task(address, root), 4)}
    start = time.monotonic()
    process = _command(root, output, '--executor', 'ray', '--address', address)
    group = lambda cells: [(list(cells.values()), 2)]
    return _finished([process], root, output, start, group, more=more)


def _two_nodes_one_killed(root, output):
  with _cluster(root / 'b') as (address, second):
    start = time.monotonic()
    process = _command(root, output, '--executor', 'ray', '--address', address)
    more = _kill_midway(process, output, second)
    more['killed_after'] = round(time.monotonic() - start, 1)
    none = lambda cells: []
    return _finished([process], root, output, start, none, more=more)


def _kill_midway(process, output, raylet):
  """Kills a node and its workers while one of them is inside of a cell."""
  num_cells = len(_CONFIG['methods']) * _CONFIG['num_repeats']
  while process.poll() is None:
    time.sleep(0.02)
    num_done = len(list(output.glob('cells/[!.]*/repeat_*/cell.json')))
    if num_done < _SHARE * num_cells:
      continue
    workers = _descendants(raylet)
    for lock in output.glob('locks/*/.lock'):
      with contextlib.suppress(OSError, ValueError, KeyError):
        holder = json.loads(lock.read_text())['pid']
        place = output / 'checkpoints' / lock.parent.name
        blocks = len(list(place.glob('block_*.npz')))
        if holder in workers and blocks in _BLOCKS:
          _kill([raylet, *workers])
          return {'finished_before': num_done, 'blocks_before': blocks}
  raise RuntimeError('the sweep ended before a node could be killed.')


def _per_empty_task(address, root):
  """Returns the seconds of the executor alone, workers warm."""
  from experiments.framework import executors
  from experiments.framework import ray_executor

  console = rich.console.Console(quiet=True)
  tasks = [executors.Task(i, str(i), 'empty', 'x') for i in range(200)]
  cluster = ray_executor.Cluster(address, None, console, root / 'empty')
  ends = [
    time.monotonic()
    for _ in cluster.run(len, tasks, print, lambda value: 'finished')
  ]
  # The first two start their workers.
  return (ends[-1] - ends[2]) / (len(ends) - 3)


@contextlib.contextmanager
def _cluster(folder):
  """Starts two nodes; yields (address, process number of the second raylet)."""
  ports = _free_ports(8)
  address = f'127.0.0.1:{ports[0]}'
  head = ['--head', f'--port={ports[0]}', f'--temp-dir={folder}']
  head += ['--include-dashboard=false', f'--ray-client-server-port={ports[1]}']
  try:
    _start_node(head, ports[2:5])
    _start_node([f'--address={address}'], ports[5:])
    found = _processes(f'--node_manager_port={ports[5]}')
    (second,) = [p for p in found if 'raylet' in _command_line(p)[0]]
    yield address, second
  finally:
    # What `ray stop` would end on this machine may be another's.
    _kill(_processes(str(folder)))


def _start_node(options, ports):
  """Starts a node of one CPU as a process of this machine."""
  command = [sys.executable, '-m', 'ray.scripts.scripts', 'start', *options]
  names = ('node-manager-port', 'object-manager-port')
  names += ('dashboard-agent-listen-port',)
  command += [f'--{name}={port}' for name, port in zip(names, ports)]
  command += ['--num-cpus=1', '--node-ip-address=127.0.0.1']
  command += ['--object-store-memory=100000000', '--disable-usage-stats']
  done = subprocess.run(
    command, env=_environment(), capture_output=True, text=True, check=False
  )
  if done.returncode:
    raise RuntimeError(done.stderr[-2000:])


def _free_ports(number):
  with contextlib.ExitStack() as held:
    sockets = [held.enter_context(socket.socket()) for _ in range(number)]
    for one in sockets:
      one.bind(('', 0))
    return [one.getsockname()[1] for one in sockets]


def _command_line(process):
  try:
    content = pathlib.Path(f'/proc/{process}/cmdline').read_bytes()
  except OSError:
    return ['']
  return content.decode(errors='replace').split('\0')


def _processes(text):
  """Returns the numbers of the processes whose command line has a text."""
  numbers = [int(p.name) for p in pathlib.Path('/proc').glob('[0-9]*')]
  return [
    number
    for number in numbers
    if number != os.getpid() and text in '\0'.join(_command_line(number))
  ]


def _descendants(process):
  """Returns the numbers of all processes below one."""
  below, new = set(), {process}
  parents = {}
  for path in pathlib.Path('/proc').glob('[0-9]*'):
    with contextlib.suppress(OSError, IndexError, ValueError):
      # pid (name) state parent: the name may hold spaces.
      rest = (path / 'stat').read_text().rpartition(')')[2].split()
      parents[int(path.name)] = int(rest[1])
  while new:
    new = {p for p, parent in parents.items() if parent in new} - below
    below |= new
  return below


def _kill(processes):
  for process in processes:
    with contextlib.suppress(ProcessLookupError):
      os.kill(process, signal.SIGKILL)


if __name__ == '__main__':
  main()
