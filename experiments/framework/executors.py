"""Who runs the cells of a sweep: this process, one shard, or a Ray cluster.

An executor is a small piece between a list of tasks and what became of them;
what a cell is, and where its record goes, is the business of `runner` and of
`panel.run`. All executors have the members of `Local`.
"""

from typing import Any
from typing import NamedTuple

__all__ = ['Local', 'Lost', 'Shared', 'Task']


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


class Shared(Local):
  """Runs the tasks of one shard; other processes run the others."""

  def __init__(self, division):
    """Takes the `shards.Division` that this process has a shard of."""
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
