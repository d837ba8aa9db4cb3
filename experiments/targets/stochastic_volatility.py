"""Stochastic volatility of S&P 500 returns: an AR(1) path and three globals.

  persistence ~ 2 Beta(20, 1.5) - 1    mean ~ Cauchy(0, m)
  shock_scale ~ HalfCauchy(0, s)       m, s = 5, 2 (gym) or 2, 1 (paper)
  a_0 ~ N(0, 1 / (1 - persistence^2)), a_t ~ N(persistence a_{t-1}, 1)
  h_t = mean + shock_scale a_t         log volatility
  y_t ~ N(0, exp(h_t))                 mean-adjusted return of day t

The state is one vector: the path, mean, logit((1 + persistence) / 2) and
softplus^-1(shock_scale), with the maps of inference_gym. The path has four
forms, between which `volatility_forms` converts:

  scaled        a
  centered      h
  zero_mean     h - mean, as in the paper
  non_centered  innovations of a, as in inference_gym

Given the globals, a and h have a tridiagonal prior precision and a likelihood
that factorizes over days. Innovations have neither. The target is hard, because
the scale of the shocks bends the path. Neighbors are correlated over
persistence / (1 - persistence) days.

References: Kim, Shephard and Chib (1998); Hirt, Titsias and Dellaportas (2021),
4.4, https://arxiv.org/abs/2110.14625.
"""

from typing import Literal

import inference_gym.using_tensorflow as gym
import numpy as np
import tensorflow as tf
from inference_gym.internal import data as gym_data
from pydantic import Field

import tfp_adaptive as tfpa
from experiments.targets import gym as gym_targets
from experiments.targets import jax_density
from experiments.targets import volatility_forms
from experiments.targets.autoregression import over_days
from experiments.targets.autoregression import sum_days
from experiments.targets.base import Form
from experiments.targets.base import Hierarchy
from experiments.targets.base import Target
from experiments.targets.base import TargetParameters
from experiments.targets.registry import TARGETS

# Scales of the Cauchy priors of the mean and of the shock scale.
PRIOR_SCALES = {'gym': (5.0, 2.0), 'paper': (2.0, 1.0)}
_NUM_GLOBALS = 3


def stochastic_volatility_target(
  returns, parameterization='scaled', prior='gym', dtype='float32'
):
  """Returns the posterior of path and globals given returns.

  Args:
    returns: [num_days] mean-adjusted returns.
    prior: 'gym' or 'paper', the scales of the two Cauchy priors.

  Returns:
    A `Target` of event size num_days + 3, with the other parameterizations as
    its `forms`. Its suggested start is a flat path at the returns' variance,
    persistence 0.95 and shock scale 0.2.
  """
  squares = np.square(np.asarray(returns, np.float64))
  num_days = len(squares)

  def constrain(states):
    values = volatility_forms.read(states, parameterization)
    return {
      'mean_log_volatility': values.mean[..., 0].numpy(),
      'persistence_of_volatility': values.persistence[..., 0].numpy(),
      'white_noise_shock_scale': values.shock_scale[..., 0].numpy(),
      'log_volatility': _log_volatility(values).numpy(),
    }

  level = np.log(squares.mean())
  path_start = level if parameterization == 'centered' else 0.0
  globals_start = [level, np.log(0.975 / 0.025), np.log(np.expm1(0.2))]
  return Target(
    name=f'stochastic_volatility_{parameterization}',
    target_log_prob_fn=_log_prob_fn(squares, parameterization, prior),
    event_size=num_days + _NUM_GLOBALS,
    dtype=dtype,
    constrain=constrain,
    suggested_start=np.append(np.full(num_days, path_start), globals_start),
    forms=_forms(squares, parameterization, prior),
    structures=None
    if parameterization == 'non_centered'
    else {'arrow': {'num_globals': _NUM_GLOBALS}},
    **(_of_centered(squares, prior) if parameterization == 'centered' else {}),
  )


def ground_truth(num_days, returns=None):
  """Returns inference_gym's posterior moments, or None without any.

  Args:
    num_days: Days of S&P 500 returns. Moments for all days and for the last
      100 are known.
    returns: 'log' for the returns of log prices.

  Returns:
    {name: (mean, standard deviation, standard error of that mean)}, numpy
    arrays, from 20000 draws of Stan under the priors 'gym'.
  """
  sizes = {2516: '', 100: 'Small'}
  if num_days not in sizes:
    return None
  kind = 'LogSP500' if returns == 'log' else 'SP500'
  name = f'VectorizedStochasticVolatility{kind}{sizes[num_days]}'
  moments = getattr(gym.targets, name)().sample_transformations['identity']
  return gym_targets.ground_truth(moments)


def log_likelihood(path, squares):
  """Returns the log density of the returns, up to a constant, [chains...].

  Args:
    path: [chains..., num_days] log volatilities.
    squares: [num_days] numpy float64, squared returns.
  """
  # Squares are divided by their mean, so that float32 sums numbers near one.
  level = np.log(squares.mean())
  relative = path - tf.cast(level, path.dtype)
  weights = tf.constant(squares / np.exp(level), path.dtype)
  return -0.5 * sum_days(relative + weights * tf.exp(-relative))


def log_prior_of_level(mean, raw_shock_scale, prior):
  """Returns the log prior of the mean and of softplus^-1(shock_scale)."""
  mean_scale, shock_scale_scale = PRIOR_SCALES[prior]
  shock_scale = tf.math.softplus(raw_shock_scale)
  return (
    -tf.math.log1p(tf.square(mean / mean_scale))
    - tf.math.log1p(tf.square(shock_scale / shock_scale_scale))
    + tf.math.log_sigmoid(raw_shock_scale)
  )


def _log_volatility(values):
  """Returns h, [chains..., num_days]."""
  num_days = values.scaled_path.shape[-1]
  return over_days(values.mean, num_days) + values.scaled_path * over_days(
    values.shock_scale, num_days
  )


def _log_prob_fn(squares, parameterization, prior):
  """Returns the log density of a state in one parameterization."""

  def target_log_prob_fn(x):
    _, mean, raw_persistence, raw_shock_scale = volatility_forms.split(x)
    values = volatility_forms.read(x, parameterization)
    return (
      log_likelihood(_log_volatility(values), squares)
      + values.log_prior_of_path
      + log_prior_of_level(mean[..., 0], raw_shock_scale[..., 0], prior)
      + _log_prior_of_persistence(raw_persistence[..., 0])
    )

  return target_log_prob_fn


def _of_centered(squares, prior):
  """Returns the fields of a `Target` that only the centered form has."""
  density = jax_density.centered_volatility(squares, PRIOR_SCALES[prior])
  hierarchy = _hierarchy(squares, prior)
  return {'hierarchy': hierarchy, 'jax_log_prob_fn': density}


def _hierarchy(squares, prior):
  """Returns the model as a likelihood of h and an AR(1) prior with globals."""

  def prior_fn(theta):
    mean, raw_persistence, raw_shock_scale = tf.split(theta, 3, axis=-1)
    return tfpa.gaussian_priors.autoregression(
      tf.tanh(0.5 * raw_persistence),
      tf.math.softplus(raw_shock_scale)[..., 0],
      len(squares),
      mean=mean,
    )

  def hyper_log_prob_fn(theta):
    mean, raw_persistence, raw_shock_scale = tf.unstack(theta, axis=-1)
    return log_prior_of_level(
      mean, raw_shock_scale, prior
    ) + _log_prior_of_persistence(raw_persistence)

  return Hierarchy(
    lambda path: log_likelihood(path, squares),
    prior_fn,
    hyper_log_prob_fn,
    len(squares),
  )


def _forms(squares, parameterization, prior):
  """Returns {name: Form} of the other parameterizations."""

  def form(name):
    return Form(
      _log_prob_fn(squares, name, prior),
      lambda x: volatility_forms.convert(x, parameterization, name),
      lambda x: volatility_forms.convert(x, name, parameterization),
    )

  names = set(volatility_forms.FORMS) - {parameterization}
  return {name: form(name) for name in sorted(names)}


def _log_prior_of_persistence(raw):
  # Beta(20, 1.5) of sigmoid(raw), and the derivative of the sigmoid.
  return 20.0 * tf.math.log_sigmoid(raw) + 1.5 * tf.math.log_sigmoid(-raw)


@TARGETS.register('stochastic_volatility')
class StochasticVolatility(TargetParameters):
  """Volatility of S&P 500 returns: the path of the last days, 3 globals."""

  num_days: int = Field(2516, ge=2, le=2516)
  parameterization: Literal[
    'scaled', 'centered', 'zero_mean', 'non_centered'
  ] = 'scaled'
  prior: Literal['gym', 'paper'] = 'gym'
  returns: Literal['log'] | None = Field(
    None, description='log: returns of log prices; None: of prices'
  )

  def build(self, context):
    is_log = self.returns == 'log'
    load = gym_data.sp500_log_returns if is_log else gym_data.sp500_returns
    returns = load(num_points=self.num_days)
    target = stochastic_volatility_target(
      returns['centered_returns'],
      self.parameterization,
      self.prior,
      context.dtype,
    )
    is_known = self.prior == 'gym'
    truth = ground_truth(self.num_days, self.returns) if is_known else None
    return target._replace(ground_truth=truth)
