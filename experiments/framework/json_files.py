"""JSON files of the project's own, read back: what is damaged is refused."""

import json

from experiments.framework.errors import ConfigError
from experiments.framework.errors import shortened

__all__ = ['append_lines', 'read_json', 'read_lines']


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
  """Returns the values of a file of JSON lines, [] if there is none."""
  if not path.exists():
    return []
  lines = path.read_text(encoding='utf-8').splitlines()
  return [json.loads(line) for line in lines]


def append_lines(path, *values):
  """Appends values to such a file, together; its folder is made."""
  path.parent.mkdir(parents=True, exist_ok=True)
  with path.open('a', encoding='utf-8') as file:
    file.write(''.join(json.dumps(value) + '\n' for value in values))
