"""Samplers that learn one step size: RWM, MALA, HMC-L and NUTS."""

from typing import ClassVar
from typing import Literal

import tensorflow_probability as tfp
from pydantic import Field

import tfp_adaptive as tfpa
from experiments.framework.registry import METHODS
from experiments.methods.base import Cost
from experiments.methods.base import costs
from experiments.methods.base import Method
from experiments.methods.base import MethodParameters
from experiments.methods.base import NumLeapfrogSteps
from experiments.methods.base import traced

__all__ = ['StepSize', 'with_step_size_adaptation']

_ADAPTATIONS = {
  'dual_averaging': tfp.mcmc.DualAveragingStepSizeAdaptation,
  'simple': tfp.mcmc.SimpleStepSizeAdaptation,
}


class StepSize(MethodParameters):
  """How the step size is started and learned."""

  step_size: float | None = Field(
    None, gt=0, description='the first one; None: 0.1 / sqrt(event_size)'
  )
  step_size_adaptation: Literal['dual_averaging', 'simple'] = 'dual_averaging'

  def first_step_size(self, target):
    return self.step_size or 0.1 / target.event_size**0.5

  def adapted(self, kernel, options):
    return with_step_size_adaptation(
      kernel,
      options.num_adaptation_steps,
      self.target_accept_prob,
      self.step_size_adaptation,
    )


def with_step_size_adaptation(
  kernel, num_adaptation_steps, target_accept_prob, kind='dual_averaging'
):
  """Returns TFP's step size adaptation around `kernel`."""
  return _ADAPTATIONS[kind](
    inner_kernel=kernel,
    num_adaptation_steps=num_adaptation_steps,
    target_accept_prob=target_accept_prob,
  )


def _isotropic(proposal_class, target, step_size, **options):
  """Returns a Metropolis-Hastings kernel with C = step_size * I."""
  return tfpa.MetropolisHastings(
    proposal_class(
      target.target_log_prob_fn,
      preconditioner=tfpa.preconditioners.diagonal(init_scale=1.0),
      step_size=step_size,
      **options,
    )
  )


@METHODS.register('rwm')
class RandomWalk(StepSize):
  """Random walk Metropolis, isotropic."""

  target_accept_prob: float = Field(0.25, gt=0, lt=1)

  takes_stochastic: ClassVar[bool] = True

  def default_label(self):
    return 'RWM'

  def build(self, target, options):
    kernel = _isotropic(
      tfpa.proposals.UncalibratedPreconditionedRandomWalk,
      target,
      self.first_step_size(target),
      target_is_stochastic=target.is_stochastic,
    )
    return Method(self.adapted(kernel, options), **costs(kernel))


@METHODS.register('mala')
class Mala(StepSize):
  """Metropolis-adjusted Langevin algorithm, isotropic."""

  target_accept_prob: float = Field(0.55, gt=0, lt=1)

  def default_label(self):
    return 'MALA'

  def build(self, target, options):
    kernel = _isotropic(
      tfpa.proposals.UncalibratedPreconditionedLangevin,
      target,
      self.first_step_size(target),
    )
    return Method(self.adapted(kernel, options), **costs(kernel))


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
      step_size=self.first_step_size(target),
      num_leapfrog_steps=self.num_leapfrog_steps,
    )
    cost = Cost(self.num_leapfrog_steps, self.num_leapfrog_steps)
    return Method(self.adapted(kernel, options), cost, cost)


@METHODS.register('nuts')
class Nuts(StepSize):
  """No-U-turn sampler, dual averaging, unit mass."""

  target_accept_prob: float = Field(0.8, gt=0, lt=1)
  max_tree_depth: int = Field(10, ge=1, le=15)

  def default_label(self):
    return 'NUTS'

  def build(self, target, options):
    kernel = tfp.mcmc.NoUTurnSampler(
      target.target_log_prob_fn,
      step_size=self.first_step_size(target),
      max_tree_depth=self.max_tree_depth,
    )
    # The number of leapfrog steps is random: counted from the trace.
    return Method(
      self.adapted(kernel, options),
      adapting_cost=None,
      frozen_cost=None,
      trace_fn=traced(leapfrogs_taken='leapfrogs_taken'),
    )
