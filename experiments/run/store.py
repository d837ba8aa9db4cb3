"""Records of runs: a folder with one line of JSON for each cell, only appended.

  <folder>/records.jsonl                   the latest line of a cell counts
           study.json                      what `run` was called with
           arrays/<case>/<seed>.npz        small arrays of a cell
           draws/<case>/<seed>.zarr        draws of a cell
           checkpoints/<case>/<seed>/<key> state of a cell in progress
           locks/<case>.<seed>             held while a cell runs

A cell is a case with a seed and a key. Arrays and draws are written before the
line of their cell, each whole or not at all. A killed process therefore loses
only the cell that it was running. Several processes may append at once, also on
NFS. A line that a killed process left unfinished is ignored.
"""

import contextlib
import fcntl
import gzip
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import socket
import zlib
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np

from experiments.run.errors import ConfigError
from experiments.run.errors import shortened
from experiments.run.errors import shown
from experiments.run.errors import StorageError

STATUSES = ('finished', 'failed', 'out of time', 'refused')
ARRAYS, DRAWS, CHECKPOINTS, LOCKS = 'arrays', 'draws', 'checkpoints', 'locks'
_RECORDS = 'records.jsonl'
DESCRIPTION = 'study.json'
# Name of the array and of the attribute that hold the key of their cell.
_KEY = 'key_of_the_record'


class Record(NamedTuple):
  """What is known about one run of a case with a seed.

  Attributes:
    study: Name of the study.
    case: Name of the case.
    seed: Seed.
    key: Digest of the study's version and settings.
    status: One of `STATUSES`.
    record: What the study returned, as JSON values.
    error: Why the run did not finish, or `None`. The first line is enough for a
      table; a traceback may follow.
    wall_seconds: Wall time, or `None` where it is not known.
    cpu_seconds: CPU time of all threads and child processes, or `None`.
    commit: Output of `git describe`, or `None`.
    versions: Versions of the loaded packages by name.
    machine: System, processor, cores and accelerators.
    written: Time in ISO format.
  """

  study: str
  case: str
  seed: int
  key: str | None
  status: str
  record: dict[str, Any]
  error: str | None = None
  wall_seconds: float | None = None
  cpu_seconds: float | None = None
  commit: str | None = None
  versions: dict[str, str] | None = None
  machine: dict[str, Any] | None = None
  written: str | None = None

  @property
  def cell(self) -> tuple[str, str, int, str | None]:
    """Returns the fields that a record shares with the record it replaces."""
    return self.study, self.case, self.seed, self.key


def digest(values: Any) -> str:
  """Returns 16 hexadecimal digits of JSON values; the order of keys is free."""
  text = json.dumps(values, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_name(case: str) -> str:
  """Returns a file name for a case; two cases never share one."""
  name = re.sub(r'[^A-Za-z0-9,=+-]+', '_', case).strip('_')[:80]
  return name if name and name == case else f'{name}.{digest(case)[:8]}'


def plain(value: Any) -> Any:
  """Returns JSON values: NumPy becomes lists and numbers, NaN becomes null."""
  if isinstance(value, Mapping):
    return {str(key): plain(entry) for key, entry in value.items()}
  if isinstance(value, np.ndarray | np.generic):
    return plain(value.tolist())
  if isinstance(value, list | tuple):
    return [plain(entry) for entry in value]
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value


def append(path: str | os.PathLike, *records: Record) -> None:
  """Appends records to a folder or a `.jsonl` file, and waits for the disk."""
  lines = ''.join(
    json.dumps(plain(record._asdict()), allow_nan=False) + '\n'
    for record in records
  )
  path = _file(path)
  with _storing(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open('a+b') as file:
      # Without locks, one write of whole lines must be enough.
      with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX)
      size = file.seek(0, os.SEEK_END)
      if size:
        file.seek(size - 1)
        if file.read(1) != b'\n':  # A killed process left half a line.
          lines = '\n' + lines
      file.write(lines.encode())
      file.flush()
      os.fsync(file.fileno())


def read(path: str | os.PathLike) -> list[Record]:
  """Returns the latest record of each cell, in the order of first lines.

  Args:
    path: Folder of a run, or a `.jsonl` or `.jsonl.gz` file.

  Raises:
    ConfigError: If there are no records, or a line is not a record.
  """
  path = _file(path)
  if not path.is_file():
    raise ConfigError(f'there are no records at {shown(str(path), 160)}.')
  try:
    with gzip.open(path) if path.suffix == '.gz' else path.open('rb') as file:
      content = file.read()
  except (OSError, EOFError, zlib.error) as error:
    raise ConfigError(
      f'{shortened(path, 160)} cannot be read ({error}); restore it.'
    ) from error
  return list(_latest(_parsed(content, path)).values())


class Reader:
  """Reads only the new records of a folder at every call."""

  def __init__(self, folder: str | os.PathLike):
    self._path = _file(folder)
    self._offset = 0
    self.latest: dict[tuple, Record] = {}

  def update(self) -> list[Record]:
    """Returns the records since the last call, and keeps the latest ones."""
    if not self._path.is_file():
      return []
    # On NFS, only a newly opened file shows the lines of other machines.
    with self._path.open('rb') as file:
      file.seek(self._offset)
      content = file.read()
    content = content[: content.rfind(b'\n') + 1]  # Half a line is left out.
    self._offset += len(content)
    records = list(_parsed(content, self._path))
    self.latest.update(_latest(records))
    return records


def _file(path: str | os.PathLike) -> pathlib.Path:
  path = pathlib.Path(path)
  is_file = path.name.endswith(('.jsonl', '.jsonl.gz'))
  return path if is_file else path / _RECORDS


def _latest(records: Iterable[Record]) -> dict[tuple, Record]:
  return {record.cell: record for record in records}


def _parsed(content: bytes, path: pathlib.Path) -> Iterator[Record]:
  """Yields the records of whole lines; half a line is ignored."""
  for number, line in enumerate(content.split(b'\n'), 1):
    # `line` is bytes, because a killed process may leave half a character.
    try:
      values = json.loads(line)
    except (ValueError, RecursionError):
      continue
    try:
      record = Record(**values)
      wrong = _wrong(record)
      if wrong:
        raise TypeError(f'its {wrong} is not valid')
    except TypeError as error:
      raise ConfigError(
        f'{shortened(path, 160)}, line {number}, is not a record '
        f'({shortened(error, 120)}); restore or delete that line.'
      ) from error
    yield record


def _wrong(record: Record) -> str | None:
  """Returns the name of a field with an impossible value, or `None`."""
  checks = {
    'study': isinstance(record.study, str),
    'case': isinstance(record.case, str),
    'seed': isinstance(record.seed, int | None),
    'key': isinstance(record.key, str | None),
    'status': isinstance(record.status, str) and record.status in STATUSES,
    'record': isinstance(record.record, dict),
  }
  return next((name for name, is_valid in checks.items() if not is_valid), None)


def write_arrays(folder, record: Record, arrays: Mapping[str, Any]) -> None:
  """Writes the small arrays of a cell, or removes old ones if it has none."""
  path = _place(folder, ARRAYS, record, '.npz')
  if not arrays:
    path.unlink(missing_ok=True)
    return
  with _aside(path) as aside, aside.open('xb') as file:
    np.savez_compressed(file, **arrays, **{_KEY: np.asarray(record.key)})


def read_arrays(folder, record: Record) -> dict[str, np.ndarray]:
  """Returns the arrays that belong to a record, {} if it has none.

  Raises:
    ConfigError: If the file is damaged, or is of a run with other settings.
  """
  path = _place(folder, ARRAYS, record, '.npz')
  if not path.is_file():
    return {}
  try:
    with np.load(path) as file:
      arrays = dict(file)
    key = arrays.pop(_KEY).item()
  # NumPy and its archives raise errors of many kinds for damaged bytes.
  except Exception as error:
    raise ConfigError(
      f'{shortened(path, 160)} cannot be read ({type(error).__name__}: '
      f'{shortened(error)}); restore the file, or run its cell again.'
    ) from error
  _check_key(path, key, record)
  return arrays


def write_draws(folder, record: Record, draws: Any) -> None:
  """Writes the draws of a cell, an `xarray.DataTree`, or removes old ones."""
  path = _place(folder, DRAWS, record, '.zarr')
  if draws is None:
    shutil.rmtree(path, ignore_errors=True)
    return
  import warnings

  draws = draws.copy()  # The copy has its own attributes.
  draws.attrs = {**draws.attrs, _KEY: record.key}
  with _aside(path) as aside, warnings.catch_warnings():
    warnings.simplefilter(
      'ignore'
    )  # Zarr warns about types without a specification.
    draws.to_zarr(str(aside))


def read_draws(folder, record: Record) -> Any:
  """Returns the draws of a record as an `xarray.DataTree`, or `None`."""
  path = _place(folder, DRAWS, record, '.zarr')
  if not path.is_dir():
    return None
  import xarray

  draws = xarray.open_datatree(path, engine='zarr')
  _check_key(path, draws.attrs.get(_KEY), record)
  return draws


def write_text(path: pathlib.Path, text: str) -> None:
  """Writes a file, whole or not at all."""
  with _aside(path) as aside:
    aside.write_text(text, encoding='utf-8')


def _check_key(path, key, record):
  if key != record.key:
    raise ConfigError(
      f'{shortened(path, 160)} belongs to a run with other settings (the key '
      f'of the file is {key}, the key of the record {record.key}). Run that '
      'case again, or restore the file.'
    )


def _place(folder, kind, record, suffix) -> pathlib.Path:
  place = pathlib.Path(folder) / kind / file_name(record.case)
  return place / f'{record.seed}{suffix}'


@contextlib.contextmanager
def _aside(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a path to write to, which becomes `path` when all is written."""
  # Processes on two machines may have the same number.
  aside = path.with_name(f'.{path.name}.{socket.gethostname()}.{os.getpid()}')
  with _storing(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
      _remove(aside)
      yield aside
      if path.is_dir():
        _remove(path)
      os.replace(aside, path)
    finally:
      _remove(aside)


def _remove(path):
  if path.is_dir() and not path.is_symlink():
    shutil.rmtree(path, ignore_errors=True)
  else:
    path.unlink(missing_ok=True)


@contextlib.contextmanager
def _storing(path):
  """Says in one sentence that a file cannot be written, and what to do."""
  try:
    yield
  # A path with a NUL character is a ValueError.
  except OSError as error:
    raise StorageError(
      f'{shown(str(path), 160)} cannot be written '
      f'({shortened(error.strerror or error)}). What finished before is kept: '
      'make room, or name another folder with --output, and run again.'
    ) from error
