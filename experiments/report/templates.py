"""Pages of docs/ as templates of jinja2, whose tables are made from records.

Tables are Markdown: a template shows its columns, and cells may hold links and
code. The HTML of great_tables has its own styles, which the theme, the search
and the links of MkDocs do not know.
"""

import collections
import functools
import re
import textwrap

import jinja2
import numpy as np
import yaml

from experiments.papers import tables
from experiments.report import evaluation
from experiments.report import figures
from experiments.report import panel
from experiments.report import papers
from experiments.report import records
from experiments.report import rivals


def is_template(text):
  """Returns whether a page has anything to fill in."""
  return '{{' in text or '{%' in text


def render(text):
  """Returns a page with its tables.

  Raises:
    jinja2.UndefinedError: If a template names what a record does not have.
  """
  return _environment().from_string(text).render()


def _runs(name, first=0, last=None):
  """Returns the table of a config's runs, from `first` to `last`."""
  found = records.rows(f'papers/{name}', 'method')[first:last]
  columns = tables.columns(found)
  lines = [[row['method'], *tables.cells(row, columns)] for row in found]
  return tables.table(['Method', *columns], lines)


def _moments(name):
  """Returns the table of a config's runs against the known posterior."""
  found = records.rows(f'papers/{name}', 'method')
  lines = [
    [row['method'], *tables.moment_cells(moments)]
    for row in found
    for moments in row.get('moments', ())
  ]
  return tables.table(['Method', *tables.MOMENTS], lines)


def _yaml(path):
  return yaml.safe_load((records.ROOT / path).read_text(encoding='utf-8'))


@functools.cache
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
    rows = (r if isinstance(r, dict) else r._asdict() for r in found)
    return [value(row) for row in rows]

  def having(found, expression):
    """Returns the rows for which an expression holds."""
    found = list(found)
    return [row for row, is_so in zip(found, each(found, expression)) if is_so]

  def columns_of(found, columns):
    """Returns a table of rows; columns are expressions by heading."""
    cells = [map(shown, each(found, text)) for text in columns.values()]
    return tables.table(columns, zip(*cells))

  environment.filters.update(
    digits=digits,
    each=each,
    groups=records.groups,
    having=having,
    literal=literal,
    mean=np.mean,
    std=lambda values: np.std(values, ddof=1),
    wrap=lambda text: textwrap.fill(
      text, 80, initial_indent='  ', subsequent_indent='    '
    ),
    median=np.median,
    most_common=lambda values: collections.Counter(values).most_common(),
    number=number,
  )
  environment.globals.update(
    columns_of=columns_of,
    evaluation=evaluation,
    figures=figures,
    max=max,
    min=min,
    moments=_moments,
    panel=panel,
    papers=papers,
    quantile=np.quantile,
    rivals=rivals,
    rows=records.rows,
    runs=_runs,
    table=tables.table,
    yaml=_yaml,
    zip=zip,
  )
  return environment


def digits(value, spec):
  """Returns a number by a format, and a dash for an unknown number."""
  return '-' if value is None else format(value, spec)


def literal(text):
  """Returns text of one line in which Markdown sees no markup."""
  text = re.sub(r'([\\*_<\[`])', r'\\\1', text)
  return text.replace('\n', ' ').replace('|', '/')


def shown(value):
  """Returns text unchanged, and fractional numbers in three digits."""
  if isinstance(value, float):
    return f'{value:g}' if value.is_integer() else number(value)
  return '-' if value is None else str(value)


def number(value):
  """Returns a number in three digits, without an exponent if possible."""
  if value is None:
    return '-'
  if value == 0 or 1e-3 <= abs(value) < 1e5:
    places = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f'{value:.{places}f}' if abs(value) >= 1 else f'{value:.2g}'
  return f'{value:.1e}'
