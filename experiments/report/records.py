"""Records as rows for templates: what a study returned, and of which case."""

import functools
import gzip
import json
import pathlib

import numpy as np

__all__ = ['ROOT', 'digits', 'get', 'groups', 'median', 'rows', 'where']

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rows(study, *names):
  """Returns a dict for each record of a study, in the order of the runs.

  Args:
    study: Name of the file in `records`, without its ending.
    *names: Names of the parts of a case, which ' | ' separates.
  """
  return [
    {
      **record['record'],
      **dict(zip(names, record['case'].split(' | '), strict=False)),
      **{key: record[key] for key in ('case', 'seed', 'status', 'commit')},
      'error': record['error'],
    }
    for record in _read(study)
  ]


@functools.cache
def _read(study):
  path = ROOT / 'records' / f'{study}.jsonl'
  content = (
    path.read_bytes()
    if path.exists()
    else gzip.decompress(path.with_suffix('.jsonl.gz').read_bytes())
  )
  found = [json.loads(line) for line in content.split(b'\n') if line]
  return list({(r['case'], r['seed'], r['key']): r for r in found}.values())


def get(row, name):
  """Returns the value of a dotted name, such as `seconds.compile`."""
  for key in name.split('.'):
    row = row[key]
  return row


def groups(found, *names):
  """Returns (values, rows) of each combination of values, in order.

  Args:
    found: Rows.
    *names: By what they are grouped; one name gives its values alone.
  """
  by_key = {}
  for row in found:
    key = tuple(get(row, name) for name in names)
    by_key.setdefault(key if len(names) > 1 else key[0], []).append(row)
  return list(by_key.items())


def where(found, **values):
  """Returns the rows that have these values."""
  return [
    row for row in found if all(row.get(k) == v for k, v in values.items())
  ]


def median(found, name=None):
  """Returns the median of numbers, or of rows by the name of a value."""
  return np.median([get(row, name) if name else row for row in found])


def digits(value, spec):
  """Returns a number by a format; a dash for what is unknown."""
  return '-' if value is None else format(value, spec)
