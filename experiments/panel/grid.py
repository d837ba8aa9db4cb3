"""Tables of the panel: one description, written as HTML or as Markdown."""

import html
from typing import NamedTuple

__all__ = ['Cell', 'Table', 'number', 'to_html', 'to_markdown', 'with_interval']


class Cell(NamedTuple):
  """One entry: its text, and how it is shown."""

  text: str
  # '', 'best', 'good', 'weak', 'bad' or 'none'.
  kind: str = ''
  # Shown where the pointer rests; not in Markdown.
  hint: str = ''


class Table(NamedTuple):
  """A table with a title and a note of what its numbers are."""

  title: str
  note: str
  header: list
  # Lists of `Cell` or str, as long as the header.
  rows: list


def to_html(table):
  """Returns the table as an HTML section."""
  head = ''.join(f'<th>{html.escape(text)}</th>' for text in table.header)
  body = ''.join(
    f'<tr>{"".join(_html_cell(_cell(c)) for c in row)}</tr>\n'
    for row in table.rows
  )
  return (
    f'<h2>{html.escape(table.title)}</h2>\n<p>{html.escape(table.note)}</p>\n'
    f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n'
    f'<tbody>{body}</tbody></table></div>\n'
  )


def to_markdown(table):
  """Returns the table as Markdown; the best entries are bold."""
  lines = [table.header, ['---'] * len(table.header)]
  for row in table.rows:
    cells = [_cell(entry) for entry in row]
    lines.append(
      [f'**{c.text}**' if c.kind == 'best' else c.text for c in cells]
    )
  text = '\n'.join(
    f'| {" | ".join(t.replace("|", "/") for t in line)} |' for line in lines
  )
  return f'## {table.title}\n\n{table.note}\n\n{text}\n'


def _cell(entry):
  return entry if isinstance(entry, Cell) else Cell(str(entry))


def _html_cell(cell):
  hint = f' title="{html.escape(cell.hint)}"' if cell.hint else ''
  kind = f' class="{cell.kind}"' if cell.kind else ''
  return f'<td{kind}{hint}>{html.escape(cell.text)}</td>'


def number(value):
  """Returns a number in three digits, without an exponent where it can be."""
  if value is None:
    return '-'
  if value == 0 or 1e-3 <= abs(value) < 1e5:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f'{value:.{digits}f}' if abs(value) >= 1 else f'{value:.2g}'
  return f'{value:.1e}'


def with_interval(found):
  """Returns `median [low, high]` of an `Interval`."""
  if found is None:
    return '-'
  return f'{number(found.median)} [{number(found.low)}, {number(found.high)}]'
