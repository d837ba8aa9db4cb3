"""Riemannian HMC where the model's own metric does not depend on the state.

A constant metric M makes it HMC with mass matrix M: this library's proposal
with a factor C of M^-1 that is given, not learned. One leapfrog step is
Riemannian MALA.
References: Girolami and Calderhead (2011), Section 9,
https://doi.org/10.1111/j.1467-9868.2010.00765.x.
"""

import tensorflow as tf
from pydantic import Field

import tfp_adaptive as tfpa
from experiments.framework.registry import METHODS
from experiments.methods.base import costs
from experiments.methods.base import Method
from experiments.methods.base import NumLeapfrogSteps
from experiments.methods.baselines import StepSize

__all__ = ['fixed_preconditioner']


def fixed_preconditioner(factor):
  """Returns the dense preconditioner that starts, and stays, at C.

  Args:
    factor: C, [d, d] lower triangular.
  """

  def init(event_size, dtype, scale):
    del event_size, scale
    return tf.constant(factor, dtype)

  return tfpa.preconditioners.cholesky(init_scale=1.0)._replace(init=init)


@METHODS.register('riemannian_hmc')
class RiemannianHmc(StepSize):
  """HMC with a constant metric of the target's own as mass matrix."""

  num_leapfrog_steps: NumLeapfrogSteps
  metric: str = Field('expected_fisher', description='named by the target')
  target_accept_prob: float = Field(0.7, gt=0, lt=1)

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
    proposal = tfpa.proposals.UncalibratedPreconditionedHamiltonian(
      target.target_log_prob_fn,
      fixed_preconditioner(factors[self.metric]),
      self.num_leapfrog_steps,
      step_size=self.step_size or target.event_size**-0.25,
    )
    kernel = tfpa.MetropolisHastings(proposal)
    return Method(self.adapted(kernel, options), **costs(kernel))
