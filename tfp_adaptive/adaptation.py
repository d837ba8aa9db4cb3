"""Adaptation wrappers, which decide when and by which rule params change."""

from tfp_adaptive.core.short_steps import ShortSteps
from tfp_adaptive.latent.hyperparameter_adaptation import (
  HyperparameterAdaptation,
)
from tfp_adaptive.linear.adaptive_metropolis import MomentBasedAdaptation
from tfp_adaptive.linear.fisher_divergence import FisherDivergenceAdaptation
from tfp_adaptive.linear.gradient_adaptation import GradientBasedAdaptation
from tfp_adaptive.surrogate.adaptation import ScoreMatchingAdaptation
from tfp_adaptive.transport.adaptation import FisherTransportAdaptation

__all__ = [
  'FisherDivergenceAdaptation',
  'FisherTransportAdaptation',
  'GradientBasedAdaptation',
  'HyperparameterAdaptation',
  'MomentBasedAdaptation',
  'ScoreMatchingAdaptation',
  'ShortSteps',
]
