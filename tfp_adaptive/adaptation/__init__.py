"""Wrappers that decide when and by which rule params change."""

from tfp_adaptive.adaptation.fisher import FisherAdaptation
from tfp_adaptive.adaptation.fisher_divergence import FisherDivergenceAdaptation
from tfp_adaptive.adaptation.gradient_based import GradientBasedAdaptation
from tfp_adaptive.adaptation.hyperparameter import HyperparameterAdaptation
from tfp_adaptive.adaptation.moment_based import MomentBasedAdaptation
from tfp_adaptive.adaptation.score_matching import ScoreMatchingAdaptation
from tfp_adaptive.adaptation.short_steps_while_adapting import (
  ShortStepsWhileAdapting,
)
from tfp_adaptive.adaptation.variance_ratio import VarianceRatioAdaptation

__all__ = [
  'FisherAdaptation',
  'FisherDivergenceAdaptation',
  'GradientBasedAdaptation',
  'HyperparameterAdaptation',
  'MomentBasedAdaptation',
  'ScoreMatchingAdaptation',
  'ShortStepsWhileAdapting',
  'VarianceRatioAdaptation',
]
