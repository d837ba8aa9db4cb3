"""Stochastic volatility of the S&P 500, as in the tutorials of the peers.

  step ~ Exponential(50),  nu ~ Exponential(0.1)
  volatility_t ~ N(volatility_{t-1}, step^2),  volatility_0 = 0
  returns_t ~ StudentT(nu, 0, exp(volatility_t)),  t = 1, ..., 500

The unknown is the path, whose neighbors are closer with a smaller step. Data:
logarithmic returns in percent of the last 500 days to June 2020, from the
closing prices of inference_gym. Model: Hoffman and Gelman (2014), section 4.4,
with the priors of the tutorials.
"""

import numpy as np


def data():
  from inference_gym.internal.datasets import sp500_closing_prices

  prices = sp500_closing_prices.CLOSING_PRICES[-501:]
  return dict(returns=100.0 * np.diff(np.log(prices)))


def tfp_model(returns):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions
  Root = tfd.JointDistributionCoroutine.Root

  @tfd.JointDistributionCoroutine
  def model():
    step = yield Root(tfd.Exponential(50.0, name='step'))
    nu = yield Root(tfd.Exponential(0.1, name='nu'))
    volatility = yield tfd.MarkovChain(
      tfd.Normal(tf.zeros_like(step), step),
      lambda _, before: tfd.Normal(before, step),
      num_steps=len(returns),
      name='volatility',
    )
    yield tfd.Independent(
      tfd.StudentT(nu[..., tf.newaxis], 0.0, tf.exp(volatility)),
      1,
      name='returns',
    )

  return model.experimental_pin(returns=np.float32(returns))


def numpyro_model(returns):
  import numpyro
  from jax import numpy as jnp
  from numpyro import distributions as dist

  def model():
    step = numpyro.sample('step', dist.Exponential(50.0))
    nu = numpyro.sample('nu', dist.Exponential(0.1))
    volatility = numpyro.sample(
      'volatility', dist.GaussianRandomWalk(step, num_steps=len(returns))
    )
    numpyro.sample(
      'returns', dist.StudentT(nu, 0.0, jnp.exp(volatility)), obs=returns
    )

  return model


def pymc_model(returns):
  import pymc as pm

  with pm.Model() as model:
    step = pm.Exponential('step', 50.0)
    nu = pm.Exponential('nu', 0.1)
    volatility = pm.GaussianRandomWalk(
      'volatility',
      sigma=step,
      init_dist=pm.Normal.dist(0.0, step),
      shape=len(returns),
    )
    pm.StudentT(
      'returns', nu, 0.0, sigma=pm.math.exp(volatility), observed=returns
    )
  return model
