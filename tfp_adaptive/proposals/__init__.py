"""Uncalibrated proposals: one file each."""

from tfp_adaptive.proposals.hamiltonian import (
  UncalibratedPreconditionedHamiltonian,
)
from tfp_adaptive.proposals.langevin import UncalibratedPreconditionedLangevin
from tfp_adaptive.proposals.random_walk import (
  UncalibratedPreconditionedRandomWalk,
)
from tfp_adaptive.proposals.transported_hamiltonian import (
  UncalibratedTransportedHamiltonian,
)

__all__ = [
  'UncalibratedPreconditionedHamiltonian',
  'UncalibratedPreconditionedLangevin',
  'UncalibratedPreconditionedRandomWalk',
  'UncalibratedTransportedHamiltonian',
]
