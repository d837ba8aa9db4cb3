"""Priors of latent Gaussian fields, by the structure of their covariance."""

from tfp_adaptive.gaussian_priors.block import block
from tfp_adaptive.gaussian_priors.density import log_prob
from tfp_adaptive.gaussian_priors.density import sample
from tfp_adaptive.gaussian_priors.kronecker import kronecker
from tfp_adaptive.gaussian_priors.spectral import spectral
from tfp_adaptive.gaussian_priors.stationary import stationary

__all__ = [
  'block',
  'kronecker',
  'log_prob',
  'sample',
  'spectral',
  'stationary',
]
