"""JSON files of the project's own, read back: what is damaged is refused."""

import json

from experiments.framework.errors import ConfigError
from experiments.framework.errors import shortened

__all__ = ['read_json']


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
