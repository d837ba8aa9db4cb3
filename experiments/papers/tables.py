"""Cells averaged over repeats, in the layout of the papers' tables.

Method | Time(s) | Accept rate | ESS (min, med, max) | Min ESS/s (1 st.d.) | ...
"""

import re
import string
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.run.store import Record

# What Markdown takes for markup.
_MARKUP = re.compile(r'([\\`*<>\[\]|$#&~]|(?<!\w)_|_(?!\w))')
# Heading -> how the numbers of `average` are shown in its cells.
COLUMNS = {
  'Time(s)': '{seconds:.1f}',
  'Accept rate': '{accept_rate:.3f}',
  'ESS (min, med, max)': '({ess_min:.1f}, {ess_median:.1f}, {ess_max:.1f})',
  'ESS q^2, log pi (min)': '{ess_squared:.1f}, {ess_log_prob:.1f}',
  'Min ESS/s (1 st.d.), median': (
    '{min_ess_per_second:.2f} ({min_ess_per_second_sd:.2f}), '
    '{median_ess_per_second:.2f}'
  ),
  'Sampling alone: ESS/s (min, med)': (
    '{min_ess_per_sampling_second:.2f}, {median_ess_per_sampling_second:.2f}'
  ),
  'ESS/gradient (min, med)': (
    '{min_ess_per_gradient:.4f}, {median_ess_per_gradient:.4f}'
  ),
  'Bulk, tail ESS (min)': '{ess_bulk:.1f}, {ess_tail:.1f}',
  'R-hat (max, med)': '{rhat_max:.3f}, {rhat_median:.3f}',
  'Learned beta, condition': '{entropy_weight:.2f}, {condition_number:.2f}',
  'Learned delta': '{step_size:.3g}',
  'Likelihood, gradient calls': '{num_target_calls:.0f}, {num_gradients:.0f}',
  'Compile(s)': '{compile_seconds:.1f}',
  'Repeats': '{num_finished}',
}
# Columns that are shown if some method learns one delta.
LATENT = ('Learned delta', 'Likelihood, gradient calls')
MOMENTS = (
  'Quantity',
  'Mean, known',
  'Deviation, known',
  'z of mean',
  'z of deviation',
)
_MOMENTS_TITLE = 'Against the known posterior, in Monte Carlo standard errors'
# Name in `average`: path in the record of a cell.
_MEANS = {
  'accept_rate': 'accept_rate',
  'ess_min': 'ess.min',
  'ess_median': 'ess.median',
  'ess_max': 'ess.max',
  'ess_squared': 'ess_squared.min',
  'ess_log_prob': 'ess_log_prob',
  'min_ess_per_second': 'min_ess_per_second',
  'median_ess_per_second': 'median_ess_per_second',
  'min_ess_per_sampling_second': 'min_ess_per_sampling_second',
  'median_ess_per_sampling_second': 'median_ess_per_sampling_second',
  'min_ess_per_gradient': 'min_ess_per_gradient',
  'median_ess_per_gradient': 'median_ess_per_gradient',
  'ess_bulk': 'ess_bulk.min',
  'ess_tail': 'ess_tail.min',
  'entropy_weight': 'entropy_weight',
  'condition_number': 'learned_condition_number',
  'step_size': 'step_size',
  'compile_seconds': 'seconds.compile',
}


def average(records: Iterable[Record]) -> dict[str, dict[str, Any]]:
  """Returns {case: numbers}, each number its mean over finished repeats.

  A number that no repeat has is `None`.
  """
  by_case: dict[str, list[Record]] = {}
  for record in records:
    by_case.setdefault(record.case, []).append(record)
  return {case: _averaged(found) for case, found in by_case.items()}


def _averaged(records):
  finished = [one.record for one in records if one.status == 'finished']
  errors = [one.error for one in records if one.status != 'finished']
  means = {name: _mean(_at(finished, path)) for name, path in _MEANS.items()}
  speeds = _at(finished, 'min_ess_per_second')
  return {
    **means,
    'seconds': _total(finished, 'seconds.adaptation', 'seconds.sampling'),
    'min_ess_per_second_sd': (
      float(np.std(speeds, ddof=1)) if len(speeds) > 1 else None
    ),
    'rhat_max': _mean(_rhats(finished, 'rhat_max')),
    'rhat_median': _mean(_rhats(finished, 'rhat_median')),
    **{
      name: _total(finished, f'calls.adaptation.{key}', f'calls.sampling.{key}')
      for name, key in (
        ('num_target_calls', 'target'),
        ('num_gradients', 'gradient'),
      )
    },
    'num_finished': len(finished),
    'num_failed': len(errors),
    'num_singular': sum(_at(finished, 'is_factor_singular')),
    'error': ' '.join(errors[0].split())[:120] if errors else None,
  }


def _at(records, path):
  """Returns the known values at a dotted path; older records lack some."""
  values = []
  for value in records:
    for key in path.split('.'):
      value = None if value is None else value.get(key)
    if value is not None:
      values.append(value)
  return values


def _mean(values):
  return float(np.mean(values)) if values else None


def _rhats(records, key):
  """Returns the values of a key; null stands for an infinite value."""
  found = [record[key] for record in records if key in record]
  return [np.inf if value is None else value for value in found]


def _total(records, *paths):
  """Returns the sum of the means at some paths, `None` if one is unknown."""
  means = [_mean(_at(records, path)) for path in paths]
  return None if None in means else sum(means)


class _Numbers(string.Formatter):
  """Shows a dash for an unknown number."""

  def format_field(self, value, spec):
    if value is None:
      return '-'
    # The R-hat of chains that never move is huge and has no meaning.
    if spec == '.3f' and value >= 1e3:
      return '> 1000'
    return super().format_field(value, spec)


def columns(rows: Iterable[Mapping[str, Any]]) -> list[str]:
  """Returns the headings that a table of averaged cases has."""
  is_latent = any(row['step_size'] is not None for row in rows)
  return [name for name in COLUMNS if is_latent or name not in LATENT]


def cells(row: Mapping[str, Any], names: Sequence[str]) -> list[str]:
  """Returns the texts of an averaged case in the columns of these names."""
  show = _Numbers().vformat
  found = {name: show(COLUMNS[name], (), row) for name in names}
  for name, cell in found.items():
    found[name] = cell.replace(' (-)', '')  # One repeat has no deviation.
  if row['num_singular']:
    singular = f'{row["num_singular"]} singular'
    beta, _, condition = found['Learned beta, condition'].partition(', ')
    if condition == '-':
      condition = singular
    else:
      condition += f' ({singular})'
    found['Learned beta, condition'] = f'{beta}, {condition}'
  if row['num_failed']:
    found['Repeats'] += f' (+ {row["num_failed"]} failed)'
  return list(found.values())


def moment_cells(moments: Mapping[str, Any]) -> list[str]:
  """Returns the texts of one quantity, in the order of `MOMENTS`."""
  if 'mean' in moments:
    pairs = [
      f'{moments[name]:.4f}, {moments[f"known_{name}"]:.4f}'
      for name in ('mean', 'deviation')
    ]
  else:
    pairs = [f'worst of {moments["size"]}', '-']
  scores = [moments['worst_mean_z'], moments['worst_deviation_z']]
  shown = ['-' if z is None else f'{z:.1f}' for z in scores]
  return [moments['quantity'], *pairs, *shown]


def to_markdown(title: str, records: Sequence[Record]) -> str:
  """Returns a heading, a table, failures, and errors of known moments."""
  rows = average(records)
  names = columns(rows.values())
  lines = []
  for label, row in rows.items():
    shown = cells(row, names)
    if not row['num_finished']:
      shown = ['failed', *[''] * (len(names) - 2), shown[-1]]
    lines.append([in_markdown(label), *shown])
  text = f'## {title}\n\n{table(["Method", *names], lines)}\n'
  for label, row in rows.items():
    if row['error']:
      text += in_markdown(f'\n{label} failed: {row["error"]}\n')
  moments = [
    [in_markdown(one.case), *moment_cells({**found, 'quantity': quantity})]
    for one in records
    for quantity, found in (one.record.get('moments') or {}).items()
  ]
  if moments:
    found = table(['Method', *MOMENTS], moments)
    text += f'\n{_MOMENTS_TITLE}:\n\n{found}\n'
  return text


def in_markdown(text: str) -> str:
  """Returns Markdown that shows a text as it is, also in a table."""
  return _MARKUP.sub(r'\\\1', text)


def table(head: Iterable[str], lines: Iterable[Iterable[Any]]) -> str:
  """Returns a table in Markdown."""
  head = list(head)
  lines = [head, ['---'] * len(head), *lines]
  return '\n'.join(f'| {" | ".join(map(str, cells))} |' for cells in lines)
