"""Target distributions by name; importing this package registers them."""

from experiments.targets import ar2_stochastic_volatility
from experiments.targets import banana
from experiments.targets import cox_process
from experiments.targets import gaussians
from experiments.targets import gp_classification
from experiments.targets import gp_hierarchy
from experiments.targets import gp_pseudo_marginal
from experiments.targets import gp_regression
from experiments.targets import gym
from experiments.targets import latent
from experiments.targets import latent_volatility
from experiments.targets import log_gaussian_cox
from experiments.targets import logistic_regression
from experiments.targets import multi_class_gp
from experiments.targets import simulator
from experiments.targets import skew_normal_abc
from experiments.targets import stochastic_volatility
from experiments.targets.base import LatentGaussian
from experiments.targets.base import Target
from experiments.targets.base import TargetParameters

__all__ = [
  'LatentGaussian',
  'Target',
  'TargetParameters',
  'ar2_stochastic_volatility',
  'banana',
  'cox_process',
  'gaussians',
  'gp_classification',
  'gp_hierarchy',
  'gp_pseudo_marginal',
  'gp_regression',
  'gym',
  'latent',
  'latent_volatility',
  'log_gaussian_cox',
  'logistic_regression',
  'multi_class_gp',
  'simulator',
  'skew_normal_abc',
  'stochastic_volatility',
]
