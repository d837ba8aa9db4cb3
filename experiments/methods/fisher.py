"""Langevin samplers whose factor is a closed form of past gradients."""

import tfp_adaptive as tfpa
from experiments.methods.adaptive import ShortSteps
from experiments.methods.structures import check_dense
from experiments.registry import METHODS

__all__ = ['FisherDivergenceMala', 'FisherMala', 'VarianceRatioMala']


@METHODS.register('fisher_mala')
class FisherMala(ShortSteps):
  """FisherMALA: the inverse of the gradient increments' mean square."""

  def default_label(self):
    return 'FisherMALA'

  def build(self, target, options):
    check_dense('cholesky', target)
    return self.build_with(tfpa.fisher_adaptive_langevin, target, options)


@METHODS.register('fisher_divergence_mala')
class FisherDivergenceMala(ShortSteps):
  """MALA with the least Fisher divergence: Cov x # (Cov grad)^-1."""

  def default_label(self):
    return 'Fisher-divergence MALA'

  def build(self, target, options):
    check_dense('cholesky', target)
    return self.build_with(tfpa.fisher_divergence_langevin, target, options)


@METHODS.register('variance_ratio_mala')
class VarianceRatioMala(ShortSteps):
  """MALA with nutpie's diagonal: sqrt(Var x / Var grad)."""

  def default_label(self):
    return 'variance-ratio MALA'

  def build(self, target, options):
    return self.build_with(tfpa.variance_ratio_langevin, target, options)
