"""All pairs of a panel, one process each, cheap targets first.

A pair's process shares one compilation among its seeds and takes its memory
with it. It is stopped when its time is over; what it finished stays.
"""

import contextlib
import fnmatch
import subprocess
import sys
from typing import Any
from typing import NamedTuple
from typing import Optional

from experiments.framework import executors
from experiments.framework.errors import ConfigError
from experiments.panel.config import find_label
from experiments.panel.records import failed_record
from experiments.panel.records import head

__all__ = [
  'Options',
  'PairWork',
  'pair_command',
  'pair_names',
  'pairs',
  'run_panel',
]


class Options(NamedTuple):
  """What the command line says beside the config."""

  config_path: Any
  overrides: tuple = ()
  data_dir: Optional[Any] = None
  redo: tuple = ()
  device: Optional[str] = None
  # Whether other processes write to the folder, too: cells keep checkpoints.
  is_shared: bool = False


def pairs(panel, only_targets=(), only_methods=()):
  """Returns [(target_index, method_index)] in the order of the work.

  Args:
    panel: the `Panel`.
    only_targets: labels, `*` and `?` allowed; none: all.
    only_methods: the same of methods.

  Raises:
    ConfigError: if a label fits nothing.
  """
  targets = _chosen('--only-target', only_targets, panel.config.target_labels())
  methods = _chosen('--only-method', only_methods, panel.config.method_labels())
  return [(t, m) for t in targets for m in methods]


def _chosen(key, wanted, labels):
  if not wanted:
    return list(range(len(labels)))
  found = set()
  for label in wanted:
    matches = [i for i, one in enumerate(labels) if fnmatch.fnmatch(one, label)]
    # An exact name with brackets or commas is no pattern.
    found.update(matches or [find_label(key, label, labels)])
  return sorted(found)


def pair_names(config, chosen):
  """Returns the names of pairs for people, in the order of the work."""
  return [
    f'{config.target_label(t)} | {config.method_label(m)}' for t, m in chosen
  ]


def run_panel(
  panel, file, chosen, options, report=print, run_pair=None, executor=None
):
  """Runs every chosen pair that has cells to run.

  Args:
    panel: the `Panel`.
    file: the `CellFile`.
    chosen: of `pairs`.
    options: the `Options`.
    report: called with lines of text.
    run_pair: (target_index, method_index, seconds) -> why it ended early, or
      None; by default a process of its own.
    executor: who runs them; default: this process, one after the other.

  Returns:
    The names of the pairs that nobody came to the end of: a cluster lost them.

  Raises:
    ConfigError: if the folder has records under other gates.
  """
  file.check_gates(panel.gates_digest)
  executor = executor or executors.Local()
  labels = panel.config.target_labels(), panel.config.method_labels()
  work = PairWork(options, file.folder, *map(tuple, labels))
  if run_pair is not None:
    work = lambda argument: run_pair(*argument)
  tasks = executor.share(_tasks(panel.config, chosen))
  before, lost = {}, []

  def unfinished():
    for task in tasks:
      place = f'[{task.number + 1}/{len(chosen)}] {task.name}'
      before[task.number] = missing, _ = _left(panel, file, task, options.redo)
      kept = panel.config.num_seeds - len(missing)
      report(f'{place}: {kept} kept')
      if missing:
        yield task

  for task, ended in executor.run(work, unfinished(), _silent, _status):
    if isinstance(ended, executors.Lost):
      lost.append(task.name)
      report(f'  {task.name} lost: {ended.error}')
    elif ended is not None:
      report(f'  {task.name} {ended[0]}: {ended[1]}')
      _append_unreached(panel, file, task, *before[task.number], *ended)
  executor.finish(lost, lambda: None)
  return lost


def _silent(task):
  del task


def _status(ended):
  return 'finished' if ended is None else ended[0]


def _tasks(config, chosen):
  """Returns every chosen pair as a `Task`."""
  return [
    executors.Task(
      number,
      name,
      config.target_label(pair[0]),
      (*pair, config.seconds_per_pair),
    )
    for number, (pair, name) in enumerate(
      zip(chosen, pair_names(config, chosen))
    )
  ]


def _left(panel, file, task, redo=()):
  """Returns (seeds to run, {seed: record} of those that need not) of a pair."""
  pair = task.argument[:2]
  target = panel.config.target_label(pair[0])
  method = panel.config.method_label(pair[1])
  done = file.finished_seeds(target, method, panel.key(*pair))
  return file.missing_seeds(panel, *pair, redo), done


def _append_unreached(panel, file, task, missing, before, status, error):
  """Writes a record for each seed that a process did not come to."""
  pair = task.argument[:2]
  lead = head(panel, *pair, panel.key(*pair))
  _, after = _left(panel, file, task)
  for seed in _unreached(missing, before, after):
    file.append({**lead, 'seed': seed, **failed_record(status, error)})


def _unreached(seeds, before, after):
  """Returns the seeds that a process left as they were, without a result."""
  if any(record['status'] == 'refused' for record in after.values()):
    return []
  return [
    seed
    for seed in seeds
    if after.get(seed) == before.get(seed)
    and after.get(seed, {}).get('status') != 'finished'
  ]


class PairWork(NamedTuple):
  """Runs pairs in processes of their own, on whatever machine it is called.

  Attributes:
    options: the `Options`.
    folder: of the records.
    targets: labels of all targets.
    methods: labels of all methods.
  """

  # No config: the classes of targets do not travel.
  options: Options
  folder: Any
  targets: tuple
  methods: tuple

  def __call__(self, argument):
    """Returns (status, reason) if a pair ended early, or None."""
    target_index, method_index, seconds = argument
    command = pair_command(
      self.options,
      self.folder,
      self.targets[target_index],
      self.methods[method_index],
    )
    with _started(command) as process:
      try:
        code = process.wait(seconds)
      except subprocess.TimeoutExpired:
        return 'out of time', f'stopped after {seconds:g} s.'
    if code == _REFUSED_BY_CONFIG:
      raise ConfigError('the process of a pair refused the config; see above.')
    if code:
      return 'failed', f'its process ended with code {code}.'
    return None


# Of `typer.Exit(2)` and of wrong options.
_REFUSED_BY_CONFIG = 2


@contextlib.contextmanager
def _started(command):
  """Starts a process; ends it whatever happens to this one."""
  process = subprocess.Popen(command)
  try:
    yield process
  finally:
    if process.poll() is None:
      process.kill()
      process.wait()


def pair_command(options, folder, target, method):
  """Returns the command line that runs one pair."""
  command = [sys.executable, '-m', 'experiments', 'panel', 'pair']
  command += [str(options.config_path), target, method]
  command += ['--output', str(folder)]
  for override in options.overrides:
    command += ['--set', override]
  for status in options.redo:
    command += ['--redo', status]
  if options.data_dir is not None:
    command += ['--data-dir', str(options.data_dir)]
  if options.device is not None:
    command += ['--device', options.device]
  if options.is_shared:
    command.append('--shared')
  return command
