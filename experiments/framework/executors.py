"""Who runs the cells of a sweep: this process, one shard, or a Ray cluster.

An executor is a small piece between a list of tasks and what became of them;
what a cell is, and where its record goes, is the business of `runner` and of
`panel.run`. All executors have the members of `Local`.
"""

import pathlib
from typing import Any
from typing import NamedTuple
from typing import Optional

from experiments.framework import shards
from experiments.framework.errors import ConfigError
from experiments.framework.errors import shown

__all__ = ['Choice', 'Local', 'Lost', 'Shared', 'Task', 'choose']

_NAMES = ('local', 'ray')


class Task(NamedTuple):
  """One cell of a run, or one pair of a panel."""

  # In the list of the config, from 0.
  number: int
  # For people: unique in a sweep.
  name: str
  # What it is counted with where many are shown.
  group: str
  # What the function that runs it takes.
  argument: Any


class Lost(NamedTuple):
  """Stands for the value of a task that nobody finished; why, in words."""

  error: str


class Local:
  """Runs the tasks one after the other, in this process."""

  # Whether the function travels: it is pickled then, and prints to no terminal.
  is_remote = False

  def share(self, tasks):
    """Returns those of the tasks that this process answers for."""
    return tasks

  def session_folder(self, folder):
    """Returns where to write who worked here, and with which versions."""
    return folder

  def run(self, function, tasks, started, status):
    """Yields (task, value of the function or `Lost`) as they come.

    Args:
      function: of the task's argument.
      tasks: iterable of `Task`, taken from as there is room.
      started: called with a task when it begins, where that is known.
      status: of a value: 'finished', or what else is counted.
    """
    del status
    for task in tasks:
      started(task)
      yield task, function(task.argument)

  def finish(self, missing, finish):
    """Calls `finish`, which makes tables of all cells; returns whether.

    Args:
      missing: names of the cells that are not there, of any shard.
      finish: function without arguments.
    """
    del missing
    finish()
    return True


class Choice(NamedTuple):
  """What the command line says of who runs the cells.

  Attributes:
    shard: 'i/n' or None.
    executor: 'local' or 'ray'.
    address: of a Ray cluster, or None.
    device: as of `--device`.
  """

  shard: Optional[str] = None
  executor: str = 'local'
  address: Optional[str] = None
  device: Optional[str] = None

  def device_here(self):
    """Returns the device of this process, which may run no cell itself."""
    if self.executor != 'local' and self.device in ('gpu', 'tpu'):
      return None
    return self.device

  def check(self, output):
    """Refuses what does not go together, before anything is imported.

    Args:
      output: folder that was named, or None.

    Returns:
      The `Shard`, or None.
    """
    if self.executor not in _NAMES:
      raise ConfigError(
        f'--executor: {shown(self.executor)} was given; allowed are '
        f'{", ".join(_NAMES)}.'
      )
    if self.address is not None and self.executor != 'ray':
      raise ConfigError(
        f'--address: {shown(self.address)} was given, but only a Ray cluster '
        'has one; write --executor ray, too.'
      )
    if self.shard is None:
      return None
    shard = shards.parse(self.shard)
    if self.executor != 'local':
      raise ConfigError(
        f'--shard: {shown(self.shard)} was given with --executor '
        f'{self.executor}, which divides the cells itself; leave one out.'
      )
    if output is None:
      raise ConfigError(
        f'--shard: {shown(self.shard)} was given without --output; name the '
        'folder that all shards write to.'
      )
    return shard


def choose(choice, console, folder):
  """Returns the executor of a whole run; one shard has a `Shared`.

  Args:
    choice: the `Choice`, checked.
    console: a rich console, for the table of a cluster.
    folder: of the results.
  """
  if choice.executor == 'local':
    return Local()
  from experiments.framework import ray_executor

  return ray_executor.Cluster(
    choice.address, choice.device, console, pathlib.Path(folder).resolve()
  )


class Shared(Local):
  """Runs the tasks of one shard; other processes run the others."""

  def __init__(self, division):
    self._division = division

  def share(self, tasks):
    return self._division.share(tasks)

  def session_folder(self, folder):
    del folder
    return self._division.home

  def run(self, function, tasks, started, status):
    del status
    for task in tasks:
      self._division.take(task)
      started(task)
      yield task, function(task.argument)

  def finish(self, missing, finish):
    return not missing and self._division.finish(finish)
