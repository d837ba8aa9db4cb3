"""The tables of docs/results/geometry.md, made from the records.

  python -m experiments.documentation.geometry

writes each between its two comments; a test compares.
"""

import numpy as np

from experiments.documentation.made_tables import fill
from experiments.documentation.made_tables import page
from experiments.documentation.made_tables import table
from experiments.framework.json_files import read_json
from experiments.framework.json_files import read_lines
from experiments.panel.cells import CellFile
from experiments.panel.summary import least_ess

__all__ = ['NAMES', 'with_tables']

_PAGE = page('geometry')
_RECORDS = _PAGE.with_suffix('')
_PANEL = _PAGE.with_name('inference_gym') / 'summary.json'
_SHOWN = (250, 1000, 4000, 16000)  # Gradients of an adaptation.
NAMES = {
  'BrownianMotionUnknownScalesMissingMiddleObservations': 'Brownian motion',
  'stochastic_volatility_100_centered': 'S&P 500, 100 days, centered',
}
_HEAD = (
  'Target',
  'Method',
  'Converged',
  'of them beyond 4 standard errors',
  'Min ESS per 1000 gradients',
  'per second',
)
_MOST_LISTED = 5  # Passes of ten that make a rival.
_PARTS = {
  'all': 'map, then speed measure',
  'all_path': 'map for paths, then speed measure',
  'without_map': 'Fisher start, then speed measure',
  'without_fisher': 'speed measure alone',
  'without_speed': 'map alone',
  'without_speed_path': 'map for paths alone',
  'fisher': 'Fisher divergence alone',
}
_FISHER = 'Fisher-divergence HMC-5'  # Its cells are those of 'fisher'.
_PARTS_HEAD = (
  *('Target', 'Learned by', 'Converged', _HEAD[3], 'Largest R-hat, median'),
  *('Largest error in standard errors, median', _HEAD[4]),
)


def with_tables(text):
  """Returns the page's text with the tables between their comments."""
  return fill(
    text, 'geometry', [_of_panel(), _of_starts(), _of_fits(), _of_parts()]
  )


def _of_panel():
  """Returns lines of a target and a method: passes, ESS, worst z, seconds."""
  records = CellFile(_RECORDS).records()
  methods = list(dict.fromkeys(r['method'] for r in records))
  rows = []
  for target in dict.fromkeys(r['target'] for r in records):
    for method in methods:
      found = [
        r for r in records if (r['target'], r['method']) == (target, method)
      ]
      if found:
        rows.append(_row(target, method, found))
    rows.append(_rival(target))
  return table(_HEAD, rows)


def _row(target, method, records):
  finished = [r for r in records if r['status'] == 'finished']
  good = [r for r in finished if not r['missed']]
  right = [r for r in good if not r['is_biased']]
  return [
    NAMES.get(target, target),
    method,
    f'{len(good)}/{len(records)}',
    str(len(good) - len(right)) if good else '-',
    _median([1000 * least_ess(r) / r['calls']['sampling']['gradient']
             for r in right]),
    _median([least_ess(r) / _seconds(r) for r in right]),
  ]  # fmt: skip


def _seconds(record):
  return record['seconds']['adaptation'] + record['seconds']['sampling']


def _median(numbers):
  if not numbers:
    return '-'
  number = np.median(numbers)
  return f'{number:.0f}' if number >= 100 else f'{number:.2g}'


def _rival(target):
  """Returns the cells of the panel's best other sampler per gradient."""
  summary = read_json(_PANEL)
  rivals = [
    pair
    for pair in summary
    if pair['target'] == target
    and pair['outcomes']['passed'] >= _MOST_LISTED
    and pair.get('min_ess_per_gradient')
  ]
  name = NAMES.get(target, target)
  if not rivals:
    nobody = f'*the panel: none passes in {_MOST_LISTED} of 10*'
    return [name, nobody, *[''] * 4]
  best = max(rivals, key=lambda pair: pair['min_ess_per_gradient']['median'])
  return [
    name,
    f'*best of the panel: {best["method"]}*',
    f'{best["outcomes"]["passed"] + best["outcomes"]["biased"]}/10',
    str(best['outcomes']['biased']),
    f'{best["min_ess_per_gradient"]["median"]:.3g}',
    _rate(best.get('min_ess_per_second')),
  ]


def _rate(interval):
  return f'{interval["median"]:.0f}' if interval else '-'


def _of_starts():
  """Returns lines of a structure: least effective sizes by adaptation."""
  rows = []
  records = read_lines(_RECORDS / 'fisher_start.jsonl')
  for case in dict.fromkeys(tuple(r['case']) for r in records):
    structure, size, condition, rule = case
    cells = [f'{structure}, d = {size}, {condition:.0e}', rule]
    for num_gradients in _SHOWN:
      found = [
        1000 * r['min_ess_per_gradient']
        for r in records
        if (tuple(r['case']), r['num_gradients']) == (case, num_gradients)
      ]
      cells.append(_median(found))
    rows.append(cells)
  head = ['Covariance, condition', 'Learned by', *map(str, _SHOWN)]
  return table(head, rows)


def _of_fits():
  """Returns lines of a structure: seconds of adapting and of frozen steps."""
  rows = []
  for record in read_lines(_RECORDS / 'fit_cost.jsonl'):
    name, size = record['case']
    steps = record['num_steps'] / 1000.0
    cells = [
      f'{record[key] / steps:.2f}'
      for key in ('seconds_adapting', 'seconds_frozen')
    ]
    rows.append([name, str(size), *cells, f'{record["share_of_learning"]:.0%}'])
  head = ('Structure', 'd', 'Adapting', 'Frozen', 'Share of learning')
  return table(head, rows)


def _of_parts():
  """Returns lines of a target and of what adapts: the ablation."""
  records = read_lines(_RECORDS / 'ablation.jsonl')
  targets = {r['target'] for r in records}
  cells = [
    {**r, 'method': 'fisher'}
    for r in CellFile(_RECORDS).records()
    if r['method'] == _FISHER and r['target'] in targets
  ]
  records += cells
  rows = []
  for target in dict.fromkeys(r['target'] for r in cells):
    for method, parts in _PARTS.items():
      found = [
        r for r in records if (r['target'], r['method']) == (target, method)
      ]
      if found:
        rows.append(_row_of_parts(target, parts, found))
  return table(_PARTS_HEAD, rows)


def _row_of_parts(target, parts, records):
  *cells, min_ess, _ = _row(target, parts, records)
  finished = [r for r in records if r['status'] == 'finished']
  rhat = np.median([r['rhat_max'] or np.inf for r in finished])
  error = np.median([abs(r['z']['worst']) for r in finished])
  return [*cells, f'{rhat:.3f}', f'{error:.1f}', min_ess]


if __name__ == '__main__':
  _PAGE.write_text(with_tables(_PAGE.read_text()))
