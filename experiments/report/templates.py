"""Pages of docs/ as templates of jinja2, whose tables are made from records.

Tables are Markdown: a template shows its columns, and cells may hold links and
code. HTML of great_tables brings styles of its own, which the theme, the search
and the links of MkDocs do not know.
"""

import jinja2
import numpy as np

from experiments.report import records
from experiments.report import runs

__all__ = ['is_template', 'render']


def is_template(text):
  """Returns whether a page has anything to fill in."""
  return '{{' in text or '{%' in text


def render(text):
  """Returns a page with its tables.

  Raises:
    jinja2.UndefinedError: If a template names what a record does not have.
  """
  return _environment().from_string(text).render()


def table(head, lines):
  """Returns a table in Markdown.

  Args:
    head: Texts of the columns.
    lines: Cells of each row, as many.
  """
  lines = [head, ['---'] * len(head), *lines]
  return '\n'.join(f'| {" | ".join(map(str, cells))} |' for cells in lines)


def _runs(name):
  """Returns the table of a config's runs."""
  found = records.rows(f'papers/{name}', 'method')
  columns = runs.columns(found)
  lines = [[row['method'], *runs.cells(row, columns)] for row in found]
  return table(['Method', *columns], lines)


def _moments(name):
  """Returns the table of a config's runs against the known posterior."""
  found = records.rows(f'papers/{name}', 'method')
  lines = [
    [row['method'], *runs.moment_cells(moments)]
    for row in found
    for moments in row.get('moments', ())
  ]
  return table(['Method', *runs.MOMENTS], lines)


def _environment():
  environment = jinja2.Environment(
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
    extensions=['jinja2.ext.do'],
  )
  environment.filters.update(
    digits=records.digits,
    groups=records.groups,
    mean=np.mean,
    median=records.median,
    number=number,
    values=lambda found, name: [records.get(row, name) for row in found],
    where=records.where,
  )
  environment.globals.update(
    moments=_moments,
    rows=records.rows,
    runs=_runs,
    table=table,
    quantile=np.quantile,
    zip=zip,
  )
  return environment


def number(value):
  """Returns a number in three digits, without an exponent where it can be."""
  if value is None:
    return '-'
  if value == 0 or 1e-3 <= abs(value) < 1e5:
    places = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f'{value:.{places}f}' if abs(value) >= 1 else f'{value:.2g}'
  return f'{value:.1e}'
