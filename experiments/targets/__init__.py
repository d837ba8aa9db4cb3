"""Target distributions by name; importing this package registers them."""

from experiments.targets import gaussians
from experiments.targets import gym
from experiments.targets import logistic_regression
from experiments.targets.base import Target
from experiments.targets.base import TargetParameters

__all__ = [
  'Target',
  'TargetParameters',
  'gaussians',
  'gym',
  'logistic_regression',
]
