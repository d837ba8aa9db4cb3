"""The tables of docs/results/outlook.md, from the records.

  python -m experiments.documentation.outlook

writes them between their comments, which a test compares.
"""

import collections

import numpy as np

from experiments.documentation.made_tables import fill
from experiments.documentation.made_tables import page
from experiments.documentation.made_tables import table
from experiments.framework.json_files import read_lines

__all__ = ['with_tables']

_PAGE = page('outlook')
_MOMENTA = {
  'default': 'HMC, learned range',
  'HMC, best of its grid': 'HMC, best of a grid for each target',
  'kept, L = 1': "kept momentum, L = 1, Neal's uniform",
  'kept, L = 2': "kept momentum, L = 2, Neal's uniform",
  'kept, L = 1, uniform drawn anew': 'kept momentum, L = 1, fresh uniform',
  'kept, best of its grid': 'kept momentum, best of a grid for each target',
}
_MIXTURES = {
  'default': 'HMC, learned range, Fisher factor',
  'most': 'upper end, Fisher factor',
  '1 and most': '1 and upper end, Fisher factor',
  'most and twice': 'upper end and twice as many, Fisher factor',
  'speed, most': 'upper end, speed factor',
  'speed, 1 and most, one factor': '1 and upper end, speed factor of the upper',
  'speed, 1 and most, a factor each': '1 and upper end, speed factor each',
}
_DEFAULT = 'default'


def with_tables(text):
  """Returns the page's text with the tables between their comments."""
  records = read_lines(_PAGE.with_suffix('.jsonl'))
  found = collections.defaultdict(dict)
  for record in records:
    if record['way'] != 'grid':
      found[record['way'], record['target']][record['seed']] = record
  targets = list(dict.fromkeys(target for _, target in found))
  momenta, mixtures = (
    _of_ways(ways, targets, found) for ways in (_MOMENTA, _MIXTURES)
  )
  return fill(
    text, 'outlook', [momenta, _of_settings(targets, found), mixtures]
  )


def _of_ways(ways, targets, found):
  """Returns lines of a way: effective draws by target, over the default's."""
  rows = []
  for way, title in ways.items():
    cells = [
      _cell(found[way, target], found[_DEFAULT, target]) for target in targets
    ]
    rows.append([title, *cells])
  return table(['', *targets], rows)


def _cell(records, defaults):
  """Returns the mean, and the ratios to the default's: mean, least, most."""
  if not records:
    return ''
  values = {seed: _least(record) for seed, record in records.items()}
  mean = np.mean([*values.values()])
  if records == defaults:
    return (
      f'{mean:.0f} ({min(values.values()):.0f} to {max(values.values()):.0f})'
    )
  base = {seed: _least(record) for seed, record in defaults.items()}
  ratios = [value / base[seed] for seed, value in values.items()]
  ratio = mean / np.mean([*base.values()])
  return f'{mean:.0f}: **{ratio:.2f}** ({min(ratios):.2f} to {max(ratios):.2f})'


def _of_settings(targets, found):
  """Returns lines of a target: lengths learned, and settings of the grids."""
  head = (
    *('Target', 'Ranges learned', 'HMC, best of its grid', 'accepted'),
    *('Kept momentum, best of its grid: L', 'accepted', 'damping'),
    *('Kept momentum, L = 1: accepted', 'damping', 'share kept'),
  )
  rows = []
  for target in targets:
    default = found[_DEFAULT, target].values()
    cells = [target, ', '.join(_range(r['components'][0]) for r in default)]
    for way in ('HMC, best of its grid', 'kept, best of its grid'):
      setting = next((r['setting'] for r in found[way, target].values()), None)
      cells += (
        [_range(setting['lengths'][0]), f'{setting["accept"]:g}']
        if setting
        else ['', '']
      )
      if way.startswith('kept'):
        cells.append(f'{setting["damping"]:g}' if setting else '')
    rule = [*found['kept, L = 1', target].values()]
    kept = np.mean([record['persistence'] for record in rule])
    setting = rule[0]['setting']
    cells += [
      f'{setting["accept"]:g}',
      f'{setting["damping"]:g}',
      f'{kept:.2f}',
    ]
    rows.append(cells)
  return table(head, rows)


def _range(pair):
  return str(pair[0]) if pair[0] == pair[1] else '{} to {}'.format(*pair)


def _least(record):
  return min(record['bulk'], record['tail'], record['squares'])


if __name__ == '__main__':
  _PAGE.write_text(with_tables(_PAGE.read_text()))
