"""Stochastic volatility with a second-order path: two diagonals to learn.

  (1 + r_1) / 2 ~ Beta(20, 1.5)   (1 + r_2) / 2 ~ Beta(2, 2)
  mean ~ Cauchy(0, 5)             shock_scale ~ HalfCauchy(0, 2)
  a_0 ~ N(0, 1 / ((1 - r_1^2)(1 - r_2^2))),  a_1 ~ N(r_1 a_0, 1 / (1 - r_2^2))
  a_t ~ N(r_1 (1 - r_2) a_{t-1} + r_2 a_{t-2}, 1)
  h_t = mean + shock_scale a_t,   y_t ~ N(0, exp(h_t))

r_1 and r_2 are the partial autocorrelations: any values in (-1, 1) make the
path stationary, and r_2 = 0 is the first-order model. One vector: the path a,
then mean, logit((1 + r_1) / 2), logit((1 + r_2) / 2), softplus^-1(shock_scale).
Given the globals the posterior precision of the path has two superdiagonals.
References: the order is one that Hirt, Titsias and Dellaportas (2021) suggest
in 4.4, https://arxiv.org/abs/2110.14625; Barndorff-Nielsen and Schou (1973).
"""

import numpy as np
import tensorflow as tf
from inference_gym.internal import data as gym_data
from pydantic import Field

from experiments.targets.autoregression import over_days
from experiments.targets.autoregression import sum_days
from experiments.targets.base import Target
from experiments.targets.base import TargetParameters
from experiments.targets.registry import TARGETS
from experiments.targets.stochastic_volatility import log_likelihood
from experiments.targets.stochastic_volatility import log_prior_of_level

_NUM_GLOBALS = 4


def ar2_stochastic_volatility_target(returns, dtype='float32'):
  """Returns the posterior of path and globals given returns.

  Args:
    returns: [num_days] mean-adjusted returns, at least 3.
  """
  squares = np.square(np.asarray(returns, np.float64))
  num_days = len(squares)

  def volatility(x):
    shock_scale = over_days(tf.math.softplus(x[..., -1:]), num_days)
    mean = over_days(x[..., -4:-3], num_days)
    return mean + shock_scale * x[..., :num_days]

  def target_log_prob_fn(x):
    first, second = x[..., -3:-2], x[..., -2:-1]
    return (
      log_likelihood(volatility(x), squares)
      + _log_prior_of_path(x[..., :num_days], first, second)
      + _log_beta(first, 20.0, 1.5)
      + _log_beta(second, 2.0, 2.0)
      + log_prior_of_level(x[..., -4], x[..., -1], 'gym')
    )

  def constrain(states):
    x = tf.convert_to_tensor(states)
    return {
      'mean_log_volatility': x[..., -4].numpy(),
      'first_partial_autocorrelation': tf.tanh(0.5 * x[..., -3]).numpy(),
      'second_partial_autocorrelation': tf.tanh(0.5 * x[..., -2]).numpy(),
      'white_noise_shock_scale': tf.math.softplus(x[..., -1]).numpy(),
      'log_volatility': volatility(x).numpy(),
    }

  globals_start = [
    np.log(squares.mean()), np.log(0.975 / 0.025), 0.0, np.log(np.expm1(0.2))
  ]  # fmt: skip
  return Target(
    name='ar2_stochastic_volatility',
    target_log_prob_fn=target_log_prob_fn,
    event_size=num_days + _NUM_GLOBALS,
    dtype=dtype,
    constrain=constrain,
    suggested_start=np.append(np.zeros(num_days), globals_start),
  )


def _log_beta(raw, alpha, beta):
  """Log density of sigmoid(raw) ~ Beta(alpha, beta), with the Jacobian."""
  return (alpha * tf.math.log_sigmoid(raw) + beta * tf.math.log_sigmoid(-raw))[
    ..., 0
  ]


def _log_one_minus_square(raw):
  """log(1 - r^2) of r = tanh(raw / 2), without cancellation."""
  return (np.log(4.0) + tf.math.log_sigmoid(raw) + tf.math.log_sigmoid(-raw))[
    ..., 0
  ]


def _log_prior_of_path(path, raw_first, raw_second):
  """Returns the log density of a given both partial autocorrelations."""
  first, second = tf.tanh(0.5 * raw_first), tf.tanh(0.5 * raw_second)
  log_first = _log_one_minus_square(raw_first)
  log_second = _log_one_minus_square(raw_second)
  num_later = path.shape[-1] - 2
  later = (
    path[..., 2:]
    - over_days(first * (1.0 - second), num_later) * path[..., 1:-1]
    - over_days(second, num_later) * path[..., :-2]
  )
  start = tf.exp(log_first + log_second) * tf.square(path[..., 0])
  step = path[..., 1] - first[..., 0] * path[..., 0]
  quadratic = (
    start + tf.exp(log_second) * tf.square(step) + sum_days(tf.square(later))
  )
  return 0.5 * log_first + log_second - 0.5 * quadratic


@TARGETS.register('ar2_stochastic_volatility')
class Ar2StochasticVolatility(TargetParameters):
  """Volatility of S&P 500 returns, second-order path, then 4 globals."""

  num_days: int = Field(2516, ge=3, le=2516)

  def build(self, context):
    returns = gym_data.sp500_returns(num_points=self.num_days)
    return ar2_stochastic_volatility_target(
      returns['centered_returns'], context.dtype
    )
