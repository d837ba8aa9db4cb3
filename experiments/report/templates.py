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
  def each(found, expression):
    """Returns the values of an expression, such as 'min(bulk, tail)'."""
    value = environment.compile_expression(expression, undefined_to_none=False)
    return [value(row) for row in found]

  def having(found, expression):
    """Returns the rows for which an expression holds."""
    return [row for row, is_so in zip(found, each(found, expression)) if is_so]

  environment.filters.update(
    digits=digits,
    each=each,
    groups=records.groups,
    having=having,
    mean=np.mean,
    median=np.median,
    number=number,
  )
  environment.globals.update(
    max=max,
    min=min,
    moments=_moments,
    quantile=np.quantile,
    rows=records.rows,
    runs=_runs,
    table=table,
    zip=zip,
  )
  return environment


def digits(value, spec):
  """Returns a number by a format; a dash for what is unknown."""
  return '-' if value is None else format(value, spec)


def number(value):
  """Returns a number in three digits, without an exponent where it can be."""
  if value is None:
    return '-'
  if value == 0 or 1e-3 <= abs(value) < 1e5:
    places = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f'{value:.{places}f}' if abs(value) >= 1 else f'{value:.2g}'
  return f'{value:.1e}'
