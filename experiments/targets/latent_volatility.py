"""Stochastic volatility of S&P 500 returns given its three parameters.

  x_0 ~ N(0, shock_scale^2 / (1 - persistence^2))
  x_t ~ N(persistence x_{t-1}, shock_scale^2)
  y_t ~ N(0, exp(mean + x_t))            mean-adjusted return of day t

The prior is Markov: its precision is tridiagonal. The parameters are, unless
given, the means of inference_gym's posterior over all 2516 days. The target
`stochastic_volatility` samples them too.
References: Kim, Shephard and Chib (1998).
"""

from typing import Literal

import numpy as np
from inference_gym.internal import data as gym_data
from pydantic import Field

import tfp_adaptive as tfpa
from experiments.targets import latent
from experiments.targets.registry import TARGETS
from experiments.targets.stochastic_volatility import log_likelihood

__all__ = [
  'autoregressive_covariance',
  'latent_volatility_target',
  'markov_prior',
]


def autoregressive_covariance(num_days, persistence, shock_scale):
  """Returns C, [num_days, num_days] float64, of the stationary path."""
  days = np.arange(num_days)
  variance = shock_scale**2 / (1.0 - persistence**2)
  return variance * persistence ** np.abs(days[:, None] - days)


def markov_prior(num_days, persistence, shock_scale, dtype):
  """Returns the same prior at a price that is linear in the days."""
  return tfpa.gaussian_priors.autoregression(
    np.asarray([persistence], dtype), shock_scale, num_days
  )


def latent_volatility_target(
  returns, prior, mean, dtype='float32', coordinates='field'
):
  """Returns the posterior of the path, less its mean, given returns.

  Args:
    returns: [num_days] mean-adjusted returns.
    prior: of the path less its mean.
    mean: of the log volatility.
    dtype: 'float32' or 'float64', of the states.
    coordinates: as in `latent.latent_target`.
  """
  squares = np.square(np.asarray(returns, np.float64))
  return latent.latent_target(
    'latent_volatility',
    lambda x: log_likelihood(x + np.asarray(mean, dtype), squares),
    prior,
    dtype,
    coordinates,
  )


@TARGETS.register('latent_volatility')
class LatentVolatility(latent.LatentParameters):
  """Volatility of S&P 500 returns as a path, its parameters given."""

  num_days: int = Field(2516, ge=2, le=2516)
  persistence: float = Field(0.964, gt=-1, lt=1)
  shock_scale: float = Field(0.311, gt=0)
  mean: float = 5.345
  prior: Literal['markov', 'spectral'] = Field(
    'markov', description='by its tridiagonal precision, or dense'
  )

  def build(self, context):
    returns = gym_data.sp500_returns(num_points=self.num_days)
    parameters = (self.num_days, self.persistence, self.shock_scale)
    if self.prior == 'markov':
      prior = markov_prior(*parameters, context.dtype)
    else:
      covariance = autoregressive_covariance(*parameters)
      prior = latent.spectral_prior(covariance, context.dtype)
    return latent_volatility_target(
      returns['centered_returns'],
      prior,
      self.mean,
      context.dtype,
      self.coordinates,
    )
