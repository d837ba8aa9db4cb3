"""Wrappers that decide when and by which rule params change."""

from tfp_adaptive.adaptation.gradient_based import GradientBasedAdaptation
from tfp_adaptive.adaptation.hyperparameter import HyperparameterAdaptation
from tfp_adaptive.adaptation.moment_based import MomentBasedAdaptation
from tfp_adaptive.adaptation.score_matching import ScoreMatchingAdaptation

__all__ = [
  'GradientBasedAdaptation',
  'HyperparameterAdaptation',
  'MomentBasedAdaptation',
  'ScoreMatchingAdaptation',
]
