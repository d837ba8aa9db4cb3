"""The records of a panel: one line of JSON for each cell, only appended.

  <folder>/cells.jsonl      the latest line of a cell counts
  <folder>/cells.jsonl.gz   earlier lines, as they are kept in the repository:
                            gzip -9nc cells.jsonl >> cells.jsonl.gz

Several processes may append at once. A line that a killed process left
unfinished is passed over.
"""

import datetime
import gzip
import math
import pathlib
import zlib

from experiments.framework.json_files import append_lines
from experiments.framework.json_files import parsed
from experiments.framework.outputs import storing
from experiments.run.errors import ConfigError
from experiments.run.errors import shortened

__all__ = ['CellFile', 'DEFAULT_OUTPUT']

DEFAULT_OUTPUT = (
  pathlib.Path(__file__).resolve().parents[2]
  / 'docs'
  / 'results'
  / 'inference_gym'
)
_NUM_DIGITS = 6


class CellFile:
  """The records in a folder; holds no state but its path."""

  def __init__(self, folder):
    self.folder = pathlib.Path(folder)
    self.path = self.folder / 'cells.jsonl'
    self.packed = self.folder / 'cells.jsonl.gz'

  def append(self, record):
    """Writes one record, whole or not at all."""
    now = datetime.datetime.now(datetime.timezone.utc)
    record = {**record, 'written': now.isoformat(timespec='seconds')}
    with storing(self.path):
      append_lines(self.path, _short(record), allow_nan=False)

  def records(self):
    """Returns the latest record of each cell and key, in the file's order."""
    latest = {}
    for path, opened in ((self.packed, gzip.open), (self.path, open)):
      for record in _read(path, opened):
        name = [record[k] for k in ('target', 'method', 'seed', 'key')]
        latest[tuple(name)] = record
    return list(latest.values())


def _read(path, opened):
  """Yields the records of a file; none where there is no file."""
  if not path.is_file():
    return
  try:
    with opened(path, 'rb') as file:
      content = file.read()
  except (EOFError, zlib.error, gzip.BadGzipFile) as error:
    raise ConfigError(
      f'{shortened(path, 160)} is broken ({error}); restore it.'
    ) from error
  for number, record in parsed(content):
    if not _is_record(record):
      raise ConfigError(
        f'{shortened(path, 160)}, line {number}, is no record of a cell; '
        'restore or delete that line.'
      )
    yield record


def _is_record(value):
  """Returns whether a line tells of which cell it is, and what became of it."""
  names = ('target', 'method', 'key', 'gates', 'status')
  return (
    isinstance(value, dict)
    and all(isinstance(value.get(name), str) for name in names)
    and isinstance(value.get('seed'), int)
  )


def _short(value):
  """Returns nested values with floats in a few digits: thousands are kept."""
  if isinstance(value, dict):
    return {key: _short(entry) for key, entry in value.items()}
  if isinstance(value, list | tuple):
    return [_short(entry) for entry in value]
  if isinstance(value, float) and math.isfinite(value):
    return float(f'{value:.{_NUM_DIGITS}g}')
  return value
