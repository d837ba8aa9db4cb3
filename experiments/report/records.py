"""Records as rows for templates, with the parts of their cases."""

import functools
import pathlib

from experiments.run import store

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rows(study, *names):
  """Returns a dict for each case and seed of a study, in order of the runs.

  If records have several keys, the latest record of a case and seed counts.

  Args:
    study: Name of the file in `records`, without its ending.
    *names: Names of the parts of a case, which ' | ' separates. Digits become
      ints.
  """
  return [
    {
      **record.record,
      **dict(zip(names, _parts(record.case), strict=False)),
      'case': record.case,
      'seed': record.seed,
      'status': record.status,
      'commit': record.commit,
      'error': record.error,
    }
    for record in _read(study)
  ]


def _parts(case):
  parts = case.split(' | ')
  return [int(part) if part.isdigit() else part for part in parts]


@functools.cache
def _read(study):
  path = ROOT / 'records' / f'{study}.jsonl'
  found = store.read(path if path.exists() else path.with_suffix('.jsonl.gz'))
  return list({(record.case, record.seed): record for record in found}.values())


def groups(found, *names):
  """Returns (values, rows) of each combination of values, in order.

  Args:
    *names: Keys of the groups; a single name gives values, not tuples.
  """
  by_key = {}
  for row in found:
    key = tuple(row[name] for name in names)
    by_key.setdefault(key if len(names) > 1 else key[0], []).append(row)
  return list(by_key.items())
