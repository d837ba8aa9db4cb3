"""Figures over the number of leapfrog steps, as in the papers' appendices.

One line per family of methods, the mean over repeats; a method without leapfrog
steps of its own (NUTS) is a horizontal line.
"""

import numpy as np

__all__ = ['draw', 'families']

# Key of the record: (title, scale of the axis).
PANELS = {
  'min_ess_per_sampling_second': ('min ESS/s after adaptation', 'log'),
  'median_ess_per_sampling_second': ('median ESS/s after adaptation', 'log'),
  'accept_rate': ('acceptance', 'linear'),
  'rhat_max': ('largest R-hat', 'linear'),
  'abs_eigenvalue': ('|eigenvalue of D|, last tenth of adaptation', 'linear'),
  'learned_condition_number': ('condition number of C^T Sigma^-1 C', 'log'),
}


def families(records):
  """Returns {family: {L: records}}; L is None for methods without.

  Args:
    records: of finished cells.
  """
  found = {}
  for record in records:
    steps = record.get('num_leapfrog_steps')
    family = record['label']
    if steps is not None:
      family = family.replace(f'-{steps}', '', 1).replace(f', L={steps}', '', 1)
    found.setdefault(family, {}).setdefault(steps, []).append(record)
  return found


def draw(records, grid):
  """Returns the figure, or None where no family has several L.

  Args:
    records: of all cells.
    grid: (number of panels) -> (figure, axes).
  """
  finished = [r for r in records if r['status'] == 'finished']
  grouped = families(finished)
  if not any(len(by_steps) > 1 for by_steps in grouped.values()):
    return None
  keys = [k for k in PANELS if any(r.get(k) is not None for r in finished)]
  figure, axes = grid(len(keys))
  for axis, key in zip(axes, keys, strict=True):
    for number, (family, by_steps) in enumerate(grouped.items()):
      _draw_line(axis, family, f'C{number}', by_steps, key)
    title, scale = PANELS[key]
    axis.set_title(title, fontsize='small')
    axis.set_yscale(scale)
    axis.set_xlabel('leapfrog steps')
  axes[0].legend(fontsize='x-small')
  return figure


def _draw_line(axis, family, color, by_steps, key):
  means = {}
  for steps, records in by_steps.items():
    values = [r[key] for r in records if r.get(key) is not None]
    if values:
      means[steps] = np.mean(values)
  if None in means:
    axis.axhline(means.pop(None), color=color, linestyle=':', label=family)
  if means:
    steps = sorted(means)
    axis.plot(steps, [means[s] for s in steps], 'o-', color=color, label=family)
