"""A whole run: build everything, then every cell by who was asked to."""

import contextlib
import datetime
import functools
import math
import os
import pathlib
import re
import traceback
from typing import Any
from typing import NamedTuple
from typing import Optional

from experiments.data import datasets
from experiments.framework import devices
from experiments.framework import executors
from experiments.framework import figures
from experiments.framework import moments
from experiments.framework import outputs
from experiments.framework import sessions
from experiments.framework import storage
from experiments.framework import tables
from experiments.framework.cell import MAX_STORED_FACTOR
from experiments.framework.cell import run_cell
from experiments.framework.errors import ConfigError
from experiments.framework.errors import DataError
from experiments.framework.errors import shortened
from experiments.framework.measurements import step_counts
from experiments.framework.outputs import storing
from experiments.framework.outputs import write_json
from experiments.framework.outputs import write_text
from experiments.framework.starts import make_starts
from experiments.methods.base import BuildOptions
from experiments.targets.base import BuildContext

__all__ = [
  'CellWork',
  'Plan',
  'default_output',
  'finish',
  'make_plan',
  'newest_output',
  'run_plan',
]

# States of all chains, more than memory holds with what a kernel keeps.
_MAX_STATES = 10**9
_MAX_REASON = 500


class Plan(NamedTuple):
  """A config with its target and methods built: nothing left to refuse."""

  config: Any
  target: Any
  methods: list
  # Folder of local data sets, or None.
  data_dir: Optional[str] = None


def make_plan(config, data_dir=None):
  """Builds the target and every method.

  Raises:
    ConfigError: a combination that cannot work, with the key to change.
    DataError: the data set is not to be had.
  """
  try:
    target = config.target.build(BuildContext(config.dtype, data_dir))
  except DataError:
    raise
  except ValueError as error:
    raise ConfigError(shortened(error, _MAX_REASON)) from error
  if config.num_chains * target.event_size > _MAX_STATES:
    raise ConfigError(
      f'num_chains: {config.num_chains} chains of {target.event_size} '
      f'coordinates were asked for; {_MAX_STATES} numbers are allowed in all.'
    )
  _check_image(config.diagonal_image_shape, target.event_size)
  make_starts(config, target, repeat=0)
  methods = [
    _build_method(config, index, target) for index in range(len(config.methods))
  ]
  return Plan(config, target, methods, data_dir)


def _check_image(shape, event_size):
  """Refuses an image that the diagonal of a stored factor does not fill."""
  if not shape:
    return
  if event_size > MAX_STORED_FACTOR:
    raise ConfigError(
      f'diagonal_image_shape: {shape} was given, but factors of more than '
      f'{MAX_STORED_FACTOR} coordinates are not stored; leave it out.'
    )
  if min(shape) < 1 or math.prod(shape) > event_size:
    raise ConfigError(
      f'diagonal_image_shape: {shape} was given, but it takes two positive '
      f'ints whose product is at most the {event_size} coordinates.'
    )


def _build_method(config, index, target):
  num_adaptation_steps, _ = step_counts(config, index)
  options = BuildOptions(
    num_adaptation_steps=num_adaptation_steps,
    num_chains=config.num_chains,
    jit_compile=config.jit_compile,
    trace_diagonal=config.trace_diagonal,
  )
  try:
    config.methods[index].check_target(target)
    method = config.methods[index].build(target, options)
  except (ValueError, TypeError, NotImplementedError) as error:
    raise ConfigError(
      f'methods.{index} ({config.methods[index].name}): '
      f'{shortened(error, _MAX_REASON)}'
    ) from error
  _check_options(
    config, f'methods.{index} ({config.methods[index].name})', method
  )
  return method


def _check_options(config, where, method):
  """Refuses what a method that is no kernel does not take."""
  if method.kernel is not None:
    return
  if config.num_steps_between_results:
    raise ConfigError(
      f'{where}: it does not thin, but num_steps_between_results is '
      f'{config.num_steps_between_results}; write 0, or leave the method out.'
    )
  if config.keep_states:
    raise ConfigError(
      f'{where}: it does not record the states of all steps, but keep_states '
      'is true; write false, or leave the method out.'
    )


def default_output(config, root='results'):
  """Returns a folder name that says what and when."""
  now = datetime.datetime.now().strftime('%Y%m%d-%H%M%S')
  return pathlib.Path(root) / f'{config.name}-{now}'


def newest_output(config, root='results'):
  """Returns the last folder that `default_output` named for this config."""
  # Not those of a config whose name begins with this one.
  named = re.compile(re.escape(config.name) + r'-[0-9]{8}-[0-9]{6}')
  folders = sorted(
    path
    for path in pathlib.Path(root).glob(f'{config.name}-*')
    if named.fullmatch(path.name)
  )
  if not folders:
    raise ConfigError(
      f'--resume: there is no run of {config.name!r} in {root!r}; name its '
      'folder with --output.'
    )
  return folders[-1]


def run_plan(plan, folder, console, progress=True, executor=None):
  """Runs every cell that is not finished yet.

  Args:
    plan: from `make_plan`.
    folder: the `RunFolder`; finished cells in it are kept.
    console: a rich console.
    progress: whether `tfpa.sample` prints its own progress.
    executor: who runs them; default: this process, all of them.

  Returns:
    The records of the executor's cells, failed ones included.
  """
  executor = executor or executors.Local()
  outputs.check_folder(folder.path)
  tasks = executor.share(_tasks(plan.config))
  # A damaged cell is refused now, not when its turn comes.
  folder.cells(plan.config, [task.argument for task in tasks])
  sessions.append(executor.session_folder(folder.path))
  lost = _run_tasks(plan, folder, console, progress, executor, tasks)
  missing = folder.missing(plan.config)
  executor.finish(missing, lambda: finish(folder, plan.config, plan.target))
  records = [folder.read_cell(*task.argument) for task in tasks]
  # One of each cell: of what failed before and is lost now, that it is lost.
  found = {}
  for record in [*filter(None, records), *lost]:
    cell = record['label'], record['repeat']
    if found.get(cell, {}).get('status') != 'finished':
      found[cell] = record
  return list(found.values())


def _tasks(config):
  """Returns every cell of a config as a `Task`, in the config's order."""
  names = zip(config.cells(), storage.cell_names(config))
  return [
    executors.Task(number, name, cell[1], cell)
    for number, (cell, name) in enumerate(names)
  ]


def _run_tasks(plan, folder, console, progress, executor, tasks):
  """Runs what is not finished; returns records of what nobody finished."""
  lost = []

  def unfinished():
    for task in tasks:
      record = folder.read_cell(*task.argument)
      if record is None or record['status'] != 'finished':
        yield task
      else:
        _say(console, record, 'kept from before: ')

  def started(task):
    total = len(plan.config.cells())
    console.print(f'[{task.number + 1}/{total}] {task.name}', markup=False)

  work = functools.partial(_run_and_write, plan, folder, progress)
  if executor.is_remote:
    work = CellWork(
      os.path.abspath(folder.path),
      _data_dir_elsewhere(plan.data_dir),
      executor.device,
    )
  for task, record in executor.run(work, unfinished(), started, _status):
    if isinstance(record, executors.Lost):
      record = _failed_record(plan.config, *task.argument, record.error)
      lost.append(record)
    # A cluster has one table instead of a line for each cell.
    if not executor.is_remote or record['status'] != 'finished':
      _say(console, record, f'{task.name}: ' if executor.is_remote else '')
  return lost


def _data_dir_elsewhere(data_dir):
  """Returns the data folder for processes that have another one as theirs."""
  folder = datasets.folder(data_dir)
  return os.path.abspath(folder) if data_dir or folder.is_dir() else None


def _status(record):
  return record['status']


class CellWork(NamedTuple):
  """Runs cells of a folder in another process, which builds the plan once.

  Attributes:
    folder: path of the `RunFolder`, on storage that both see.
    data_dir: folder of local data sets, or None.
    device: as of `devices.on_device`.
  """

  folder: str
  data_dir: Optional[str] = None
  device: Optional[str] = None

  def __call__(self, cell):
    """Returns the record of a cell, which only one process at a time runs."""
    folder = storage.RunFolder(self.folder)
    index, _, repeat = cell
    with outputs.alone(folder.path / 'locks' / f'{index:02d}_{repeat:02d}'):
      record = folder.read_cell(*cell)
      if record is not None and record['status'] == 'finished':
        return record
      content = (folder.path / 'config.yaml').read_bytes()
      with devices.on_device(self.device):
        plan = _plan_of(self, content)
        return _run_and_write(plan, folder, False, cell)


@functools.lru_cache(maxsize=2)
def _plan_of(work, content):
  """Returns the plan of a folder's config; kept by its bytes."""
  del content
  config = storage.RunFolder(work.folder).config()
  return make_plan(config, work.data_dir)


def finish(folder, config, target):
  """Writes results.json, report.md and the figures from the cells."""
  records = folder.records(config)
  write_json(folder.path / 'results.json', records)
  rows = tables.join(records)
  report = tables.to_markdown(config.name, rows) + moments.to_markdown(records)
  write_text(folder.path / 'report.md', report)
  with storing(folder.path / 'figures'):
    figures.draw_all(folder, config, target)
  # Not by a cell: another one may just make its own in it.
  with contextlib.suppress(OSError):
    (folder.path / 'checkpoints').rmdir()


def _run_and_write(plan, folder, progress, cell):
  """Runs one cell; an exception becomes a record that says so."""
  config = plan.config
  index, label, repeat = cell
  checkpoint = folder.checkpoint_path(index, repeat)
  arrays, draws = {}, None
  try:
    record, arrays, draws = run_cell(
      config,
      index,
      plan.methods[index],
      plan.target,
      repeat,
      checkpoint if plan.methods[index].sample_fn is None else None,
      progress,
    )
  except Exception as error:  # A failed method is a row, not the end.
    text = f'{type(error).__name__}: {error}'
    record = _failed_record(config, *cell, text, traceback.format_exc())
  folder.write_cell(index, label, repeat, record, arrays, draws)
  return record


def _failed_record(config, index, label, repeat, error, trace=''):
  return {
    'status': 'failed',
    'label': label,
    'method': config.methods[index].name,
    'repeat': repeat,
    'error': error,
    'traceback': trace,
  }


def _say(console, record, prefix):
  """Prints what became of a cell, one line."""
  if record['status'] == 'failed':
    error = record['error'].strip().splitlines()[0][:300]
    console.print(f'  {prefix}failed: {error}', style='red', markup=False)
    return
  seconds = record['seconds']
  console.print(
    f'  {prefix}{record["label"]}: '
    f'{seconds["adaptation"] + seconds["sampling"]:.1f} s '
    f'(+ {seconds["compile"]:.1f} s compile), acceptance '
    f'{tables.number(record["accept_rate"], 3)}, min ESS '
    f'{tables.number(record["ess"]["min"], 1)}',
    markup=False,
    highlight=False,
  )
  for warning in record['warnings']:
    console.print(f'  warning: {warning}', style='yellow', markup=False)
