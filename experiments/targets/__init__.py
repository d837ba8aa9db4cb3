"""Target distributions by name; importing this package registers them."""

from experiments.targets import ar2_stochastic_volatility
from experiments.targets import banana
from experiments.targets import cox_process
from experiments.targets import gaussians
from experiments.targets import gym
from experiments.targets import logistic_regression
from experiments.targets import stochastic_volatility
from experiments.targets.base import Target
from experiments.targets.base import TargetParameters

__all__ = [
  'Target',
  'TargetParameters',
  'ar2_stochastic_volatility',
  'banana',
  'cox_process',
  'gaussians',
  'gym',
  'logistic_regression',
  'stochastic_volatility',
]
