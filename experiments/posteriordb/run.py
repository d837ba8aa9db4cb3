"""Runs a sampler on a posterior in its own process, and judges its draws."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np

from experiments.posteriordb import reference as reference_lib
from experiments.posteriordb import registry
from experiments.posteriordb import theirs
from experiments.run import machine
from experiments.run.errors import ConfigError
from experiments.run.errors import DataError

__all__ = [
  'HERE',
  'NUM_CHAINS',
  'NUM_DRAWS',
  'SAMPLERS',
  'Task',
  'finished',
  'key',
  'run',
]

HERE = 'sample_posterior'
SAMPLERS = (HERE, *theirs.SAMPLERS)
# Defaults of `sample_posterior`; the other samplers get the same.
NUM_CHAINS, NUM_DRAWS = 8, 1000
_LARGEST_RHAT, _LEAST_ESS = 1.01, 400.0
_FOLDER = pathlib.Path(__file__).parent
_ROOT = _FOLDER.parents[1]
_MOST_ERROR = 2000  # Characters of what a failed process wrote.


class Task(NamedTuple):
  """What is run.

  Attributes:
    name: Name of the posterior.
    sampler: One of `SAMPLERS`.
    seed: Seed, 0 or larger.
    dtype: 'float32' or 'float64'. Stan programs are always in float64.
  """

  name: str
  sampler: str
  seed: int
  dtype: str = 'float32'


def key(record: Mapping[str, Any]) -> Task:
  """Returns the task that a record is of.

  Args:
    record: What `run` returned.
  """
  return Task(*(record[field] for field in Task._fields))


def run(
  task: Task,
  folder: pathlib.Path,
  python: str | None = None,
  max_seconds: float | None = None,
) -> dict[str, Any]:
  """Returns the record of one run; a run that fails has a record, too.

  Args:
    task: What is run.
    folder: Folder with the files of posteriordb.
    python: Interpreter of the other samplers, or `None`.
    max_seconds: Wall seconds after which the process is ended, or `None`.

  Raises:
    ConfigError: If the sampler needs an interpreter and none was given.
    DataError: If the data, the reference or the program cannot be read.
  """
  head = task._asdict()
  reference = reference_lib.load(task.name, folder)
  with tempfile.TemporaryDirectory() as scratch:
    output = pathlib.Path(scratch) / 'draws.npz'
    command = _command(task, folder, python, pathlib.Path(scratch), output)
    begin = _seconds_of_children()
    try:
      _execute(command, scratch, max_seconds)
    except subprocess.TimeoutExpired:
      return {**head, 'status': 'out of time', 'max_seconds': max_seconds}
    except subprocess.CalledProcessError as error:
      text = error.stderr[-_MOST_ERROR:]
      return {**head, 'status': 'failed', 'error': text}
    with np.load(output) as file:
      found = json.loads(str(file['record']))
      found['process_cpu_seconds'] = _seconds_of_children() - begin
      draws = dict(
        zip(file['names'].tolist(), np.moveaxis(file['draws'], -1, 0))
      )
  return finished(task, found, draws, reference)


def finished(
  task: Task,
  found: Mapping[str, Any],
  draws: Mapping[str, np.ndarray],
  reference: Mapping[str, reference_lib.Moments],
) -> dict[str, Any]:
  """Returns the record of a run that came to its end.

  `converged` is a sampler's own verdict. A sampler without one gets that of
  `is_enough`: R-hat and effective draws of the reference's scalars.

  Args:
    task: What was run.
    found: What its process wrote: verdict, cost, versions.
    draws: [draws, chains] by name; names that the reference lacks are left out.
    reference: `Moments` by name.
  """
  missing = sorted(set(reference) - set(draws))
  if missing:
    raise DataError(
      f'{task.sampler} has no draws of {", ".join(missing)} of {task.name}: '
      'the model and the reference are not of the same version.'
    )
  draws = {name: draws[name] for name in reference}
  comparison = reference_lib.compare(draws, reference)
  is_enough = (
    comparison.rhat < _LARGEST_RHAT
    and min(comparison.ess_bulk, comparison.ess_tail) >= _LEAST_ESS
  )
  first = next(iter(draws.values()))
  return {
    **task._asdict(),
    'status': 'finished',
    'converged': is_enough,
    **found,
    'is_enough': is_enough,
    **comparison._asdict(),
    'num_draws': first.shape[0],
    'num_chains': first.shape[1],
    'commit': machine.commit(),
  }


def _seconds_of_children():
  """Returns CPU seconds of all children that have ended, and of theirs."""
  times = os.times()
  return times.children_user + times.children_system


def _command(task, folder, python, scratch, output):
  """Returns the command line of a run's process."""
  if task.sampler == HERE:
    arguments = [task.name, str(task.seed), task.dtype, folder, output]
    module = 'experiments.posteriordb.here'
    return [sys.executable, '-m', module, *map(str, arguments)]
  if python is None:
    raise ConfigError(
      f'{task.sampler} runs in an environment of its own: write `--python '
      'PATH` of a Python that has pystan, or nutpie[stan].'
    )
  _, model = registry.split_name(task.name)
  program = folder / 'stan' / f'{model}.stan'
  if not program.is_file():
    raise DataError(
      f'{program} is not there: run `python -m experiments data posteriordb`, '
      'which downloads the Stan programs.'
    )
  data = registry.published_data(task.name, folder)
  values = scratch / 'data.json'
  values.write_text(
    json.dumps({name: value.tolist() for name, value in data.items()})
  )
  # Stan takes positive seeds alone.
  arguments = [program, values, task.sampler, task.seed + 1]
  arguments += [NUM_CHAINS, NUM_DRAWS, output]
  return [python, str(_FOLDER / 'theirs.py'), *map(str, arguments)]


def _execute(command, scratch, max_seconds):
  """Runs a command whose caches are empty: what is compiled is timed."""
  environment = {
    **os.environ,
    'XDG_CACHE_HOME': scratch,
    'TF_CPP_MIN_LOG_LEVEL': '3',
    'PYTHONPATH': os.pathsep.join(
      filter(None, [str(_ROOT), os.environ.get('PYTHONPATH')])
    ),
  }
  if command[0] != sys.executable:
    environment.pop('PYTHONPATH')
  subprocess.run(
    command,
    cwd=_ROOT,
    env=environment,
    timeout=max_seconds,
    capture_output=True,
    text=True,
    check=True,
  )
