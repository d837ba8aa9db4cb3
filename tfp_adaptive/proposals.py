"""Proposals of all families, without a Metropolis-Hastings step."""

from tfp_adaptive.latent.auxiliary_gradient import UncalibratedAuxiliaryGradient
from tfp_adaptive.latent.auxiliary_langevin import UncalibratedAuxiliaryLangevin
from tfp_adaptive.latent.crank_nicolson import UncalibratedCrankNicolson
from tfp_adaptive.latent.elliptical_slice import EllipticalSlice
from tfp_adaptive.latent.hyperparameters import LatentGaussianHyperparameters
from tfp_adaptive.latent.marginal_gradient import UncalibratedMarginalGradient
from tfp_adaptive.latent.second_order_gradient import (
  UncalibratedSecondOrderGradient,
)
from tfp_adaptive.linear.hamiltonian import (
  UncalibratedPreconditionedHamiltonian,
)
from tfp_adaptive.linear.langevin import UncalibratedPreconditionedLangevin
from tfp_adaptive.linear.random_walk import UncalibratedPreconditionedRandomWalk
from tfp_adaptive.surrogate.kernel_hamiltonian import (
  UncalibratedSurrogateHamiltonian,
)
from tfp_adaptive.transport.hamiltonian import (
  UncalibratedTransportedHamiltonian,
)

__all__ = [
  'EllipticalSlice',
  'LatentGaussianHyperparameters',
  'UncalibratedAuxiliaryGradient',
  'UncalibratedAuxiliaryLangevin',
  'UncalibratedCrankNicolson',
  'UncalibratedMarginalGradient',
  'UncalibratedPreconditionedHamiltonian',
  'UncalibratedPreconditionedLangevin',
  'UncalibratedPreconditionedRandomWalk',
  'UncalibratedSecondOrderGradient',
  'UncalibratedSurrogateHamiltonian',
  'UncalibratedTransportedHamiltonian',
]
