"""Uncalibrated proposals: one file each."""

from tfp_adaptive.proposals.auxiliary_gradient import (
  UncalibratedAuxiliaryGradient,
)
from tfp_adaptive.proposals.auxiliary_langevin import (
  UncalibratedAuxiliaryLangevin,
)
from tfp_adaptive.proposals.crank_nicolson import UncalibratedCrankNicolson
from tfp_adaptive.proposals.elliptical_slice import EllipticalSlice
from tfp_adaptive.proposals.hamiltonian import (
  UncalibratedPreconditionedHamiltonian,
)
from tfp_adaptive.proposals.kernel_adaptive import UncalibratedKernelAdaptive
from tfp_adaptive.proposals.langevin import UncalibratedPreconditionedLangevin
from tfp_adaptive.proposals.latent_hyperparameters import (
  LatentGaussianHyperparameters,
)
from tfp_adaptive.proposals.marginal_gradient import (
  UncalibratedMarginalGradient,
)
from tfp_adaptive.proposals.prior_langevin import UncalibratedPriorLangevin
from tfp_adaptive.proposals.random_walk import (
  UncalibratedPreconditionedRandomWalk,
)
from tfp_adaptive.proposals.second_order_gradient import (
  UncalibratedSecondOrderGradient,
)
from tfp_adaptive.proposals.surrogate_hamiltonian import (
  UncalibratedSurrogateHamiltonian,
)
from tfp_adaptive.proposals.transported_hamiltonian import (
  UncalibratedTransportedHamiltonian,
)

__all__ = [
  'EllipticalSlice',
  'LatentGaussianHyperparameters',
  'UncalibratedAuxiliaryGradient',
  'UncalibratedAuxiliaryLangevin',
  'UncalibratedCrankNicolson',
  'UncalibratedKernelAdaptive',
  'UncalibratedMarginalGradient',
  'UncalibratedPreconditionedHamiltonian',
  'UncalibratedPreconditionedLangevin',
  'UncalibratedPreconditionedRandomWalk',
  'UncalibratedPriorLangevin',
  'UncalibratedSecondOrderGradient',
  'UncalibratedSurrogateHamiltonian',
  'UncalibratedTransportedHamiltonian',
]
