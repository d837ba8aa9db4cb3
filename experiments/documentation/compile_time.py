"""The table of docs/compile_time.md, made from the record.

  python -m experiments.documentation.compile_time

writes it between its two comments; a test compares.
"""

from experiments.documentation.made_tables import fill
from experiments.documentation.made_tables import page
from experiments.documentation.made_tables import table
from experiments.framework.json_files import read_json

__all__ = ['with_tables']

_RECORD = page('compilation').with_suffix('.json')
_PAGE = _RECORD.parents[1] / 'compile_time.md'
_HEAD = ('Sampler', 'Before the first step, s', 'Steps, s')


def with_tables(text):
  """Returns the page's text with the table between its comments."""
  rows = [
    (row['label'], f'{row["whole"]:.1f} in all', '')
    if 'whole' in row
    else (row['label'], f'{row["before"]:.1f}', f'{row["steps"]:.2f}')
    for row in read_json(_RECORD)
  ]
  return fill(text, 'compile_time', [table(_HEAD, rows)])


if __name__ == '__main__':
  _PAGE.write_text(with_tables(_PAGE.read_text()))
