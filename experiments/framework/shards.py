"""One sweep in several processes without a server: shard i of n.

Shard i takes the cells i, i + n, i + 2 n, ... of the config's list, counted
from 0. All write to the same folder, each cell to its own place there:

  <folder>/.lock                         held by all shards together: a run of
                                         the whole folder is kept out meanwhile
           shards/<n>-<digest>/tasks.json   the names of all cells, in order
           shards/<n>-<digest>/<i>/.lock    held by shard i alone
                                   taken.jsonl   names of the cells it began
                                   run.json      as of a run, its sessions

The digest is that of the list: with another config, filter or n the folder is
refused until `shards` is removed.
"""

import contextlib
import pathlib
import re
from typing import NamedTuple

from experiments.framework import seals
from experiments.framework.errors import ConfigError
from experiments.framework.errors import shortened
from experiments.framework.errors import shown
from experiments.framework.errors import StorageError
from experiments.framework.json_files import append_lines
from experiments.framework.json_files import read_json
from experiments.framework.json_files import read_lines
from experiments.framework.outputs import storing
from experiments.framework.outputs import write_json
from experiments.framework.outputs import writing

__all__ = ['NAME', 'Division', 'Shard', 'check', 'joined', 'parse']

NAME = 'shards'
_HOW = (
  'write i/n with i from 0 to n - 1, in a Slurm array of --array=0-15 '
  '$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT'
)
_MOST = 10**5


class Shard(NamedTuple):
  """Which of how many."""

  index: int
  count: int

  def __str__(self):
    return f'{self.index}/{self.count}'

  def of(self, sequence):
    """Returns every n-th entry of a list, from the i-th on."""
    return sequence[self.index :: self.count]


def parse(text):
  """Returns the `Shard` of 'i/n'.

  Raises:
    ConfigError: if it is none; how one is written.
  """
  found = re.fullmatch(r'([0-9]{1,9})/([0-9]{1,9})', text)
  if not found:
    raise ConfigError(f'--shard: {shown(text)} was given; {_HOW}.')
  index, count = map(int, found.groups())
  if not 1 <= count <= _MOST:
    raise ConfigError(
      f'--shard: {shown(text)} was given, but n is from 1 to {_MOST}.'
    )
  if index >= count:
    raise ConfigError(
      f'--shard: {shown(text)} was given, but shards are numbered from 0: of '
      f'{count} the last is {count - 1}/{count}. With an array write '
      f'--array=0-{count - 1}.'
    )
  return Shard(index, count)


class Division:
  """What one shard knows of a folder that it shares with others."""

  def __init__(self, folder, shard, names):
    digest = seals.digest(names)[:8]
    self.path = pathlib.Path(folder) / NAME / f'{shard.count}-{digest}'
    self.home = self.path / str(shard.index)
    self._shard = shard
    self._names = names

  def share(self, tasks):
    """Returns the tasks of this shard."""
    return self._shard.of(list(tasks))

  def take(self, task):
    """Notes that this shard begins a task; for `check`."""
    with storing(self.home):
      append_lines(self.home / 'taken.jsonl', task.name)

  def begin(self):
    """Writes the list of the tasks, which is the same for all shards."""
    with storing(self.path):
      self.path.mkdir(parents=True, exist_ok=True)
    _refuse_others(self.path, self._shard)
    write_json(self.path / 'tasks.json', self._names)

  def finish(self, finish):
    """Calls a function unless another shard does; returns whether."""
    with contextlib.ExitStack() as stack:
      try:
        stack.enter_context(writing(self.path))
      except StorageError:
        return False
      finish()
      return True


@contextlib.contextmanager
def joined(folder, shard, names):
  """Yields the `Division` of a folder to one of its shards.

  Args:
    folder: of the results; made if it is not there.
    shard: the `Shard`.
    names: of all tasks, in the order of the config.

  Raises:
    ConfigError: if the folder is divided otherwise, or shards overlapped.
    StorageError: if this shard runs already, or a run of the whole folder.
  """
  division = Division(folder, shard, names)
  with writing(folder, is_shared=True):
    division.begin()
    with writing(division.home):
      check(folder)
      yield division


def _refuse_others(path, shard):
  """Refuses a folder that other shards than these have a part of."""
  others = [p.name for p in sorted(path.parent.iterdir()) if p != path]
  if not others:
    return
  count = others[0].partition('-')[0]
  how = f'into {count} shards'
  if count == str(shard.count):
    how = f'into {count} shards of another list of cells'
  with contextlib.suppress(OSError):
    path.rmdir()  # Only what this process has just made is empty.
  raise ConfigError(
    f'{shortened(path.parent.parent, 120)} is divided {how}; {shard} was '
    f'given. Give all shards the same n, --set, --only-target and '
    f'--only-method; or, once none of them runs, remove '
    f'{shortened(path.parent, 120)}: finished cells are kept.'
  )


def check(folder):
  """Refuses a folder whose shards began cells of others.

  Args:
    folder: of the results; without `shards` there is nothing to refuse.

  Raises:
    ConfigError: with the cell and both shards, or where two divisions are
      mixed.
  """
  divisions = sorted((pathlib.Path(folder) / NAME).glob('*-*'))
  if len(divisions) > 1:
    raise ConfigError(
      f'{shortened(folder, 120)} mixes shards of two divisions, '
      f'{" and ".join(path.name for path in divisions[:2])} in {NAME}: cells '
      'of two sweeps were put together. Keep them in two folders.'
    )
  for path in divisions:
    if (path / 'tasks.json').is_file():
      _check_taken(path)


def _check_taken(path):
  """Compares what the shards of one division began with what is theirs."""
  count = int(path.name.partition('-')[0])
  names = read_json(path / 'tasks.json')
  owners = {name: number % count for number, name in enumerate(names)}
  for file in sorted(path.glob('*/taken.jsonl')):
    index = int(file.parent.name)
    for name in read_lines(file):
      if owners.get(name) != index:
        owner = f'shard {owners[name]}/{count}' if name in owners else 'none'
        raise ConfigError(
          f'{shortened(file, 160)}: shard {index}/{count} began the cell '
          f'{shown(name)}, which is of {owner}; remove that cell and that '
          'line, then run its shard again.'
        )
