"""Tables of a page that a module of this folder makes from records.

Each stands between two comments of the page; the first names the module.
"""

import pathlib

__all__ = ['fill', 'page', 'table']

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_END = '<!-- End of the table -->\n'


def page(name):
  """Returns the path of a page of results; its records lie beside it."""
  return _ROOT / 'docs' / 'results' / f'{name}.md'


def table(head, rows):
  """Returns a table in Markdown.

  Args:
    head: Texts of the columns.
    rows: Texts of each row, as many.
  """
  lines = [head, ['---'] * len(head), *rows]
  return ''.join(f'| {" | ".join(cells)} |\n' for cells in lines)


def fill(text, module, tables):
  """Returns the page's text with its tables made anew.

  Args:
    text: Of the page.
    module: Name of the module that makes them, of this folder.
    tables: Their texts, in order.

  Raises:
    ValueError: If the page has not as many places.
  """
  begin = f'<!-- Made by python -m {__package__}.{module} -->\n'
  head, *parts = text.split(begin)
  if len(parts) != len(tables) or not all(_END in part for part in parts):
    raise ValueError(
      f'The text needs the lines {begin!r} and {_END!r} {len(tables)} times.'
    )
  for table, part in zip(tables, parts):
    head += begin + table + _END + part.partition(_END)[2]
  return head
