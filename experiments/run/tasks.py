"""Which cells a run has, and which of them are still missing."""

import fnmatch
import re
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from experiments.run import find
from experiments.run import store
from experiments.run.errors import ConfigError
from experiments.run.errors import did_you_mean
from experiments.run.errors import listed
from experiments.run.errors import shown

_MOST_SHARDS = 10**5
_MOST_SEEDS = 10**6


class Cell(NamedTuple):
  """One case with one seed.

  Attributes:
    study: Name of the study.
    case: Name of the case.
    seed: Seed.
    key: Digest of everything that decides the numbers.
    seen: Time of the record that this run replaces, or `None`. A newer record
      means that another process has already done the work.
  """

  study: str
  case: str
  seed: int
  key: str
  seen: str | None = None

  def __str__(self):
    return f'{self.case}, seed {self.seed}'

  def record(self, latest: Mapping[tuple, store.Record]) -> store.Record | None:
    """Returns the cell's record among the latest ones."""
    return latest.get(self[:4])


class Shard(NamedTuple):
  """Part `index` of `count` parts, counted from 0."""

  index: int
  count: int


def cells(
  found: find.Found, only: Sequence[str] = (), seeds: Sequence[int] = ()
) -> list[Cell]:
  """Returns the cells of a study in the order of the work, case by case.

  Args:
    only: Patterns of case names; without a pattern, all cases.

  Raises:
    ConfigError: If a pattern fits no case.
  """
  study = found.study
  cases = study.cases(found.settings)
  shared = {
    'version': study.version,
    'settings': found.settings.model_dump(mode='json'),
  }
  chosen = []
  for name in matching(list(cases), only):
    own = study.case_key and study.case_key(cases[name])
    key = store.digest(shared if own is None else {**shared, 'case': own})
    chosen += [Cell(found.name, name, s, key) for s in seeds or study.seeds]
  return chosen


def missing(
  chosen: Iterable[Cell],
  latest: Mapping[tuple, store.Record],
  redo: Sequence[str] = (),
) -> list[Cell]:
  """Returns the cells that have no record, or one of a status in `redo`.

  If a case was refused for one seed, none of its seeds is missing.
  """
  chosen = list(chosen)
  refused = {
    (cell.case, cell.key)
    for cell in latest.values()
    if cell.status == 'refused' and 'refused' not in redo
  }
  left = []
  for cell in chosen:
    record = cell.record(latest)
    if record is None:
      if (cell.case, cell.key) not in refused:
        left.append(cell)
    elif record.status in redo:
      left.append(cell._replace(seen=record.written))
  return left


def units(
  chosen: Iterable[Cell], process: str, shard: Shard | None = None
) -> list[list[Cell]]:
  """Returns the cells in groups, one for each process.

  Args:
    shard: Part of the work, or `None` for all of it. Shard i takes the groups
      i, i + n, i + 2 n, ..., or these cells if all share one process.
  """
  chosen = list(chosen)
  if process == 'case':
    names = dict.fromkeys(cell.case for cell in chosen)
    groups = [[cell for cell in chosen if cell.case == name] for name in names]
  else:
    groups = [[cell] for cell in chosen]
  if shard is not None:
    groups = groups[shard.index :: shard.count]
  if process == 'run':
    groups = [[cell for group in groups for cell in group]] if groups else []
  return groups


def matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
  """Returns the names that match a pattern, or all without a pattern."""
  if not patterns:
    return list(names)
  chosen = set()
  for pattern in patterns:
    # An exact name with brackets is not a pattern.
    fits = {pattern} & set(names) or set(fnmatch.filter(names, pattern))
    if not fits:
      raise ConfigError(
        f'--only: {shown(pattern)} fits no case{did_you_mean(pattern, names)}; '
        f'* stands for any text, and there are {listed(names)}.'
      )
    chosen |= fits
  return [name for name in names if name in chosen]


def parse_seeds(texts: Iterable[str]) -> tuple[int, ...]:
  """Returns the seeds of texts such as '3' and '0:10', without repetition."""
  seeds: dict[int, None] = {}
  for text in texts:
    found = re.fullmatch(r'([0-9]{1,9})(?::([0-9]{1,9}))?', text)
    first = int(found[1]) if found else 0
    end = int(found[2]) if found and found[2] else first + 1
    if not found or not first < end <= first + _MOST_SEEDS:
      raise ConfigError(
        f'--seeds: {shown(text)} was given; write one seed, such as 3, or a '
        'range, such as 0:10 for the ten seeds from 0 to 9.'
      )
    seeds.update(dict.fromkeys(range(first, end)))
  return tuple(seeds)


def parse_shard(text: str) -> Shard:
  """Returns the `Shard` of a text 'i/n'."""
  found = re.fullmatch(r'([0-9]{1,9})/([0-9]{1,9})', text)
  index, count = map(int, found.groups()) if found else (0, 0)
  if not index < count <= _MOST_SHARDS:
    raise ConfigError(
      f'--shard: {shown(text)} was given; write i/n with i from 0 to n - 1 and '
      f'n at most {_MOST_SHARDS}. In a Slurm array of --array=0-15 write '
      '$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT.'
    )
  return Shard(index, count)


def check_statuses(redo: Sequence[str]) -> None:
  """Refuses a status that no record has."""
  for status in redo:
    if status not in store.STATUSES:
      raise ConfigError(
        f'--redo: {shown(status)}{did_you_mean(status, store.STATUSES)} was '
        f'given; allowed are {listed(map(repr, store.STATUSES))}.'
      )
