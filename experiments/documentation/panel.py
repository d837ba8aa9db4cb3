"""What of the panel was run, target by target, made from its records.

  python -m experiments.documentation.panel

writes the table of docs/results/panel.md, which a test compares.
"""

import collections

from experiments.documentation.made_tables import fill
from experiments.documentation.made_tables import page
from experiments.documentation.made_tables import table
from experiments.framework.json_files import read_json

__all__ = ['with_tables']

_PAGE = page('panel')
_SUMMARY = _PAGE.parent / 'inference_gym' / 'summary.json'
_NUM_SEEDS = 10
_HEAD = (
  'Target',
  'Pairs complete',
  'With some of their seeds',
  'Without a run that ended',
  'Runs that ended',
  'Out of time',
)


def with_tables(text):
  """Returns the page's text with the table between its comments."""
  rows = collections.defaultdict(collections.Counter)
  for pair in read_json(_SUMMARY):
    counts = pair['outcomes']
    late, refused = counts['out of time'], counts['refused']
    ended = sum(counts.values()) - late - refused
    kind = 'some' if ended else 'none'
    if ended >= _NUM_SEEDS or refused:
      kind = 'complete'
    for target in (pair['target'], 'All'):
      rows[target][kind] += 1
      rows[target].update(ended=ended, late=late)
  total = rows.pop('All')
  missing = {t: r for t, r in rows.items() if r['late'] or r['some']}
  rest = sum(rows.values(), collections.Counter())
  for row in missing.values():
    rest = rest - row
  lines = [_line(*pair) for pair in missing.items()]
  lines.append(_line(f'the other {len(rows) - len(missing)}', rest))
  return fill(text, 'panel', [table(_HEAD, [*lines, _line('all', total)])])


def _line(name, row):
  kinds = ('complete', 'some', 'none', 'ended', 'late')
  return (name.replace('_', ' '), *(str(row[kind]) for kind in kinds))


def main():
  """Writes the table."""
  _PAGE.write_text(with_tables(_PAGE.read_text()))


if __name__ == '__main__':
  main()
