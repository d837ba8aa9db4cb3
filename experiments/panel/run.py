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

from experiments.framework.errors import ConfigError
from experiments.panel.config import find_label
from experiments.panel.records import failed_record
from experiments.panel.records import head

__all__ = ['Options', 'pair_command', 'pairs', 'run_panel']


class Options(NamedTuple):
  """What the command line says beside the config."""

  config_path: Any
  overrides: tuple = ()
  data_dir: Optional[Any] = None
  redo: tuple = ()
  device: Optional[str] = None


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


def run_panel(panel, file, chosen, options, report=print, run_pair=None):
  """Runs every chosen pair that has cells to run.

  Args:
    panel: the `Panel`.
    file: the `CellFile`.
    chosen: of `pairs`.
    options: the `Options`.
    report: called with lines of text.
    run_pair: (target_index, method_index, seconds) -> why it ended early, or
      None; by default a process of its own.

  Raises:
    ConfigError: if the folder has records under other gates.
  """
  file.check_gates(panel.gates_digest)
  run_pair = run_pair or _process(options, panel.config, file)
  for number, (target_index, method_index) in enumerate(chosen, start=1):
    target = panel.config.target_label(target_index)
    method = panel.config.method_label(method_index)
    missing = file.missing_seeds(
      panel, target_index, method_index, options.redo
    )
    kept = panel.config.num_seeds - len(missing)
    report(f'[{number}/{len(chosen)}] {target} | {method}: {kept} kept')
    if not missing:
      continue
    key = panel.key(target_index, method_index)
    before = file.finished_seeds(target, method, key)
    ended = run_pair(target_index, method_index, panel.config.seconds_per_pair)
    if ended is not None:
      status, error = ended
      report(f'  {status}: {error}')
      after = file.finished_seeds(target, method, key)
      lead = head(panel, target_index, method_index, key)
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


def _process(options, config, file):
  """Returns a function that runs a pair in a process of its own."""

  def run_pair(target_index, method_index, seconds):
    command = pair_command(
      options,
      file.folder,
      config.target_label(target_index),
      config.method_label(method_index),
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

  return run_pair


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
  return command
