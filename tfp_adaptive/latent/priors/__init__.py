"""Priors of latent Gaussian fields, by the structure of their covariance."""

from tfp_adaptive.latent.priors.autoregression import autoregression
from tfp_adaptive.latent.priors.block import block
from tfp_adaptive.latent.priors.cholesky import cholesky
from tfp_adaptive.latent.priors.density import log_prob
from tfp_adaptive.latent.priors.density import sample
from tfp_adaptive.latent.priors.kronecker import kronecker
from tfp_adaptive.latent.priors.markov import markov
from tfp_adaptive.latent.priors.random_walk import random_walk
from tfp_adaptive.latent.priors.spectral import spectral
from tfp_adaptive.latent.priors.state_space import state_space
from tfp_adaptive.latent.priors.stationary import stationary

__all__ = [
  'autoregression',
  'block',
  'cholesky',
  'kronecker',
  'log_prob',
  'markov',
  'random_walk',
  'sample',
  'spectral',
  'state_space',
  'stationary',
]
