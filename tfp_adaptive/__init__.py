"""Adaptive MCMC kernels for TensorFlow Probability.

Read `interfaces/shared.py` first, then `linear/langevin.py`. Each family of
samplers has a folder. The families differ in what they learn: a matrix
(`linear`), a map (`transport`), a score (`surrogate`), a step size (`latent`)
or temperatures (`tempering`).
"""

from tfp_adaptive.driver import quiet  # noqa: F401  # Imports TensorFlow.

# isort: split
from tfp_adaptive import adaptation
from tfp_adaptive import interfaces
from tfp_adaptive import models
from tfp_adaptive import papers
from tfp_adaptive import preconditioners
from tfp_adaptive import proposals
from tfp_adaptive._version import __version__
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.driver.blocks import sample_stats
from tfp_adaptive.driver.compilation_cache import cache_compilations
from tfp_adaptive.driver.result import SampleResult
from tfp_adaptive.driver.sample import sample
from tfp_adaptive.improper_uniform import ImproperUniform
from tfp_adaptive.latent import priors as gaussian_priors
from tfp_adaptive.latent.auxiliary_gradient import auxiliary_gradient
from tfp_adaptive.latent.auxiliary_langevin import auxiliary_langevin
from tfp_adaptive.latent.crank_nicolson import crank_nicolson
from tfp_adaptive.latent.elliptical_slice import elliptical_slice
from tfp_adaptive.latent.hyperparameter_adaptation import (
  latent_gaussian_hyperparameters,
)
from tfp_adaptive.latent.marginal_gradient import marginal_gradient
from tfp_adaptive.latent.second_order_gradient import second_order_gradient
from tfp_adaptive.learned import cost_per_step
from tfp_adaptive.learned import frozen
from tfp_adaptive.learned import learned_covariance
from tfp_adaptive.learned import learned_factor
from tfp_adaptive.linear import criteria
from tfp_adaptive.linear import optimizers
from tfp_adaptive.linear.adaptive_metropolis import adaptive_metropolis
from tfp_adaptive.linear.fisher_divergence import fisher_divergence_hamiltonian
from tfp_adaptive.linear.fisher_divergence import fisher_divergence_langevin
from tfp_adaptive.linear.hamiltonian import entropy_adaptive_hamiltonian
from tfp_adaptive.linear.langevin import gradient_adaptive_langevin
from tfp_adaptive.linear.random_walk import gradient_adaptive_random_walk
from tfp_adaptive.posterior.load_posterior import load_posterior
from tfp_adaptive.posterior.posterior import Posterior
from tfp_adaptive.posterior.sample_posterior import sample_posterior
from tfp_adaptive.surrogate import models as surrogates
from tfp_adaptive.surrogate.kernel_hamiltonian import kernel_hamiltonian
from tfp_adaptive.tempering.replica_exchange import replica_exchange
from tfp_adaptive.transport import maps as transports
from tfp_adaptive.transport.hamiltonian import transport_adaptive_hamiltonian

__all__ = [
  '__version__',
  # Samplers.
  'adaptive_metropolis',
  'entropy_adaptive_hamiltonian',
  'fisher_divergence_hamiltonian',
  'fisher_divergence_langevin',
  'gradient_adaptive_langevin',
  'gradient_adaptive_random_walk',
  'transport_adaptive_hamiltonian',
  # Samplers of latent Gaussian models.
  'auxiliary_gradient',
  'auxiliary_langevin',
  'crank_nicolson',
  'elliptical_slice',
  'latent_gaussian_hyperparameters',
  'marginal_gradient',
  'second_order_gradient',
  # Samplers without gradients.
  'kernel_hamiltonian',
  # Samplers of several modes.
  'replica_exchange',
  # Flat priors of a joint distribution.
  'ImproperUniform',
  # The driver.
  'Posterior',
  'SampleResult',
  'cache_compilations',
  'load_posterior',
  'sample',
  'sample_posterior',
  'sample_stats',
  # What was learned.
  'cost_per_step',
  'frozen',
  'learned_covariance',
  'learned_factor',
  # Parts, by concept.
  'MetropolisHastings',
  'adaptation',
  'criteria',
  'gaussian_priors',
  'interfaces',
  'models',
  'optimizers',
  'papers',
  'preconditioners',
  'proposals',
  'surrogates',
  'transports',
]
