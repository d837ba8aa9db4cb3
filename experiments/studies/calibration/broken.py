"""Kernels that are wrong on purpose, each in one line, for the tests to catch.

Each is a learned kernel of the library in which one method is replaced.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers.baselines.kernel_adaptive_metropolis import (
  UncalibratedKernelAdaptive,
)


class Control(NamedTuple):
  """A way to break a family of `kernels.FAMILIES`."""

  family: str
  # (kernel) -> the kernel, broken.
  spoil: Callable


class _SymmetricLangevin(tfpa.proposals.UncalibratedPreconditionedLangevin):
  """Treats its proposal as symmetric: the ratio has no log q."""

  def _correction(self, pull_x, pull_y, noise):
    return tf.zeros_like(super()._correction(pull_x, pull_y, noise))


class _HalfKinetic(tfpa.proposals.UncalibratedPreconditionedHamiltonian):
  """Accepts by |v|^2 / 4, as if the velocities had variance two."""

  def one_step(self, current_state, previous_kernel_results, seed=None):
    state, results = super().one_step(
      current_state, previous_kernel_results, seed
    )
    kinetic = 0.5 * results.log_acceptance_correction
    return state, results._replace(log_acceptance_correction=kinetic)


class _WrongDelta(tfpa.proposals.UncalibratedMarginalGradient):
  """Uses delta / 2 in the ratio, where delta belongs."""

  def _correction(self, functions, delta, drawn, current, proposed):
    return super()._correction(functions, 0.5 * delta, drawn, current, proposed)


class _TrustingSurrogate(tfpa.proposals.UncalibratedSurrogateHamiltonian):
  """Accepts by the surrogate instead of the target."""

  def bootstrap_results(self, init_state):
    return self._trusted(init_state, super().bootstrap_results(init_state))

  def one_step(self, current_state, previous_kernel_results, seed=None):
    state, results = super().one_step(
      current_state, previous_kernel_results, seed
    )
    return state, self._trusted(state, results)

  def _trusted(self, state, results):
    return results._replace(
      target_log_prob=self.surrogate.log_prob(results.surrogate_params, state)
    )


class _SymmetricKernelAdaptive(UncalibratedKernelAdaptive):
  """Forgets that the way back has another covariance."""

  def one_step(self, current_state, previous_kernel_results, seed=None):
    state, results = super().one_step(
      current_state, previous_kernel_results, seed
    )
    return state, results._replace(
      log_acceptance_correction=tf.zeros_like(results.target_log_prob)
    )


class _Refreshing(tfpa.MetropolisHastings):
  """Draws the estimate of the current state again before each step."""

  def one_step(self, current_state, previous_kernel_results, seed=None):
    again = previous_kernel_results.accepted_results._replace(
      target_log_prob=self.inner_kernel.target_log_prob_fn(
        current_state, seed=tf.random.experimental.stateless_fold_in(seed, 1)
      )
    )
    return super().one_step(
      current_state,
      previous_kernel_results._replace(accepted_results=again),
      seed,
    )


def _with_proposal(cls):
  def spoil(kernel):
    inner = kernel.inner_kernel
    # A wrapper may have learned the proposal.
    is_proposal = isinstance(kernel, tfpa.MetropolisHastings)
    return kernel.copy(
      inner_kernel=cls(**inner.parameters) if is_proposal else spoil(inner)
    )

  return spoil


def _refresh(kernel):
  return _Refreshing(kernel.inner_kernel)


def _forget_jacobian(kernel):
  """Uses the density of theta as the density of log theta."""
  hyperprior = kernel.parameters['hyperprior']

  def log_prob(**logs):
    return hyperprior.log_prob(tf.nest.map_structure(tf.exp, logs))

  bijector = hyperprior.experimental_default_event_space_bijector()
  return kernel.copy(hyperprior=log_prob, bijector=bijector)


def _forget_mean(kernel):
  """Rotates around the origin, as if the prior had mean zero."""
  prior = kernel.prior
  wrong = prior._replace(
    to_coordinates=lambda params, x: prior.pull(params, x),
    from_coordinates=lambda params, s: (
      prior.from_coordinates(params, s)
      - prior.from_coordinates(params, tf.zeros_like(s))
    ),
  )
  return kernel.copy(prior=wrong)


# name -> control.
CONTROLS = {
  'Langevin, without log q': Control(
    'Langevin', _with_proposal(_SymmetricLangevin)
  ),
  'Hamiltonian, half the kinetic energy': Control(
    'Hamiltonian', _with_proposal(_HalfKinetic)
  ),
  'mGrad, delta / 2 in the ratio': Control(
    'mGrad', _with_proposal(_WrongDelta)
  ),
  'elliptical slice, without the mean': Control(
    'elliptical slice', _forget_mean
  ),
  'hyperparameters, without Jacobian': Control(
    'hyperparameters, joint', _forget_jacobian
  ),
  'kernel Hamiltonian, accepts by its surrogate': Control(
    'kernel Hamiltonian', _with_proposal(_TrustingSurrogate)
  ),
  'kernel adaptive Metropolis, without log q': Control(
    'kernel adaptive Metropolis', _with_proposal(_SymmetricKernelAdaptive)
  ),
  'random walk, draws estimates again': Control(
    'random walk on estimates', _refresh
  ),
}
