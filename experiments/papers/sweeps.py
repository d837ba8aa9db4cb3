"""Figures over the number of leapfrog steps, and over the wanted acceptance.

A family of methods is a line, and each of their values is a point, the mean
over repeats. In a sweep of leapfrog steps, a method without such a number
(NUTS) is a horizontal line.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.run.store import Record

# Key of the record: (title, scale of the axis).
_PANELS = {
  'min_ess_per_sampling_second': ('min ESS/s after adaptation', 'log'),
  'median_ess_per_sampling_second': ('median ESS/s after adaptation', 'log'),
  'accept_rate': ('acceptance', 'linear'),
  'rhat_max': ('largest R-hat', 'linear'),
  'abs_eigenvalue': ('|eigenvalue of D|, last tenth of adaptation', 'linear'),
  'learned_condition_number': ('condition number of C^T Sigma^-1 C', 'log'),
}
_SIZES = {'min': 'smallest ESS', 'median': 'median ESS'}
# Fewest wanted acceptances of a sweep.
_FEWEST = 3
# Name of the parameter: how a label shows the value.
_IN_LABEL = {
  'num_leapfrog_steps': ('-{}', ', L={}'),
  'target_accept_prob': (', {:g}',),
}


def families(
  records: Sequence[Record], parameter: str
) -> dict[str, dict[Any, list[dict]]]:
  """Returns {family: {value of the parameter: records of finished cells}}.

  A family has the label of its methods without the value, which is `None` for
  methods that lack the parameter.
  """
  found: dict[str, dict[Any, list[dict]]] = {}
  for one in records:
    if one.status != 'finished':
      continue
    value, family = one.record.get(parameter), one.case
    if value is not None:
      for form in _IN_LABEL[parameter]:
        family = family.replace(form.format(value), '', 1)
    found.setdefault(family, {}).setdefault(value, []).append(one.record)
  return found


def draw_leapfrog_steps(records: Sequence[Record], grid: Callable) -> Any:
  """Returns the figure, or `None` if no family has several lengths.

  Args:
    grid: Function of the number of panels. It returns (figure, axes).
  """
  grouped = families(records, 'num_leapfrog_steps')
  if not any(len(by_steps) > 1 for by_steps in grouped.values()):
    return None
  finished = [one.record for one in records if one.status == 'finished']
  keys = [k for k in _PANELS if any(r.get(k) is not None for r in finished)]
  figure, axes = grid(len(keys))
  for axis, key in zip(axes, keys, strict=True):
    for number, (family, by_steps) in enumerate(grouped.items()):
      _draw_line(axis, family, f'C{number}', by_steps, key)
    title, scale = _PANELS[key]
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


def draw_accept_rates(records: Sequence[Record], grid: Callable) -> Any:
  """Returns a figure of ESS by the reached acceptance, for each sampler.

  The figure is `None` if no sampler has three wanted acceptances or more. The
  arguments are those of `draw_leapfrog_steps`.
  """
  grouped = families(records, 'target_accept_prob')
  for by_wanted in grouped.values():
    by_wanted.pop(None, None)
  grouped = {k: v for k, v in grouped.items() if len(v) >= _FEWEST}
  if not grouped:
    return None
  figure, axes = grid(len(_SIZES))
  for axis, (size, title) in zip(axes, _SIZES.items(), strict=True):
    for family, by_wanted in grouped.items():
      cells = [by_wanted[wanted] for wanted in sorted(by_wanted)]
      rates = [np.mean([r['accept_rate'] for r in cell]) for cell in cells]
      sizes = [np.mean([r['ess'][size] for r in cell]) for cell in cells]
      axis.plot(rates, sizes, 'o-', label=family)
    axis.set_title(title, fontsize='small')
    axis.set_xlabel('acceptance')
    axis.set_ylim(bottom=0)
  axes[0].legend(fontsize='x-small')
  return figure
