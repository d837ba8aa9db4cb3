"""Cells joined over repeats, in the layout of the papers' tables.

Method | Time(s) | Accept rate | ESS (min, med, max) | Min ESS/s (1 st.d.) | ...
"""

import html
from typing import NamedTuple
from typing import Optional

import numpy as np
import rich.box
import rich.table
import rich.text

from experiments.framework.labels import in_markdown

__all__ = [
  'Row',
  'header',
  'join',
  'number',
  'to_html',
  'to_markdown',
  'to_rich',
]

HEADER = (
  'Method',
  'Time(s)',
  'Accept rate',
  'ESS (min, med, max)',
  'ESS q^2, log pi (min)',
  'Min ESS/s (1 st.d.), median',
  'Sampling alone: ESS/s (min, med)',
  'ESS/gradient (min, med)',
  'Bulk, tail ESS (min)',
  'R-hat (max, med)',
  'Learned beta, condition',
  'Compile(s)',
  'Repeats',
)
# Before the last two, where some method has one delta to learn.
LATENT_HEADER = ('Learned delta', 'Likelihood, gradient calls')
_NUM_LAST = 2
# What a terminal of 80 columns has room for; the others are in the report.
CONSOLE_HEADER = (
  'Method',
  'Time(s)',
  'Accept',
  'Min ESS',
  'Min ESS/s',
  'R-hat',
  'Repeats',
)


class Row(NamedTuple):
  """One method, its numbers averaged over finished repeats."""

  label: str
  num_finished: int
  num_failed: int
  seconds: Optional[float] = None
  compile_seconds: Optional[float] = None
  accept_rate: Optional[float] = None
  # (min, median, max) over coordinates.
  ess: tuple = (None, None, None)
  min_ess_per_second: Optional[float] = None
  min_ess_per_second_sd: Optional[float] = None
  median_ess_per_second: Optional[float] = None
  # (min, median) over coordinates, without the time of adaptation.
  ess_per_sampling_second: tuple = (None, None)
  # (min, median) over coordinates.
  ess_per_gradient: tuple = (None, None)
  # Smallest of the squares, and of log pi.
  ess_squared: Optional[float] = None
  ess_log_prob: Optional[float] = None
  ess_bulk: Optional[float] = None
  ess_tail: Optional[float] = None
  # (max, median) over coordinates.
  rhat: tuple = (None, None)
  # Entropy weight after adaptation; None for methods without one.
  entropy_weight: Optional[float] = None
  # Of the target seen through the learned factor, where its moments are known.
  condition_number: Optional[float] = None
  # Repeats whose learned factor has no inverse, and so no such number.
  num_singular: int = 0
  # delta of a sampler of latent Gaussian models.
  step_size: Optional[float] = None
  # (likelihood, gradient) in all steps of all chains.
  calls: tuple = (None, None)
  error: Optional[str] = None

  def cells(self, is_latent=False):
    """Returns the row as strings, in the order of `HEADER`.

    Args:
      is_latent: whether those of `LATENT_HEADER` are among them.
    """
    cells = self._cells()
    if not is_latent:
      return cells
    own = ['', '']
    if self.num_finished:
      step = '-' if self.step_size is None else f'{self.step_size:.3g}'
      own = [step, _numbers(self.calls, 0)]
    return [*cells[:-_NUM_LAST], *own, *cells[-_NUM_LAST:]]

  def console_cells(self):
    """Returns the row as strings, in the order of `CONSOLE_HEADER`."""
    if not self.num_finished:
      blank = [''] * (len(CONSOLE_HEADER) - 3)
      return [self.label, 'failed', *blank, f'0 of {self.num_failed}']
    repeats = str(self.num_finished)
    if self.num_failed:
      repeats += f' of {self.num_finished + self.num_failed}'
    return [
      self.label,
      number(self.seconds, 1),
      number(self.accept_rate, 3),
      number(self.ess[0], 1),
      number(self.min_ess_per_second, 2),
      _rhat(self.rhat[0]),
      repeats,
    ]

  def _cells(self):
    repeats = str(self.num_finished)
    if self.num_failed:
      repeats += f' (+ {self.num_failed} failed)'
    if not self.num_finished:
      blank = [''] * (len(HEADER) - 3)
      return [self.label, 'failed', *blank, repeats]
    per_second = number(self.min_ess_per_second, 2)
    if self.min_ess_per_second_sd is not None:
      per_second += f' ({number(self.min_ess_per_second_sd, 2)})'
    per_second += f', {number(self.median_ess_per_second, 2)}'
    return [
      self.label,
      number(self.seconds, 1),
      number(self.accept_rate, 3),
      f'({_numbers(self.ess, 1)})',
      _numbers((self.ess_squared, self.ess_log_prob), 1),
      per_second,
      _numbers(self.ess_per_sampling_second, 2),
      _numbers(self.ess_per_gradient, 4),
      _numbers((self.ess_bulk, self.ess_tail), 1),
      ', '.join(_rhat(value) for value in self.rhat),
      f'{number(self.entropy_weight, 2)}, {self._condition()}',
      number(self.compile_seconds, 1),
      repeats,
    ]

  def _condition(self):
    if not self.num_singular:
      return number(self.condition_number, 2)
    singular = f'{self.num_singular} singular'
    if self.condition_number is None:
      return singular
    return f'{number(self.condition_number, 2)} ({singular})'


def number(value, digits):
  """Returns the value with so many decimals; a dash for what is unknown."""
  return '-' if value is None else f'{value:.{digits}f}'


def _numbers(values, digits):
  return ', '.join(number(value, digits) for value in values)


def _rhat(value):
  # Chains that never move agree with themselves alone: 1e16 says no more.
  return number(value, 3) if value is None or value < 1e3 else '> 1000'


def header(rows):
  """Returns (column names, whether those of latent models are among them)."""
  if not any(row.step_size is not None for row in rows):
    return HEADER, False
  return (*HEADER[:-_NUM_LAST], *LATENT_HEADER, *HEADER[-_NUM_LAST:]), True


def join(records):
  """Returns one `Row` per label, in order of first appearance."""
  labels = list(dict.fromkeys(record['label'] for record in records))
  return [
    _row(label, [record for record in records if record['label'] == label])
    for label in labels
  ]


def _row(label, records):
  finished = [r for r in records if r['status'] == 'finished']
  failed = [r for r in records if r['status'] == 'failed']
  error = None
  if failed:
    error = ' '.join(failed[0]['error'].split())[:120]
  if not finished:
    return Row(label, 0, len(failed), error=error)
  speeds = _values(finished, 'min_ess_per_second')
  return Row(
    label=label,
    num_finished=len(finished),
    num_failed=len(failed),
    seconds=_mean(
      [r['seconds']['adaptation'] + r['seconds']['sampling'] for r in finished]
    ),
    compile_seconds=_mean(_values(finished, 'seconds', 'compile')),
    accept_rate=_mean(_values(finished, 'accept_rate')),
    ess=tuple(
      _mean(_values(finished, 'ess', key)) for key in ('min', 'median', 'max')
    ),
    min_ess_per_second=_mean(speeds),
    min_ess_per_second_sd=(
      float(np.std(speeds, ddof=1)) if len(speeds) > 1 else None
    ),
    median_ess_per_second=_mean(_values(finished, 'median_ess_per_second')),
    ess_per_sampling_second=tuple(
      _mean(_values(finished, f'{key}_ess_per_sampling_second'))
      for key in ('min', 'median')
    ),
    ess_per_gradient=tuple(
      _mean(_values(finished, f'{key}_ess_per_gradient'))
      for key in ('min', 'median')
    ),
    ess_squared=_mean(_values(finished, 'ess_squared', 'min')),
    ess_log_prob=_mean(_values(finished, 'ess_log_prob')),
    ess_bulk=_mean(_values(finished, 'ess_bulk', 'min')),
    ess_tail=_mean(_values(finished, 'ess_tail', 'min')),
    rhat=tuple(_mean(_rhats(finished, f'rhat_{k}')) for k in ('max', 'median')),
    entropy_weight=_mean(_values(finished, 'entropy_weight')),
    condition_number=_mean(_values(finished, 'learned_condition_number')),
    num_singular=sum(_values(finished, 'is_factor_singular')),
    step_size=_mean(_values(finished, 'step_size')),
    calls=tuple(_mean_calls(finished, key) for key in ('target', 'gradient')),
    error=error,
  )


def _values(records, *keys):
  """Returns the known values at a path of keys; older runs lack some."""
  values = []
  for value in records:
    for key in keys:
      value = None if value is None else value.get(key)
    if value is not None:
      values.append(value)
  return values


def _rhats(records, key):
  """Returns the values of a key; null stands for one that is not finite."""
  found = [record[key] for record in records if key in record]
  return [np.inf if value is None else value for value in found]


def _mean_calls(records, key):
  phases = [
    _values(records, 'calls', phase, key)
    for phase in ('adaptation', 'sampling')
  ]
  if not all(phases):
    return None
  return sum(_mean(phase) for phase in phases)


def _mean(values):
  return float(np.mean(values)) if values else None


def _failures(rows):
  """Returns one line per row that has failed repeats."""
  return [f'{row.label} failed: {row.error}' for row in rows if row.error]


def to_rich(title, rows):
  """Returns a rich table of few columns, what failed below it."""
  table = rich.table.Table(
    title=title,
    title_justify='left',
    caption=rich.text.Text('\n'.join(_failures(rows))),
    caption_justify='left',
    caption_style='red',
    box=rich.box.SIMPLE_HEAD,
    show_edge=False,
  )
  # Where a terminal is narrow, labels are broken and numbers are not.
  table.add_column(CONSOLE_HEADER[0], overflow='fold')
  for name in CONSOLE_HEADER[1:]:
    table.add_column(name, justify='right', no_wrap=True)
  for row in rows:
    style = 'red' if row.num_failed else None
    # Text, not markup: a label may hold [b] or :smile:.
    table.add_row(*map(rich.text.Text, row.console_cells()), style=style)
  return table


def to_markdown(title, rows):
  """Returns a heading and a Markdown table."""
  names, is_latent = header(rows)
  lines = [f'## {title}', '', _line(names), _line(['---'] * len(names))]
  for row in rows:
    cells = row.cells(is_latent)
    lines.append(_line([in_markdown(cells[0]), *cells[1:]]))
  lines.extend(f'\n{in_markdown(failure)}' for failure in _failures(rows))
  return '\n'.join(lines) + '\n'


def _line(cells):
  return f'| {" | ".join(cells)} |'


def to_html(tables):
  """Returns a page of its own with one table per (title, rows)."""
  parts = [
    '<!doctype html><html><head><meta charset="utf-8"><title>Results</title>',
    '<style>body{font-family:sans-serif}table{border-collapse:collapse}'
    'td,th{padding:.3em .8em;border-bottom:1px solid #ccc;text-align:right}'
    'td:first-child,th:first-child{text-align:left}</style></head><body>',
  ]
  for title, rows in tables:
    parts.append(f'<h2>{html.escape(title)}</h2><table>')
    names, is_latent = header(rows)
    parts.append(_html_line('th', names))
    parts.extend(_html_line('td', row.cells(is_latent)) for row in rows)
    parts.append('</table>')
    parts.extend(f'<p>{html.escape(text)}</p>' for text in _failures(rows))
  return '\n'.join([*parts, '</body></html>']) + '\n'


def _html_line(tag, cells):
  inner = ''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)
  return f'<tr>{inner}</tr>'
