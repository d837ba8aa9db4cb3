"""How many steps a method gets: all methods spend the same gradients.

One unit is one evaluation of the target with or without its gradient, or one
Hessian-vector product, for one chain. All count the same, although a value
alone is cheaper than a gradient and a Hessian-vector product is more expensive.
"""

from typing import NamedTuple

import numpy as np

# Fewest steps of either phase, for windowed samplers and for R-hat.
_FEWEST = (40, 20)
# A new run lies between two others, within these shares of their distance.
_SHARES = (0.2, 0.8)


class Spent(NamedTuple):
  """Units per chain of the two phases of a run."""

  adaptation: float
  sampling: float


class Tried(NamedTuple):
  """A run and its cost."""

  # (num_adaptation_steps, num_results).
  counts: tuple[int, int]
  spent: Spent


def units(cost):
  """Returns the units of a `Cost`, or of a record's dict of calls."""
  calls = cost if isinstance(cost, dict) else cost._asdict()
  return max(calls['target'], calls['gradient']) + calls['hessian_vector']


def step_counts(config, adapting_units, frozen_units):
  """Returns (num_adaptation_steps, num_results) of a method."""
  adaptation, sampling = _wanted(config)
  return (
    max(_FEWEST[0], int(adaptation / adapting_units)),
    max(_FEWEST[1], int(sampling / frozen_units)),
  )


def counted_units(extra):
  """Returns the units of a step that a trace counted, at least one."""
  names = ('leapfrogs_taken', 'num_target_calls')
  found = [float(np.mean(extra[name])) for name in names if name in extra]
  if not found:
    raise ValueError(
      f'a method of random cost must trace one of {", ".join(names)}.'
    )
  return max(found[0], 1.0)


def corrected(config, tried, tolerance):
  """Returns counts of steps that fit the budget better, or None.

  The cost of a step may depend on the number of steps, because trajectories
  grow while a sampler adapts. Therefore the cost of the last run is trusted
  only until runs lie on both sides of a phase's budget. After that, the new
  numbers lie between those of these runs.

  Args:
    tried: List of `Tried`, with the last run at the end.
    tolerance: Accepted ratio to the budget in either phase, above 1.

  Returns:
    (num_adaptation_steps, num_results), or None if the last run fits or no
    other numbers are left.
  """
  if 0 in tried[-1].spent or excess(config, tried[-1]) <= np.log(tolerance):
    return None
  better = tuple(
    max(few, _better([(run.counts[i], run.spent[i]) for run in tried], wanted))
    for i, (wanted, few) in enumerate(zip(_wanted(config), _FEWEST))
  )
  return None if better in [tuple(run.counts) for run in tried] else better


def excess(config, run):
  """Returns the distance of a `Tried` to the budget, the larger |log ratio|."""
  pairs = zip(run.spent, _wanted(config))
  return max(abs(np.log(max(units, 1e-9) / wanted)) for units, wanted in pairs)


def _wanted(config):
  """Returns the units that adaptation and sampling may spend."""
  adaptation = config.adaptation_share * config.gradients_per_chain
  return adaptation, config.gradients_per_chain - adaptation


def _better(pairs, wanted):
  """Returns a count from (count, units) of runs that should spend `wanted`."""
  less = max((pair for pair in pairs if pair[1] <= wanted), default=None)
  more = min((pair for pair in pairs if pair[1] > wanted), default=None)
  if less is None or more is None or less[0] >= more[0]:
    count, units = pairs[-1]
    return int(count * wanted / units)
  low, high = np.log(less[1] / wanted), np.log(more[1] / wanted)
  share = np.clip(-low / (high - low), *_SHARES)
  return round(less[0] ** (1 - share) * more[0] ** share)


def thinned(config, counts, can_thin):
  """Returns (num_adaptation_steps, num_results, steps of a result)."""
  num_adaptation_steps, num_steps = counts
  thinning = -(-num_steps // config.max_draws) if can_thin else 1
  return num_adaptation_steps, num_steps // thinning, thinning


def spent(calls, num_chains):
  """Returns the `Spent` of a record's calls, None if they are unknown."""
  phases = (calls['adaptation'], calls['sampling'])
  return (
    None if None in phases else Spent(*(units(c) / num_chains for c in phases))
  )
