"""The tables of docs/results/front_door.md, made from the records.

  python -m experiments.documentation.front_door

writes each between its two comments; a test compares.
"""

import collections

import numpy as np

from experiments.documentation.made_tables import fill
from experiments.documentation.made_tables import page
from experiments.documentation.made_tables import table
from experiments.framework.json_files import read_lines

__all__ = ['is_far', 'with_tables']

_PAGE = page('front_door')
_RECORDS, _FULL_PATH = (
  _PAGE.with_suffix('') / f'{name}.jsonl' for name in ('runs', 'full_path')
)
_FAR = 4.0  # Standard errors.
_VOUCHED = 'z_vouched'  # Of moments whose own error the tails tell.
_SHARE = 0.8  # Of runs that make a target one where it works.


def with_tables(text):
  """Returns the page's text with the tables between their comments."""
  records = read_lines(_RECORDS)
  full_path = _of_targets(read_lines(_FULL_PATH))
  tables = [_of_all(records), _of_targets(records), full_path]
  return fill(text, 'front_door', tables)


def _of_all(records):
  """Returns lines on all runs together."""
  by_target = _by_target(records)
  works = [
    name
    for name, found in by_target.items()
    if np.mean([_passes(r) for r in found]) >= _SHARE
  ]
  converged = [r for r in records if r['converged']]
  known = [r for r in converged if r['z'] is not None]
  far = [r for r in known if is_far(r)]
  told = [r for r in known if _VOUCHED in r]
  runs = sorted({len(found) for found in by_target.values()})
  rows = [
    ('Targets, runs of each', f'{len(by_target)}, {_span(runs)}'),
    (
      'Targets where four runs of five pass the gates and are right',
      f'{len(works)}',
    ),
    ('Runs called converged', f'{len(converged)} of {len(records)}'),
    (
      f'of them more than {_FAR:.0f} standard errors off',
      f'{len(far)} of {len(known)}',
    ),
    (
      'so far off in moments whose error the verdict vouches for, where the '
      'records tell',
      f'{sum(is_far(r, _VOUCHED) for r in told)} of {len(told)}',
    ),
    (
      "Runs called converged that the panel's gates do not pass",
      str(sum(not r['passes_gates'] for r in converged)),
    ),
  ]
  return table(('', ''), rows)


def _of_targets(records):
  """Returns a line for each target."""
  rows = []
  for name, found in _by_target(records).items():
    good = [r for r in found if r['converged']]
    choices = collections.Counter(r['choice'] for r in found).most_common()
    rows.append(
      (
        name,
        str(found[0]['event_size']),
        f'{len(good)}/{len(found)}',
        *_errors(good, 'z'),
        *_errors(good, _VOUCHED),
        _unvouched(good),
        ', '.join(f'{choice} ({count})' for choice, count in choices),
        f'{np.median([r["num_gradients"] for r in found]):,.0f}',
        f'{np.median([r["seconds"] for r in found]):.0f}',
      )
    )
  head = (
    'Target',
    'd',
    'Converged',
    f'of them beyond {_FAR:.0f} standard errors',
    'Worst error of these, in standard errors',
    f'Beyond {_FAR:.0f} in moments vouched for',
    'Worst error of such moments',
    'Moments not vouched for',
    'Structure found',
    'Gradients of a chain',
    'Seconds',
  )
  return table(head, rows)


def _by_target(records):
  found = collections.defaultdict(list)
  for record in records:
    found[record['target']].append(record)
  return found


def _errors(records, name):
  """Returns how many are far and the worst error; '-' where it is not told."""
  if not all(name in r for r in records):
    return '-', '-'
  known = [r for r in records if r[name] is not None]
  worst = [abs(r[name]) for r in known]
  if not known:
    return '-', '-'
  return str(sum(is_far(r, name) for r in known)), f'{max(worst):.1f}'


def _unvouched(records):
  """Returns how many moments of a run are not vouched for, of how many."""
  if not records or not all('num_vouched' in r for r in records):
    return '-'
  total = records[0]['num_moments']
  counts = sorted(total - r['num_vouched'] for r in records)
  return f'{_span(counts)} of {total}'


def is_far(record, name='z'):
  """Whether a record's worst error is known, and beyond chance."""
  return record[name] is not None and abs(record[name]) > _FAR


def _passes(record):
  return record['passes_gates'] and not is_far(record)


def _span(numbers):
  return '-'.join(str(n) for n in sorted({numbers[0], numbers[-1]}))


if __name__ == '__main__':
  _PAGE.write_text(with_tables(_PAGE.read_text()))
