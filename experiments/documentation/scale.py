"""The tables of docs/scale.md, made from the records.

  python -m experiments.documentation.scale

writes them between their comments; a test compares.
"""

import numpy as np

from experiments.documentation.made_tables import fill
from experiments.documentation.made_tables import page
from experiments.documentation.made_tables import table
from experiments.framework.json_files import read_json

__all__ = ['with_tables']

_DRAWS = page('draws_on_disk').with_suffix('.json')
_SHARDS = page('shards').with_suffix('.json')
_PAGE = _DRAWS.parents[1] / 'scale.md'
_LARGE = '1e8 numbers'


def with_tables(text):
  """Returns the page's text with its tables made anew."""
  tables = [_draws(read_json(_DRAWS)), *_shards(read_json(_SHARDS))]
  return fill(text, 'scale', tables)


def _draws(record):
  """Returns the table of draws on disk and in memory."""
  disk, memory = (
    next(r for r in record if (r['label'], r['draws']) == (_LARGE, where))
    for where in ('on disk', 'in memory')
  )

  def row(text, cell):
    return text, cell(disk), cell(memory)

  rows = [
    row(
      'Peak of resident memory beyond the import (`getrusage`)',
      lambda r: f'{r["peak_mebibytes_beyond"]:,.0f} MiB',
    ),
    ('Files', f'{disk["mebibytes_on_disk"]:.0f} MiB', ''),
    row(
      f'Keeping a block of {disk["megabytes_of_block"]:.0f} MB',
      lambda r: f'{r["seconds"]["keeping"] / r["num_blocks"]:.2f} s',
    ),
    row(
      'All steps, with keeping',
      lambda r: f'{r["seconds"]["steps_and_keeping"]:.1f} s',
    ),
    row(
      'R-hat and effective sizes',
      lambda r: (
        f'{r["seconds"]["summary"]:.0f} s, of one draw in {r["worst_of_every"]}'
      ),
    ),
  ]
  return table(('', 'On disk', 'In memory'), rows)


def _shards(record):
  """Returns the tables of shards: their law, and their speed."""
  law = [
    (
      f'{count}',
      *(
        f'{found["root_mean_square"]:.2f}, at most {found["worst"]:.1f}'
        for found in errors.values()
      ),
    )
    for count, errors in record['law'].items()
  ]
  speed = [
    (way, f'{np.median(found):,.0f}', f'{min(found):,.0f} to {max(found):,.0f}')
    for way, found in record['speed'].items()
  ]
  return (
    table(('Shards', 'Means', 'Log variances'), law),
    table(
      ('64 chains as', 'Steps a second of every chain', 'Least to most'), speed
    ),
  )


if __name__ == '__main__':
  _PAGE.write_text(with_tables(_PAGE.read_text()))
