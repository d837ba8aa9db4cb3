"""Samplers of papers for comparison, one in each file."""

from experiments.samplers.baselines.kernel_adaptive_metropolis import (
  kernel_adaptive_metropolis,
)
from experiments.samplers.baselines.kernel_subsample import kernel_subsample
from experiments.samplers.baselines.prior_langevin import (
  prior_preconditioned_langevin,
)

__all__ = [
  'kernel_adaptive_metropolis',
  'kernel_subsample',
  'prior_preconditioned_langevin',
]
