"""How many steps a method gets: all of them spend the same gradients.

One unit is one evaluation of the target with or without its gradient, or one
Hessian-vector product, for one chain. A value alone is cheaper than a gradient
and a Hessian-vector product dearer; neither is weighed.
"""

from typing import NamedTuple

import numpy as np

__all__ = [
  'Spent',
  'corrected',
  'counted_units',
  'spent',
  'step_counts',
  'thinned',
  'units',
]

_FEWEST_RESULTS = 20
# The windows of windowed samplers need that many.
_FEWEST_ADAPTATION_STEPS = 40
# How far a method of random cost may be off the budget, as a ratio.
_TOLERANCE = 1.25


class Spent(NamedTuple):
  """Units per chain of the two phases of a run."""

  adaptation: float
  sampling: float


def units(cost):
  """Returns the units of a `Cost`, or of a record's dict of calls."""
  if isinstance(cost, dict):
    target, gradient, hessian_vector = (
      cost[name] for name in ('target', 'gradient', 'hessian_vector')
    )
  else:
    target, gradient, hessian_vector = (
      cost.target,
      cost.gradient,
      cost.hessian_vector,
    )
  return max(target, gradient) + hessian_vector


def step_counts(config, adapting_units, frozen_units):
  """Returns (num_adaptation_steps, num_results) of a method.

  Args:
    config: the `PanelConfig`.
    adapting_units: of one adapting step.
    frozen_units: of one recorded step.
  """
  adaptation = config.adaptation_share * config.gradients_per_chain
  sampling = config.gradients_per_chain - adaptation
  return (
    max(_FEWEST_ADAPTATION_STEPS, int(adaptation / adapting_units)),
    max(_FEWEST_RESULTS, int(sampling / frozen_units)),
  )


def counted_units(extra):
  """Returns the units of a step from what a trace counted, at least one."""
  names = ('leapfrogs_taken', 'num_target_calls')
  found = [float(np.mean(extra[name])) for name in names if name in extra]
  if not found:
    raise ValueError(
      f'a method of random cost must trace one of {", ".join(names)}.'
    )
  return max(found[0], 1.0)


def corrected(config, counts, found):
  """Returns counts that fit the budget, or None where these do.

  Args:
    config: the `PanelConfig`.
    counts: (num_adaptation_steps, num_results) of a run.
    found: what it `Spent`.
  """
  ratio = sum(found) / config.gradients_per_chain
  if 1 / _TOLERANCE < ratio < _TOLERANCE or 0 in found:
    return None
  costs = [units / count for units, count in zip(found, counts, strict=True)]
  better = step_counts(config, *costs)
  return None if better == tuple(counts) else better


def thinned(config, counts, can_thin):
  """Returns (num_adaptation_steps, num_results, steps of a result)."""
  num_adaptation_steps, num_steps = counts
  thinning = -(-num_steps // config.max_draws) if can_thin else 1
  return num_adaptation_steps, num_steps // thinning, thinning


def spent(calls, num_chains):
  """Returns the `Spent` of a record's calls, None where they are unknown."""
  if None in (calls['adaptation'], calls['sampling']):
    return None
  return Spent(
    units(calls['adaptation']) / num_chains,
    units(calls['sampling']) / num_chains,
  )
