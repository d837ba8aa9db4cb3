"""The tables of docs/results/trajectory_length.md, made from the records.

  python -m experiments.documentation.trajectory_length

writes each between its two comments; a test compares.
"""

import collections
import json

import numpy as np

from experiments.documentation.made_tables import fill
from experiments.documentation.made_tables import page
from experiments.documentation.made_tables import table
from experiments.framework.json_files import read_json
from experiments.framework.json_files import read_lines

__all__ = ['with_tables']

_PAGE = page('trajectory_length')
_RECORDS = _PAGE.with_suffix('')
# Heading -> whether a range given is of that kind.
_KINDS = {
  'best L': lambda fewest, most: fewest == most,
  'best 1 to L': lambda fewest, most: fewest < most,
}


def with_tables(text):
  """Returns the page's text with the tables between their comments."""
  lines = read_lines(_RECORDS / 'lengths.jsonl')
  records = [r for r in lines if r['law'] != 'kept']
  of_maps = [r for r in records if r['is_map']]
  of_matrices = [r for r in records if not r['is_map']]
  tables = [
    _of_lengths(of_matrices, _least),
    _of_lengths(of_maps, _least),
    _of_lengths(of_matrices, lambda r: min(r['bulk'], r['tail'])),
    _of_lengths(of_matrices, lambda r: r['squares']),
    _of_momenta(lines),
    _of_cost(),
  ]
  return fill(text, 'trajectory_length', tables)


def _least(record):
  return min(record['bulk'], record['tail'], record['squares'])


def _of_lengths(records, measure):
  """Returns lines of a target: the learned range against the best given ones.

  Args:
    records: Of the study.
    measure: Record -> effective draws per 1000 gradients.
  """
  headings = [
    *('Target', 'Ranges learned', 'in gradients', 'Learned: mean (by seed)'),
    *(heading[0].upper() + heading[1:] for heading in _KINDS),
    *(f'Learned over {heading}' for heading in _KINDS),
  ]
  rows = []
  for target in dict.fromkeys(r['target'] for r in records):
    values, learned = collections.defaultdict(list), []
    for record in records:
      if record['target'] == target:
        values[record['law'] and tuple(record['law'])].append(measure(record))
        if record['law'] is None:
          learned.append(record)
    if learned:
      rows.append(_row(target, learned, values))
  return table(headings, rows)


def _row(target, records, values):
  """Returns cells; `values`: range, or `None` for learned -> by seed."""
  means = {law: np.mean(found) for law, found in values.items()}
  learned = means.pop(None)
  best = [
    max((law for law in means if is_kind(*law)), key=means.get)
    for is_kind in _KINDS.values()
  ]
  return [
    target,
    ', '.join('{} to {}'.format(*r['range']) for r in records),
    f'{np.mean([r["gradients_of_adaptation"] for r in records]):.0f}',
    f'{learned:.1f} ({", ".join(f"{v:.0f}" for v in values[None])})',
    *(f'{means[law]:.1f} (L = {law[1]})' for law in best),
    *(f'{learned / means[law]:.2f}' for law in best),
  ]


def _of_momenta(records):
  """Returns lines of a target: kept momenta against those drawn anew."""
  headings = [
    *('Target', 'Drawn anew: mean (by seed)', 'Kept: mean (by seed)'),
    *('Kept over drawn anew (by seed)', 'Leapfrog steps', 'Accepted'),
    'Bulk and tail alone',
  ]
  rows = []
  for target in dict.fromkeys(r['target'] for r in records):
    anew, kept = (
      {
        r['seed']: r
        for r in records
        if r['target'] == target and r['law'] == law
      }
      for law in (None, 'kept')
    )
    if kept:
      rows.append([target, *_compared(anew, kept)])
  return table(headings, rows)


def _compared(anew, kept):
  """Returns the cells of a target; both: seed -> record."""
  seeds = sorted(kept)
  cells, values, narrow = [], [], []
  for records in (anew, kept):
    found = [_least(records[seed]) for seed in seeds]
    by_seed = ', '.join(f'{v:.0f}' for v in found)
    cells.append(f'{np.mean(found):.1f} ({by_seed})')
    values.append(found)
    narrow.append(
      np.mean([min(records[s]['bulk'], records[s]['tail']) for s in seeds])
    )
  ratios = ', '.join(f'{k / a:.2f}' for a, k in zip(*values))
  return [
    *cells,
    f'{np.mean(values[1]) / np.mean(values[0]):.2f} ({ratios})',
    ', '.join('{} to {}'.format(*kept[seed]['range']) for seed in seeds),
    f'{np.mean([kept[seed]["accepted"] for seed in seeds]):.2f}',
    f'{narrow[1] / narrow[0]:.2f}',
  ]


def _of_cost():
  """Returns lines of a target: time ratios of frozen steps, and compiling."""
  records = read_json(_RECORDS / 'cost.json')
  laws = next(iter(records.values()))['learned_over_given']
  names = ['{} to {}'.format(*json.loads(law)) for law in laws]
  head = ['Target', *names, 'Seconds to compile: learned', 'given', 'ratio']
  rows = []
  for name, record in records.items():
    seconds = record['compile_seconds']
    cells = [
      name,
      *(
        '{median:.3f} ({lower:.3f}, {upper:.3f})'.format(**ratio)
        for ratio in record['learned_over_given'].values()
      ),
      *(f'{seconds[kind]:.1f}' for kind in ('learned', 'given')),
      f'{record["compile_ratio"]:.2f}',
    ]
    rows.append(cells)
  return table(head, rows)


if __name__ == '__main__':
  _PAGE.write_text(with_tables(_PAGE.read_text()))
