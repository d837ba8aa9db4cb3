"""Effective sample size over the acceptance rate: how far to tune delta.

One line per sampler, one point per wanted acceptance, the mean over repeats,
drawn at the acceptance that was reached.
"""

import numpy as np

__all__ = ['draw', 'families']

_PANELS = {'min': 'smallest ESS', 'median': 'median ESS'}
_FEWEST = 3  # Wanted acceptances that make a sweep.


def families(records):
  """Returns {sampler: {wanted acceptance: records}} of the finished ones.

  Args:
    records: of all cells; those without a wanted acceptance are left out.
  """
  found = {}
  for record in records:
    wanted = record.get('target_accept_prob')
    if record['status'] != 'finished' or wanted is None:
      continue
    family = record['label'].replace(f', {wanted:g}', '')
    found.setdefault(family, {}).setdefault(wanted, []).append(record)
  return {k: v for k, v in found.items() if len(v) >= _FEWEST}


def draw(records, grid):
  """Returns the figure, or None where no sampler has several acceptances.

  Args:
    records: of all cells.
    grid: (number of panels) -> (figure, axes).
  """
  found = families(records)
  if not found:
    return None
  figure, axes = grid(len(_PANELS))
  for axis, (size, title) in zip(axes, _PANELS.items(), strict=True):
    for family, by_wanted in found.items():
      cells = [by_wanted[wanted] for wanted in sorted(by_wanted)]
      rates = [np.mean([r['accept_rate'] for r in cell]) for cell in cells]
      sizes = [np.mean([r['ess'][size] for r in cell]) for cell in cells]
      axis.plot(rates, sizes, 'o-', label=family)
    axis.set_title(title, fontsize='small')
    axis.set_xlabel('acceptance')
    axis.set_ylim(bottom=0)
  axes[0].legend(fontsize='x-small')
  return figure
