"""Stochastic volatility of S&P 500 returns given its three parameters.

  x_0 ~ N(0, shock_scale^2 / (1 - persistence^2))
  x_t ~ N(persistence x_{t-1}, shock_scale^2)
  y_t ~ N(0, exp(mean + x_t))            mean-adjusted return of day t

The prior is Markov: its precision is tridiagonal. The parameters are the means
of inference_gym's posterior over all 2516 days. The target
`stochastic_volatility` samples them too.
References: Kim, Shephard and Chib (1998).
"""

import numpy as np
from inference_gym.internal import data as gym_data
from pydantic import Field

import tfp_adaptive as tfpa
from experiments.targets import latent
from experiments.targets.base import TargetParameters
from experiments.targets.registry import TARGETS
from experiments.targets.stochastic_volatility import log_likelihood

_PERSISTENCE, _SHOCK_SCALE, _MEAN = 0.964, 0.311, 5.345


def markov_prior(num_days, persistence, shock_scale, dtype):
  """Returns the prior of the stationary path."""
  return tfpa.gaussian_priors.autoregression(
    np.asarray([persistence], dtype), shock_scale, num_days
  )


def latent_volatility_target(returns, prior, mean, dtype='float32'):
  """Returns the posterior of the path, less its mean, given returns.

  Args:
    returns: [num_days] mean-adjusted returns.
  """
  squares = np.square(np.asarray(returns, np.float64))
  return latent.latent_target(
    'latent_volatility',
    lambda x: log_likelihood(x + np.asarray(mean, dtype), squares),
    prior,
    dtype,
  )


@TARGETS.register('latent_volatility')
class LatentVolatility(TargetParameters):
  """Volatility of S&P 500 returns as a path, its parameters given."""

  num_days: int = Field(2516, ge=2, le=2516)

  def build(self, context):
    returns = gym_data.sp500_returns(num_points=self.num_days)
    prior = markov_prior(
      self.num_days, _PERSISTENCE, _SHOCK_SCALE, context.dtype
    )
    return latent_volatility_target(
      returns['centered_returns'], prior, _MEAN, context.dtype
    )
