"""The families of kernels, each on a small model, as fixed kernels.

What a family learns is learned from a pilot run on data sets of its own: all
chains, each with another posterior, share one set of params. Frozen, any params
give a kernel that leaves every posterior invariant; a poor fit costs acceptance
only, which the tables show.
"""

import functools
import warnings
from collections.abc import Callable
from typing import NamedTuple

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from experiments.studies.calibration import chains
from experiments.studies.calibration import models

__all__ = ['FAMILIES', 'Family', 'learn', 'with_density']

_NUM_PILOT_CHAINS = 100
_PILOT = 7_000_000  # Added to the seed: no data set is seen twice.


class Family(NamedTuple):
  """A builder of the library on a model."""

  # () -> `models.Model`.
  model: Callable
  # (density, num_adaptation_steps, **options) -> kernel.
  build: Callable
  # Steps between two states of a window.
  thinning: int = 3
  num_adaptation_steps: int = 500


def _hamiltonian(density, num_steps, num_leapfrog_steps=4):
  return tfpa.entropy_adaptive_hamiltonian(
    density, num_steps, num_leapfrog_steps=num_leapfrog_steps
  )


def _transport(density, num_steps, **options):
  return tfpa.transport_adaptive_hamiltonian(
    density, num_steps, num_leapfrog_steps=3, **options
  )


def _field(builder, density, num_steps, **options):
  return builder(density, num_steps, prior=models.field_prior(), **options)


def _latent(builder, **options):
  build = functools.partial(_field, builder, **options)
  return Family(models.field, build)


def _elliptical(density, num_steps, **options):
  del num_steps
  return tfpa.elliptical_slice(density, prior=models.field_prior(), **options)


def _hyper(density, num_steps, **options):
  return tfpa.latent_gaussian_hyperparameters(
    density,
    num_steps,
    prior_fn=models.prior_fn,
    hyperprior=models.hyperprior(),
    **options,
  )


def _surrogate(builder, **options):
  surrogate = (
    baselines.kernel_subsample(100)
    if builder is baselines.kernel_adaptive_metropolis
    else tfpa.surrogates.kernel_exponential_family_finite(100)
  )
  return functools.partial(builder, surrogate=surrogate, **options)


_line = models.student_regression
_effects = models.random_effects
_kernel_hmc = tfpa.kernel_hamiltonian
_kamh = baselines.kernel_adaptive_metropolis

# name -> family.
FAMILIES = {
  'random walk, by gradient': Family(
    _line, tfpa.gradient_adaptive_random_walk, thinning=5
  ),
  'adaptive Metropolis': Family(_line, tfpa.adaptive_metropolis, thinning=5),
  'Langevin': Family(_line, tfpa.gradient_adaptive_langevin),
  'Langevin, exact gradient': Family(
    _line,
    functools.partial(tfpa.gradient_adaptive_langevin, exact_gradient=True),
  ),
  'Langevin, Fisher information': Family(
    _line, baselines.fisher_adaptive_langevin
  ),
  'Langevin, Fisher divergence': Family(_line, tfpa.fisher_divergence_langevin),
  'Hamiltonian, Fisher divergence': Family(
    _line, tfpa.fisher_divergence_hamiltonian, thinning=2
  ),
  'Hamiltonian, Fisher divergence, diagonal': Family(
    _line,
    functools.partial(
      tfpa.fisher_divergence_hamiltonian,
      preconditioner=tfpa.preconditioners.diagonal(),
    ),
    thinning=2,
  ),
  'Langevin, variance ratio': Family(_line, baselines.variance_ratio_langevin),
  'Hamiltonian': Family(_line, _hamiltonian, thinning=2),
  'Hamiltonian, random length': Family(
    _line,
    functools.partial(_hamiltonian, num_leapfrog_steps=(1, 4)),
    thinning=2,
  ),
  'transport Hamiltonian': Family(
    _line, _transport, thinning=2, num_adaptation_steps=100
  ),
  # One map for all data sets: right for none of them.
  'transport Hamiltonian, conditional Gaussian': Family(
    _line,
    functools.partial(
      _transport, transport=tfpa.transports.conditional_gaussian()
    ),
    thinning=2,
    num_adaptation_steps=100,
  ),
  'mGrad': _latent(tfpa.marginal_gradient),
  'aGrad-z': _latent(tfpa.auxiliary_gradient),
  'aGrad-u': _latent(tfpa.auxiliary_gradient, auxiliary='u'),
  'pCN': _latent(tfpa.crank_nicolson),
  'pCNL': _latent(tfpa.crank_nicolson, langevin=True),
  'elliptical slice': Family(models.field, _elliptical),
  # Two reversible moves in turn, whose reverse is the other order: the states
  # of a window are nearly independent, so that the order has no effect on it.
  'hyperparameters, joint': Family(models.hierarchy, _hyper, 20),
  'hyperparameters, Gibbs': Family(
    models.hierarchy, functools.partial(_hyper, joint=False), 20
  ),
  'kernel Hamiltonian': Family(
    _line, _surrogate(_kernel_hmc), num_adaptation_steps=200
  ),
  'kernel adaptive Metropolis': Family(_line, _surrogate(_kamh), thinning=5),
  'random walk on estimates': Family(
    _effects,
    functools.partial(tfpa.adaptive_metropolis, target_is_stochastic=True),
    thinning=5,
  ),
  'kernel Hamiltonian on estimates': Family(
    _effects,
    _surrogate(_kernel_hmc, target_is_stochastic=True),
    thinning=5,
    num_adaptation_steps=200,
  ),
}


def learn(
  family: Family, seed: int, jit_compile: bool = True
) -> tuple[models.Model, Callable]:
  """Returns the model, and data -> kernel with what a pilot run has learned.

  Args:
    family: A `Family`.
    seed: An int.
    jit_compile: Whether XLA compiles the pilot run.
  """
  model = family.model()
  state, data = chains.draw_joint(model, _NUM_PILOT_CHAINS, seed + _PILOT)
  kernel = family.build(model.density(data), family.num_adaptation_steps)
  with warnings.catch_warnings():
    # The pilot run returns one draw, and chains that rejected it are no news.
    warnings.filterwarnings('ignore', 'No move was accepted in 1 draws')
    run = tfpa.sample(
      kernel, state, 1, seed=seed, progress=False, jit_compile=jit_compile
    )
  fixed = tfpa.frozen(kernel, run.final_kernel_results)
  return model, lambda data: with_density(fixed, model.density(data))


def with_density(kernel, density):
  """Returns the kernel on another density."""
  if hasattr(kernel, 'inner_kernel'):
    return kernel.copy(inner_kernel=with_density(kernel.inner_kernel, density))
  name = 'log_likelihood_fn'
  if name not in kernel.parameters:
    name = 'target_log_prob_fn'
  return kernel.copy(**{name: density})
