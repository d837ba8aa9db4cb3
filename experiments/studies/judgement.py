"""The panel's gates on the draws of a study."""

import numpy as np

from experiments.framework import diagnostics
from experiments.studies.panel import accuracy

__all__ = ['SIZES', 'judged']

SIZES = ('ess', 'ess_squared', 'ess_bulk', 'ess_tail')


def judged(problem, states, gates):
  """Returns what the panel's gates look at, and which the run missed.

  Args:
    problem: Has `coordinates`, a function of states, and their `truth`.
    states: Draws [n, chains, event_size].
    gates: The panel's.
  """
  draws = problem.coordinates(states)
  found = diagnostics.summarize(draws)
  worst = accuracy.worst_z(draws, problem.truth)
  # A coordinate that never moves has no R-hat, and no effective draw.
  rhat = float(np.max(np.nan_to_num(found.rhat, nan=np.inf)))
  sizes = [float(np.nanmin(getattr(found, kind))) for kind in SIZES]
  missed = []
  if not rhat < gates.max_rhat:
    missed.append('R-hat')
  if not min(sizes) >= gates.min_ess:
    missed.append('ESS')
  if not abs(worst.worst) <= gates.max_abs_z:
    missed.append('z')
  return dict(
    rhat=min(rhat, 1e6),
    **dict(zip(SIZES, sizes)),
    worst_z=worst.worst,
    missed=missed,
  )
