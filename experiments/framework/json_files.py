"""JSON files of the project's own, read back: what is damaged is refused.

But for lines: half a line of a process that was killed is passed over.
"""

import contextlib
import fcntl
import json
import os
import warnings

from experiments.run.errors import ConfigError
from experiments.run.errors import shortened

__all__ = ['append_lines', 'parsed', 'read_json', 'read_lines']


def read_json(path):
  """Returns the value of a JSON file.

  Raises:
    ConfigError: if it cannot be read, with its path.
  """
  try:
    with open(path, encoding='utf-8') as file:
      return json.load(file)
  # Bad text and numbers of 5000 digits, and what nests too deeply.
  except (OSError, ValueError, RecursionError) as error:
    raise ConfigError(
      f'{shortened(path, 160)} cannot be read as JSON '
      f'({type(error).__name__}: {shortened(error)}); restore the file.'
    ) from error


def read_lines(path):
  """Returns the values of a file of JSON lines, [] if there is none.

  A line that a killed process left unfinished is passed over, and told.
  """
  content = path.read_bytes() if path.exists() else b''
  values = [value for _, value in parsed(content)]
  num_broken = sum(map(bool, content.split(b'\n'))) - len(values)
  if num_broken:
    warnings.warn(
      f'{shortened(path, 160)} has {num_broken} lines that are no JSON, as a '
      'killed process leaves them: they are passed over.',
      stacklevel=2,
    )
  return values


def parsed(content):
  """Yields the number and value of lines of JSON, given as bytes."""
  for number, line in enumerate(content.split(b'\n'), 1):
    # Bytes: a killed process may leave half a character.
    with contextlib.suppress(ValueError, RecursionError):
      yield number, json.loads(line)


def append_lines(path, *values, allow_nan=True):
  """Appends values to such a file, together; its folder is made.

  Several processes may append at once, and after one that was killed.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  lines = ''.join(json.dumps(v, allow_nan=allow_nan) + '\n' for v in values)
  with path.open('a+b') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    size = file.seek(0, os.SEEK_END)
    if size:
      file.seek(size - 1)
      if file.read(1) != b'\n':
        file.write(b'\n')
    file.write(lines.encode())
    file.flush()
    os.fsync(file.fileno())
