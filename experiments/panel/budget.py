"""How many steps a method gets: all of them spend the same gradients.

One unit is one evaluation of the target with or without its gradient, or one
Hessian-vector product, for one chain. A value alone is cheaper than a gradient
and a Hessian-vector product dearer; neither is weighed.
"""

from typing import NamedTuple

__all__ = ['Spent', 'spent', 'step_counts', 'units']

_FEWEST_RESULTS = 20
# The windows of windowed samplers need that many.
_FEWEST_ADAPTATION_STEPS = 40


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


def spent(calls, num_chains):
  """Returns the `Spent` of a record's calls, None where they are unknown."""
  if None in (calls['adaptation'], calls['sampling']):
    return None
  return Spent(
    units(calls['adaptation']) / num_chains,
    units(calls['sampling']) / num_chains,
  )
