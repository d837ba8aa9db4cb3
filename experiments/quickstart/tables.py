"""The rows of a quickstart as text of 80 columns, and as a page of their own.

A row that has not converged has no rate and no place: draws that are not those
of the posterior are not had sooner.
"""

import base64
import html
import textwrap

__all__ = ['ranked', 'to_html', 'to_text']

_WIDTH = 80
_COLUMNS = ('Posterior', 'Sampler', 'Verdict', 'Min ESS', 'Seconds', 'ESS/s')
_NUM_WORDS = 3  # Columns to the left; of numbers to the right.
_EXPLAINED = (
  'Min ESS: effective draws, in bulk or tails, of the worst coordinate. '
  'Seconds: everything, compilation too. Not converged: no rate, no rank.'
)
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Quickstart</title>
<style>
body {{ font-family: sans-serif; max-width: 60em; margin: 2em auto }}
td, th {{ padding: .3em .8em; border-bottom: 1px solid #ccc; text-align: left }}
table {{ border-collapse: collapse }} img {{ max-width: 100% }}
</style></head><body>
<h1>Quickstart</h1>
<table>{table}</table>
<p>{explained}</p>
<h2>Verdicts</h2>
{verdicts}
<h2>Figures</h2>
{figures}
</body></html>
"""


def ranked(records):
  """Returns the records, of each posterior the best rate first.

  Those that have not converged follow, whatever their rate.

  Args:
    records: Of `run.record`; a posterior's place is that of its first.
  """
  posteriors = list(dict.fromkeys(r['posterior'] for r in records))

  def key(record):
    rate = _rate(record)
    return (
      posteriors.index(record['posterior']),
      rate is None,
      -(rate or 0.0),
    )

  return sorted(records, key=key)


def to_text(records):
  """Returns the table and the verdicts as plain text, 80 columns wide."""
  rows = [_COLUMNS, *map(_cells, ranked(records))]
  widths = [max(map(len, column)) for column in zip(*rows)]
  rows.insert(1, tuple('-' * width for width in widths))
  lines = [
    '  '.join(
      cell.ljust(width) if index < _NUM_WORDS else cell.rjust(width)
      for index, (cell, width) in enumerate(zip(row, widths))
    ).rstrip()
    for row in rows
  ]
  lines += ['', *textwrap.wrap(_EXPLAINED, _WIDTH)]
  for record in ranked(records):
    title, *verdict = _verdict(record)
    lines += ['', title]
    for line in verdict:
      lines += textwrap.wrap(
        line, _WIDTH, initial_indent='  ', subsequent_indent='    '
      )
  return '\n'.join(lines) + '\n'


def to_html(records, figures):
  """Returns a page that needs no other file.

  Args:
    records: Of `run.record`.
    figures: dict of a title to the bytes of a PNG.
  """
  rows = [_html_row('th', _COLUMNS)]
  rows += [_html_row('td', _cells(record)) for record in ranked(records)]
  verdicts = [
    f'<h3>{html.escape(title)}</h3><pre>{html.escape(chr(10).join(lines))}</pre>'
    for title, *lines in map(_verdict, ranked(records))
  ]
  images = [
    f'<h3>{html.escape(title)}</h3><img alt="{html.escape(title)}" '
    f'src="data:image/png;base64,{base64.b64encode(png).decode()}">'
    for title, png in figures.items()
  ]
  return _PAGE.format(
    table='\n'.join(rows),
    explained=html.escape(_EXPLAINED),
    verdicts='\n'.join(verdicts),
    figures='\n'.join(images),
  )


def _html_row(tag, cells):
  inner = ''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)
  return f'<tr>{inner}</tr>'


def _cells(record):
  rate, size = _rate(record), _size(record)
  return (
    record['posterior'],
    record['sampler'],
    'converged' if record['converged'] else 'NOT CONVERGED',
    f'{size:.0f}',
    f'{record["seconds"]:.0f}',
    '-' if rate is None else f'{rate:.1f}',
  )


def _size(record):
  """Returns the smaller of bulk and tail ESS; 0 where no chain moved."""
  return min(record['ess_bulk'] or 0.0, record['ess_tail'] or 0.0)


def _rate(record):
  return _size(record) / record['seconds'] if record['converged'] else None


def _verdict(record):
  """Returns a title and the lines of the verdict."""
  found = f', {record["found"]}' if record['found'] else ''
  exact = []
  if record['worst_error']:
    error, name = record['worst_error']
    exact = [f'worst mean: {error:.1f} standard errors off ({name})']
  return [
    f'{record["posterior"]}, {record["sampler"]}{found}',
    *record['verdict'].splitlines(),
    *exact,
    f'{record["num_gradients"]:,.0f} gradients of each chain, warm-up included',
  ]
