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

__all__ = ['with_tables']

_PAGE = page('front_door')
_RECORDS = _PAGE.with_suffix('') / 'runs.jsonl'
_FAR = 4.0  # Standard errors.
_SHARE = 0.8  # Of runs that make a target one where it works.


def with_tables(text):
  """Returns the page's text with the tables between their comments."""
  records = read_lines(_RECORDS)
  return fill(text, 'front_door', [_of_all(records), _of_targets(records)])


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
  far = [r for r in known if _is_far(r)]
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
        str(sum(_is_far(r) for r in good)) if good else '-',
        _worst_z(good),
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


def _worst_z(records):
  known = [abs(r['z']) for r in records if r['z'] is not None]
  return f'{max(known):.1f}' if known else '-'


def _is_far(record):
  return record['z'] is not None and abs(record['z']) > _FAR


def _passes(record):
  return record['passes_gates'] and not _is_far(record)


def _span(numbers):
  return '-'.join(str(n) for n in sorted({numbers[0], numbers[-1]}))


if __name__ == '__main__':
  _PAGE.write_text(with_tables(_PAGE.read_text()))
