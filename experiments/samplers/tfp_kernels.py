"""TFP's samplers and isotropic samplers, most with a learned step size.

References: Sountsov and Hoffman (2021), SNAPER; Earl and Deem (2005), replica
exchange; Girolami and Calderhead (2011), Section 9, Riemannian HMC,
https://doi.org/10.1111/j.1467-9868.2010.00765.x.
"""

from typing import ClassVar

import tensorflow as tf
import tensorflow_probability as tfp
from pydantic import Field

import tfp_adaptive as tfpa
from experiments.samplers.base import Cost
from experiments.samplers.base import costs
from experiments.samplers.base import Method
from experiments.samplers.base import MethodParameters
from experiments.samplers.base import NumLeapfrogSteps
from experiments.samplers.base import traced
from experiments.targets.registry import METHODS
from tfp_adaptive.core import proposal

# `sample_snaper_hmc` uses the rest of the adaptation steps as burn-in.
_SNAPER_ADAPTING = 0.9
_NUM_REPLICAS, _REPLICA_LEAPFROG_STEPS = 4, 3


class StepSize(MethodParameters):
  """A step size that starts at 0.1 / sqrt(event_size) and is learned."""

  is_peer: ClassVar[bool] = True

  def adapted(self, kernel, options):
    return tfp.mcmc.DualAveragingStepSizeAdaptation(
      kernel,
      num_adaptation_steps=options.num_adaptation_steps,
      target_accept_prob=self.target_accept_prob,
    )

  def isotropic(self, proposal_class, target, options, **arguments):
    """Returns the method of a proposal with C = step_size * I."""
    kernel = tfpa.MetropolisHastings(
      proposal_class(
        target.target_log_prob_fn,
        preconditioner=tfpa.preconditioners.diagonal(init_scale=1.0),
        step_size=_first_step_size(target),
        **arguments,
      )
    )
    return Method(self.adapted(kernel, options), **costs(kernel))


def _first_step_size(target):
  return 0.1 / target.event_size**0.5


@METHODS.register('rwm')
class RandomWalk(StepSize):
  """Random walk Metropolis, isotropic."""

  target_accept_prob: float = Field(0.25, gt=0, lt=1)

  takes_stochastic: ClassVar[bool] = True

  def default_label(self):
    return 'RWM'

  def build(self, target, options):
    return self.isotropic(
      tfpa.proposals.UncalibratedPreconditionedRandomWalk,
      target,
      options,
      target_is_stochastic=target.is_stochastic,
    )


@METHODS.register('mala')
class Mala(StepSize):
  """Metropolis-adjusted Langevin algorithm, isotropic."""

  target_accept_prob: ClassVar[float] = 0.55

  def default_label(self):
    return 'MALA'

  def build(self, target, options):
    return self.isotropic(
      tfpa.proposals.UncalibratedPreconditionedLangevin, target, options
    )


@METHODS.register('hmc')
class Hmc(StepSize):
  """Hamiltonian Monte Carlo with a fixed number of leapfrog steps."""

  num_leapfrog_steps: NumLeapfrogSteps
  target_accept_prob: float = Field(0.7, gt=0, lt=1)

  def default_label(self):
    return f'HMC-{self.num_leapfrog_steps}'

  def build(self, target, options):
    kernel = tfp.mcmc.HamiltonianMonteCarlo(
      target.target_log_prob_fn,
      step_size=_first_step_size(target),
      num_leapfrog_steps=self.num_leapfrog_steps,
    )
    cost = Cost(self.num_leapfrog_steps, self.num_leapfrog_steps)
    return Method(self.adapted(kernel, options), cost, cost)


@METHODS.register('nuts')
class Nuts(StepSize):
  """No-U-turn sampler, dual averaging, unit mass."""

  target_accept_prob: ClassVar[float] = 0.8

  def default_label(self):
    return 'NUTS'

  def build(self, target, options):
    kernel = tfp.mcmc.NoUTurnSampler(
      target.target_log_prob_fn,
      step_size=_first_step_size(target),
    )
    # The number of leapfrog steps is random, so the trace counts it.
    trace_fn = traced(leapfrogs_taken='leapfrogs_taken')
    return Method(self.adapted(kernel, options), None, None, trace_fn)


@METHODS.register('snaper_hmc')
class SnaperHmc(MethodParameters):
  """TFP's SNAPER-HMC: diagonal mass, trajectory length by SNAPER.

  The kernel and its constants are those of
  `tfp.experimental.mcmc.sample_snaper_hmc`. It needs at least two chains.
  """

  is_peer: ClassVar[bool] = True

  def default_label(self):
    return 'SNAPER-HMC'

  def build(self, target, options):
    if options.num_chains < 2:
      raise ValueError(
        f'num_chains: {options.num_chains} was given, but snaper_hmc learns '
        'from the spread of its chains. Write at least 2.'
      )
    num_adapting = int(_SNAPER_ADAPTING * options.num_adaptation_steps)
    kernel = tfp.experimental.mcmc.SNAPERHamiltonianMonteCarlo(
      target.target_log_prob_fn,
      step_size=tf.constant(1e-2 * target.event_size**-0.25, target.dtype),
      num_adaptation_steps=num_adapting,
    )
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
      kernel,
      num_adaptation_steps=num_adapting,
      target_accept_prob=tf.constant(0.8, target.dtype),
      reduce_fn=tfp.math.reduce_log_harmonic_mean_exp,
    )
    # All chains share the number of leapfrog steps, jittered at every step.
    trace_fn = traced(leapfrogs_taken='num_leapfrog_steps')
    return Method(kernel, None, None, trace_fn)


@METHODS.register('replica_exchange')
class ReplicaExchange(MethodParameters):
  """TFP's parallel tempering of HMC, a dual-averaged step per temperature.

  The whole density has inverse temperatures 1, 1/2, 1/4, ..., and L = 3, as in
  TFP's documentation. The gradients of all replicas are counted, and so is the
  gradient that each replica needs again after a swap.
  """

  is_peer: ClassVar[bool] = True

  def default_label(self):
    return f'Replica exchange HMC-{_REPLICA_LEAPFROG_STEPS}'

  def build(self, target, options):
    inverse_temperatures = 0.5 ** tf.range(_NUM_REPLICAS, dtype=target.dtype)
    # Shape [replicas, 1, 1]: all chains of a temperature share a scale.
    scales = tf.sqrt(inverse_temperatures)[:, None, None]
    step_size = _first_step_size(target) / scales

    def make_kernel_fn(target_log_prob_fn):
      return tfp.mcmc.DualAveragingStepSizeAdaptation(
        tfp.mcmc.HamiltonianMonteCarlo(
          target_log_prob_fn, step_size, _REPLICA_LEAPFROG_STEPS
        ),
        num_adaptation_steps=options.num_adaptation_steps,
        target_accept_prob=tf.constant(0.75, target.dtype),
      )

    kernel = tfp.mcmc.ReplicaExchangeMC(
      target.target_log_prob_fn, inverse_temperatures, make_kernel_fn
    )
    calls = _NUM_REPLICAS * (_REPLICA_LEAPFROG_STEPS + 1)
    return Method(kernel, Cost(calls, calls), Cost(calls, calls))


@METHODS.register('riemannian_hmc')
class RiemannianHmc(StepSize):
  """HMC with a constant metric of the target as mass matrix.

  If the metric M does not depend on the state, Riemannian HMC is HMC with mass
  matrix M. This is the library's proposal with a given factor C of M^-1. One
  leapfrog step is Riemannian MALA.
  """

  num_leapfrog_steps: NumLeapfrogSteps
  metric: str = Field('expected_fisher', description='named by the target')

  is_peer: ClassVar[bool] = False
  target_accept_prob: ClassVar[float] = 0.7

  def default_label(self):
    steps = self.num_leapfrog_steps
    name = 'RM-MALA' if steps == 1 else f'RM-HMC-{steps}'
    is_default = self.metric == 'expected_fisher'
    return name if is_default else f'{name} ({self.metric.replace("_", " ")})'

  def build(self, target, options):
    factors = target.metric_factors or {}
    if self.metric not in factors:
      raise ValueError(
        f'metric: {target.name} has no constant metric {self.metric!r}; it has '
        f'{", ".join(sorted(factors)) or "none"}.'
      )
    hamiltonian = tfpa.proposals.UncalibratedPreconditionedHamiltonian(
      target.target_log_prob_fn,
      proposal.constant(tfpa.preconditioners.cholesky(), factors[self.metric]),
      self.num_leapfrog_steps,
      step_size=target.event_size**-0.25,
    )
    kernel = tfpa.MetropolisHastings(hamiltonian)
    return Method(self.adapted(kernel, options), **costs(kernel))
