"""Runs the missing cells of a study and keeps the finished ones.

The process of the command line lists the missing cells. Worker processes run
them and append the records. If a worker is ended in a cell, by a crash or
because its time is over, the record of the cell says so. A worker that ends
before its first cell is started once more.
"""

import contextlib
import datetime
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

from experiments.run import find
from experiments.run import locks
from experiments.run import machine
from experiments.run import store
from experiments.run import tasks
from experiments.run.errors import ConfigError
from experiments.run.errors import listed
from experiments.run.errors import Refused
from experiments.run.study import Result
from experiments.run.study import Work
from experiments.run.tasks import Cell

# Exit code of a worker that could not begin and has printed the reason.
REFUSED = 2
_PAUSE = 0.5


class Job(NamedTuple):
  """What a worker must know besides its cells, as JSON values.

  Attributes:
    reference: Name of a study, or the absolute path of a file.
    folder: Absolute path of the results, on storage that all workers see.
    overrides: Texts of `--set`.
    is_smoke: Whether the run should take seconds only.
    data_dir: Folder of local data sets, or `None`.
    device: 'cpu', 'gpu' or `None`.
    python: See `Work`.
    progress: See `Work`.
  """

  reference: str
  folder: str
  overrides: tuple[str, ...] = ()
  is_smoke: bool = False
  data_dir: str | None = None
  device: str | None = None
  python: str | None = None
  progress: bool = False

  def load(self) -> find.Found:
    """Returns the study."""
    return find.load(self.reference, self.overrides, self.is_smoke)


def run(
  job: Job,
  found: find.Found,
  chosen: Sequence[Cell],
  redo: Sequence[str] = (),
  shard: tasks.Shard | None = None,
  execute: Callable | None = None,
  say: Callable[[str], None] = print,
) -> list[Cell]:
  """Runs the missing cells.

  Args:
    shard: Part of the work, or `None` for all of it.
    execute: Function (function, groups of cells, folder). It calls the function
      with every group, on any machine that sees the folder. The default calls
      it here, with one group after the other.
    say: Function that shows a line of text.

  Returns:
    The cells of this shard, whether they have run or not.
  """
  folder = pathlib.Path(job.folder)
  _write_description(folder, job, found)
  process, max_seconds = found.study.process, found.study.max_seconds
  if execute is not None and process == 'run':
    process = 'cell'  # Every node then gets work.
  groups = tasks.units(chosen, process, shard)
  own = [cell for group in groups for cell in group]
  reader = store.Reader(folder)
  reader.update()
  left = set(tasks.missing(own, reader.latest, redo))
  say(f'Cells: {len(own)}, recorded before: {len(own) - len(left)}.')
  if len(left) < len(own):
    _warn_of_versions(own, reader.latest, say)
  # Cells that run again carry the time of the record that they replace.
  todo = {cell[:4]: cell for cell in left}
  groups = [[todo[c[:4]] for c in group if c[:4] in todo] for group in groups]

  work = functools.partial(supervise, job, max_seconds=max_seconds)
  with _shown(folder, list(todo.values()), say):
    (execute or _here)(work, [g for g in groups if g], job.folder)
  reader.update()
  _remove_checkpoints(folder, own, reader.latest)
  if found.study.finish and not tasks.missing(chosen, reader.latest):
    with locks.held(folder, 'finish', wait=True):
      work = _work(job, found, folder)
      found.study.finish(folder, current(folder, chosen), work)
  return own


def _here(function, groups, folder):
  del folder
  for group in groups:
    function(group)


def current(folder: str | os.PathLike, chosen: Sequence[Cell]) -> list:
  """Returns the existing records of cells, in the order of the cells."""
  reader = store.Reader(folder)
  reader.update()
  return [r for c in chosen if (r := c.record(reader.latest)) is not None]


def _write_description(folder, job, found):
  values = job._asdict() | {
    'study': found.name,
    'settings': found.settings.model_dump(mode='json'),
  }
  del values['folder'], values['progress']
  text = json.dumps(values, indent=2) + '\n'
  store.write_text(folder / store.DESCRIPTION, text)


def _warn_of_versions(cells, latest, say):
  """Warns if the kept records were made with other versions."""
  now = machine.versions()
  found = [r.versions or {} for c in cells if (r := c.record(latest))]
  changed = {
    f'{name} {old} then, {now[name]} now'
    for versions in found
    for name, old in versions.items()
    if now.get(name, old) != old
  }
  if changed:
    say(
      f'Warning: kept records were made with other versions '
      f'({listed(sorted(changed))}). If the versions matter, name another '
      '--output.'
    )


def _remove_checkpoints(folder, cells, latest):
  """Removes the states of finished cells, and folders without any state."""
  for cell in cells:
    path = _checkpoints(folder, cell)
    record = cell.record(latest)
    if record is not None and record.status == 'finished':
      shutil.rmtree(path, ignore_errors=True)
    # Removes empty parents, too.
    with contextlib.suppress(OSError):
      os.removedirs(path if path.exists() else path.parent)


def _checkpoints(folder, cell) -> pathlib.Path:
  place = pathlib.Path(folder) / store.CHECKPOINTS
  return place / store.file_name(cell.case) / str(cell.seed) / cell.key


@contextlib.contextmanager
def _shown(folder, cells, say) -> Iterator[None]:
  """Shows a line for each new record of some cells, in a `with` block."""
  wanted = {cell[:4] for cell in cells}
  reader = store.Reader(folder)
  reader.update()
  is_over, number = threading.Event(), 0

  def show():
    nonlocal number
    for record in reader.update():
      if record.cell in wanted:
        number += 1
        say(f'[{number}/{len(cells)}] {_line(record)}')

  def watch():
    while not is_over.wait(_PAUSE):
      show()

  thread = threading.Thread(target=watch, daemon=True)
  thread.start()
  try:
    yield
  finally:
    is_over.set()
    thread.join()
    show()


def _line(record: store.Record) -> str:
  text = f'{record.case}, seed {record.seed}: {record.status}'
  if record.error:
    return f'{text}: {record.error.strip().splitlines()[0][:300]}'
  return f'{text}, {record.wall_seconds or 0.0:.1f} s'


def supervise(
  job: Job, cells: Sequence[Cell], max_seconds: float | None = None
) -> None:
  """Runs cells in worker processes until each of them has a record.

  If two workers end one after the other without beginning a cell, the other
  cells are left without a record.

  Raises:
    ConfigError: If a worker could not begin; its message is on the terminal.
  """
  reader = store.Reader(job.folder)
  end = None if max_seconds is None else time.monotonic() + max_seconds
  left, num_idle = list(cells), 0  # Workers in a row that began no cell.
  while left and num_idle < 2:
    code, pid = _worker_ended(job, left, end)
    if code == REFUSED:
      raise ConfigError('a worker process could not begin; see above.')
    reader.update()
    num_before = len(left)
    left = [cell for cell in left if not _is_done(cell, reader.latest)]
    if code is None:
      status, lost = 'out of time', left
      error = f'the process was ended after {max_seconds:g} s.'
    else:
      status, error = 'failed', f'the process {_ending(code)}.'
      lost = [
        cell
        for cell in left
        if locks.holder(job.folder, _lock(cell)) == locks.me(pid)
      ]
    for cell in lost:
      # Removes the lock of the worker, too. Another process may be at work.
      with locks.held(job.folder, _lock(cell), wait=False) as is_free:
        if is_free:
          store.append(job.folder, _record(cell, status, {}, error))
    left = [cell for cell in left if cell not in lost]
    num_idle = 0 if len(left) < num_before else num_idle + 1
  if left:
    print(
      f'Two processes ended before their first cell. The second one '
      f'{_ending(code)}. Cells without a record: {len(left)}.',
      file=sys.stderr,
    )


def _ending(code: int) -> str:
  """Returns how a process ended, for a message."""
  if code >= 0:
    return f'ended with code {code}'
  why = ', perhaps because memory ran out' if code == -signal.SIGKILL else ''
  return f'was ended by signal {-code} ({signal.strsignal(-code)}){why}'


def _is_done(cell, latest) -> bool:
  """Returns whether there is a record that is newer than the one to replace."""
  record = cell.record(latest)
  return record is not None and record.written != cell.seen


def _lock(cell) -> str:
  return f'{store.file_name(cell.case)}.{cell.seed}'


def _worker_ended(job, cells, end) -> tuple[int | None, int]:
  """Returns (exit code, pid) of a worker; without a code, its time was over."""
  path = os.pathsep.join(
    filter(None, [str(find.ROOT), os.environ.get('PYTHONPATH')])
  )
  process = subprocess.Popen(
    [sys.executable, '-m', 'experiments.run.worker'],
    stdin=subprocess.PIPE,
    env={'TF_CPP_MIN_LOG_LEVEL': '3', **os.environ, 'PYTHONPATH': path},
    start_new_session=True,  # The worker's children end with the worker.
  )
  try:
    text = json.dumps({'parent': os.getpid(), 'job': job, 'cells': cells})
    with contextlib.suppress(BrokenPipeError):
      process.stdin.write(text.encode())
      process.stdin.close()
    left = None if end is None else max(0.0, end - time.monotonic())
    return process.wait(left), process.pid
  except subprocess.TimeoutExpired:
    return None, process.pid
  finally:
    with contextlib.suppress(ProcessLookupError, PermissionError):
      os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_cells(job: Job, found: find.Found, cells: Sequence[Cell]) -> None:
  """Runs cells in this process and appends a record of each.

  If another process is running some cells, this process waits for these cells
  at the end.
  """
  if found.study.prepare is not None:
    found.study.prepare(_work(job, found, pathlib.Path(job.folder)))
  cases = found.study.cases(found.settings)
  reader = store.Reader(job.folder)
  refused: dict[str, str] = {}

  def run_alone(cell: Cell, wait: bool) -> bool:
    with locks.held(job.folder, _lock(cell), wait) as is_mine:
      if is_mine:
        reader.update()
        if not _is_done(cell, reader.latest):
          _run_cell(job, found, cases[cell.case], cell, refused)
      return is_mine

  busy = [cell for cell in cells if not run_alone(cell, wait=False)]
  for cell in busy:
    run_alone(cell, wait=True)


def _run_cell(job, found, case, cell, refused):
  """Runs one cell and writes its record, arrays and draws."""
  checkpoints = _checkpoints(job.folder, cell)
  checkpoints.mkdir(parents=True, exist_ok=True)
  work = _work(job, found, checkpoints)
  wall, cpu = time.perf_counter(), sum(os.times()[:4])
  result, error, status = Result({}), None, 'finished'
  try:
    # A case that is refused once is refused for all seeds.
    if cell.case in refused:
      raise Refused(refused[cell.case])
    result = found.study.run(case, cell.seed, work)
    if not isinstance(result, Result):
      result = Result(result)
    values = store.plain(result.record)
    json.dumps(values, allow_nan=False)
  except Refused as why:
    result, values, status, error = Result({}), {}, 'refused', str(why)
    refused[cell.case] = error
  except Exception as why:  # The other cases still run.
    result, values, status = Result({}), {}, 'failed'
    error = f'{type(why).__name__}: {why}\n\n{traceback.format_exc()}'
  record = _record(cell, status, values, error)._replace(
    wall_seconds=time.perf_counter() - wall,
    cpu_seconds=sum(os.times()[:4]) - cpu,
  )
  if status == 'finished':
    store.write_arrays(job.folder, record, result.arrays)
    store.write_draws(job.folder, record, result.draws)
  store.append(job.folder, record)
  if status == 'finished':
    shutil.rmtree(checkpoints, ignore_errors=True)


def _work(job, found, checkpoints):
  data_dir = job.data_dir and pathlib.Path(job.data_dir)
  return Work(found.settings, checkpoints, data_dir, job.progress, job.python)


def _record(cell, status, values, error) -> store.Record:
  now = datetime.datetime.now(datetime.timezone.utc)
  return store.Record(
    *cell[:4],
    status,
    values,
    error,
    commit=machine.commit(),
    versions=machine.versions(),
    machine=machine.machine(),
    written=now.isoformat(),
  )
