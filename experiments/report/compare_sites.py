"""Lists every cell of a table that differs between two builds of the site.

  python -m experiments.report.compare_sites BEFORE AFTER

Cells are compared as text, table by table, so that numbers, order and labels
count. Pages and tables that only one build has are listed too.
"""

import difflib
import html.parser
import pathlib
import sys


class _Tables(html.parser.HTMLParser):
  """Collects tables as lists of rows; also fenced text, a line for a row."""

  def __init__(self):
    super().__init__()
    self.rows = []
    self._cell = None
    self._is_text = False

  def handle_starttag(self, tag, attributes):
    if tag in ('table', 'pre'):
      self.rows.append(f'<{tag}>')
    if tag == 'tr':
      self.rows.append('')
    if tag in ('td', 'th'):
      self._cell = []
    self._is_text |= tag == 'pre'

  def handle_endtag(self, tag):
    if tag in ('td', 'th') and self._cell is not None:
      self.rows[-1] += f'| {" ".join("".join(self._cell).split())} '
      self._cell = None
    self._is_text &= tag != 'pre'

  def handle_data(self, data):
    if self._cell is not None:
      self._cell.append(data)
    elif self._is_text:
      self.rows.extend(data.split('\n'))


def tables(path):
  """Returns the rows of all tables and fenced texts of a page."""
  parser = _Tables()
  parser.feed(path.read_text(encoding='utf-8'))
  return [row for row in parser.rows if row]


def differences(before, after):
  """Yields a line of text for each difference."""
  folders = [pathlib.Path(before), pathlib.Path(after)]
  pages = [{p.relative_to(f) for p in f.rglob('*.html')} for f in folders]
  for page in sorted(pages[0] ^ pages[1]):
    yield f'{page}: only {"before" if page in pages[0] else "after"}'
  for page in sorted(pages[0] & pages[1]):
    rows = [tables(folder / page) for folder in folders]
    for line in difflib.unified_diff(*rows, n=0, lineterm=''):
      if not line.startswith(('---', '+++', '@@')):
        yield f'{page}: {line}'


if __name__ == '__main__':
  for difference in differences(*sys.argv[1:]):
    print(difference)
