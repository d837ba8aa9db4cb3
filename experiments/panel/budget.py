"""How many steps a method gets: all of them spend the same gradients.

One unit is one evaluation of the target with or without its gradient, or one
Hessian-vector product, for one chain. A value alone is cheaper than a gradient
and a Hessian-vector product dearer; neither is weighed.
"""

from typing import NamedTuple

import numpy as np

__all__ = [
  'Spent',
  'Tried',
  'corrected',
  'counted_units',
  'excess',
  'spent',
  'step_counts',
  'thinned',
  'units',
]

_FEWEST_RESULTS = 20
# The windows of windowed samplers need that many.
_FEWEST_ADAPTATION_STEPS = 40
# Of the way between two runs, at least and at most.
_SHARES = (0.2, 0.8)


class Spent(NamedTuple):
  """Units per chain of the two phases of a run."""

  adaptation: float
  sampling: float


class Tried(NamedTuple):
  """A run, and what it cost."""

  # (num_adaptation_steps, num_results).
  counts: tuple
  spent: Spent


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


def corrected(config, tried, tolerance):
  """Returns counts of steps that fit the budget better, or None.

  The cost of a step may depend on the number of steps, by leaps: trajectories
  that grow while a sampler adapts. So costs of the last run are trusted only
  until runs lie on both sides of the budget; from then on it is between them.

  Args:
    config: the `PanelConfig`.
    tried: list of `Tried`, the last run at its end.
    tolerance: ratio to the budget that is let pass, above 1.

  Returns:
    (num_adaptation_steps, num_results); None where the last run fits, or where
    nothing else is left to try.
  """
  last = tried[-1]
  if 0 in last.spent or excess(config, last) <= np.log(tolerance):
    return None
  less = [run for run in tried if _log_ratio(config, run) < 0]
  more = [run for run in tried if _log_ratio(config, run) > 0]
  if less and more:
    better = _between(
      config,
      min(less, key=lambda run: excess(config, run)),
      min(more, key=lambda run: excess(config, run)),
    )
  else:
    pairs = zip(last.spent, last.counts, strict=True)
    better = step_counts(config, *(units / count for units, count in pairs))
  return None if better in [tuple(run.counts) for run in tried] else better


def excess(config, run):
  """Returns how far a `Tried` is off the budget, |log of the ratio|."""
  return abs(_log_ratio(config, run))


def _log_ratio(config, run):
  return np.log(max(sum(run.spent), 1e-9) / config.gradients_per_chain)


def _between(config, less, more):
  """Returns counts between those of two runs, by their logarithms."""
  low, high = _log_ratio(config, less), _log_ratio(config, more)
  share = np.clip(-low / (high - low), *_SHARES)
  pairs = zip(less.counts, more.counts, strict=True)
  return tuple(round(few ** (1 - share) * many**share) for few, many in pairs)


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
