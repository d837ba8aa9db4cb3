"""The tables of docs/results/quickstart.md, made from the records.

  python -m experiments.documentation.quickstart

writes each between its two comments; a test compares. The first is what the
command prints, the second joins the runs of several seeds.
"""

import numpy as np

from experiments.documentation.made_tables import fill
from experiments.documentation.made_tables import page
from experiments.documentation.made_tables import table
from experiments.framework.json_files import read_lines
from experiments.studies import quickstart

__all__ = ['with_tables']

_PAGE = page('quickstart')
_RECORDS = _PAGE.with_suffix('') / 'runs.jsonl'
_OTHER_SEEDS = _RECORDS.with_name('other_seeds.jsonl')
_FAR = 4.0  # Standard errors.
_HEAD = (
  'Posterior',
  'Sampler',
  'Converged',
  'of them more than 4 standard errors off',
  'Their worst errors, in standard errors',
  'Seconds of a processor',
  'Gradients of a chain',
)


def with_tables(text):
  """Returns the page's text with the tables between their comments."""
  records = read_lines(_RECORDS)
  printed = f'```text\n{quickstart.to_text(records)}```\n'
  return fill(
    text,
    'quickstart',
    [printed, _of_seeds(records + read_lines(_OTHER_SEEDS))],
  )


def _of_seeds(records):
  """Returns a line for each posterior and sampler."""
  rows = {}
  for record in records:
    rows.setdefault((record['posterior'], record['sampler']), []).append(record)
  lines = []
  for names, found in rows.items():
    good = [r for r in found if r['converged']]
    errors = [r['worst_error'][0] for r in good if r['worst_error']]
    num_far = sum(abs(error) > _FAR for error in errors)
    lines.append(
      (
        *names,
        f'{len(good)} of {len(found)}',
        f'{num_far}' if errors else '-',
        ', '.join(f'{error:.1f}' for error in errors) or '-',
        _span([r['cpu_seconds'] for r in found]),
        _span([r['num_gradients'] for r in found]),
      )
    )
  return table(_HEAD, lines)


def _span(numbers):
  """Returns smallest, median and largest."""
  return ' / '.join(f'{n:,.0f}' for n in np.quantile(numbers, (0.0, 0.5, 1.0)))


if __name__ == '__main__':
  _PAGE.write_text(with_tables(_PAGE.read_text()))
