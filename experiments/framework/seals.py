"""What ties the record of a cell to its place, its config and its arrays.

A record that was edited, or is of another cell or run, does not fit its seal.
The seal guards against mix-ups, not against forgery: it holds no secret.
"""

import hashlib
import json
import os

from experiments.framework.errors import ConfigError
from experiments.framework.errors import listed
from experiments.framework.errors import shortened

__all__ = ['digest', 'file_digest', 'opened', 'sealed']

_KEY = 'seal'


def digest(values):
  """Returns the SHA-256 of anything JSON can hold, its keys in any order."""
  text = json.dumps(values, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path):
  """Returns the SHA-256 of a file, None if there is none."""
  if not os.path.exists(path):
    return None
  try:
    found = hashlib.sha256()
    with open(path, 'rb') as file:
      while block := file.read(2**20):
        found.update(block)
    return found.hexdigest()
  except OSError as error:
    raise ConfigError(
      f'{shortened(path, 160)} cannot be read ({shortened(error)}).'
    ) from error


def sealed(record, **place):
  """Returns the record with its seal.

  Args:
    record: a dict that JSON can hold.
    **place: what the record belongs to, by name: JSON values.
  """
  # As it will be read: tuples are lists then.
  record = json.loads(json.dumps(record))
  seal = {**place, 'record': digest(record)}
  return {**record, _KEY: seal}


def opened(values, path, **place):
  """Returns (record, its digest) of values that were read from a file.

  Args:
    values: of the file.
    path: of the file.
    **place: as it was given to `sealed`.

  Raises:
    ConfigError: if the seal is missing, or is of another place or record.
  """
  advice = 'restore the folder of that cell, or delete it and run with --resume'
  where = shortened(path, 160)
  seal = values.get(_KEY) if isinstance(values, dict) else None
  if not isinstance(seal, dict):
    raise ConfigError(
      f'{where} has no seal: it was edited, or an earlier version wrote it; '
      f'{advice}.'
    )
  record = {key: value for key, value in values.items() if key != _KEY}
  wanted = {**place, 'record': digest(record)}
  # As JSON: 1 and true are equal in Python.
  wrong = [k for k in wanted if digest(seal.get(k)) != digest(wanted[k])]
  if wrong or set(seal) != set(wanted):
    raise ConfigError(
      f'{where} does not fit its seal ({listed(wrong) or "unknown keys"}): it '
      f'was edited, or belongs to another cell or run; {advice}.'
    )
  return record, wanted['record']
