"""Samplers whose factor is a closed form of past states and gradients."""

import functools
from typing import ClassVar
from typing import Literal

import tfp_adaptive as tfpa
from experiments import baselines
from experiments.framework.registry import METHODS
from experiments.methods.adaptive import Adaptive
from experiments.methods.adaptive import ShortSteps
from experiments.methods.base import NumLeapfrogSteps
from experiments.methods.structures import check_dense
from experiments.methods.structures import Structured

__all__ = [
  'FisherDivergenceHmc',
  'FisherDivergenceMala',
  'FisherMala',
  'VarianceRatioMala',
]


class _ClosedForm(ShortSteps):
  """What they share: the start of `settings: paper`, and steps of one size."""

  passed: ClassVar[tuple] = ('target_accept_prob', 'short_step_share')

  def build_from(self, builder, structure, target, options, **of_paper):
    if self.settings == 'paper':
      builder = functools.partial(
        builder,
        preconditioner=structure(init_scale=lambda size: 0.1 * size**-0.5),
        short_step_share=0.0,
        **of_paper,
      )
    return self.build_with(builder, target, options)


@METHODS.register('fisher_mala')
class FisherMala(_ClosedForm):
  """FisherMALA: the inverse of the gradient increments' mean square."""

  def default_label(self):
    return 'FisherMALA'

  def build(self, target, options):
    check_dense('cholesky', target)
    return self.build_from(
      baselines.fisher_adaptive_langevin,
      tfpa.preconditioners.cholesky,
      target,
      options,
      has_paper_constants=True,
    )


@METHODS.register('fisher_divergence_mala')
class FisherDivergenceMala(_ClosedForm):
  """MALA with the least Fisher divergence: Cov x # (Cov grad)^-1."""

  def default_label(self):
    return 'Fisher-divergence MALA'

  def build(self, target, options):
    check_dense('cholesky', target)
    return self.build_from(
      tfpa.fisher_divergence_langevin,
      tfpa.preconditioners.cholesky,
      target,
      options,
    )


@METHODS.register('fisher_divergence_hmc')
class FisherDivergenceHmc(Adaptive, Structured):
  """HMC with the least Fisher divergence, of any structure."""

  settings: Literal['default'] = 'default'
  num_leapfrog_steps: NumLeapfrogSteps = 5
  randomize_num_steps: bool = True

  passed: ClassVar[tuple] = (
    *Adaptive.passed,
    'num_leapfrog_steps',
    'randomize_num_steps',
  )

  def default_label(self):
    return (
      f'Fisher-divergence HMC-{self.num_leapfrog_steps}{self.structure_label()}'
    )

  def build(self, target, options):
    builder = functools.partial(
      tfpa.fisher_divergence_hamiltonian,
      preconditioner=self.structure(target, is_paper=False),
    )
    return self.build_with(builder, target, options)


@METHODS.register('variance_ratio_mala')
class VarianceRatioMala(_ClosedForm):
  """MALA with nutpie's diagonal: sqrt(Var x / Var grad)."""

  def default_label(self):
    return 'variance-ratio MALA'

  def build(self, target, options):
    return self.build_from(
      baselines.variance_ratio_langevin,
      tfpa.preconditioners.diagonal,
      target,
      options,
    )
