"""A local linear trend in 100 days: level and slope are random walks.

  slope_noise ~ HalfNormal(0.2),  level_noise ~ HalfNormal(0.5)
  slope_1 ~ N(0, 0.5^2),  slope_t ~ N(slope_{t-1}, slope_noise^2)
  level_1 ~ N(0, 5^2),  level_t ~ N(level_{t-1} + slope_{t-1}, level_noise^2)
  noise ~ HalfNormal(1),  seen_t ~ N(level_t, noise^2)

Both paths are centered: with a smaller noise, a path is stiffer. Data:
simulated at a fixed seed from this model.
"""

import numpy as np


def data():
  rng = np.random.RandomState(115)
  slope = 0.1 + np.cumsum(0.06 * rng.normal(size=100))
  level = np.cumsum(slope + 0.25 * rng.normal(size=100))
  return dict(seen=level + 0.6 * rng.normal(size=100))


def tfp_model(seen):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    slope_noise = yield tfd.HalfNormal(0.2, name='slope_noise')
    level_noise = yield tfd.HalfNormal(0.5, name='level_noise')
    noise = yield tfd.HalfNormal(1.0, name='noise')
    slope = yield tfd.MarkovChain(
      tfd.Normal(0.0, 0.5),
      lambda _, before: tfd.Normal(before, slope_noise),
      num_steps=100,
      name='slope',
    )
    level = yield tfd.MarkovChain(
      tfd.Normal(0.0, 5.0),
      lambda t, before: tfd.Normal(before + tf.gather(slope, t), level_noise),
      num_steps=100,
      name='level',
    )
    yield tfd.Normal(level, noise, name='seen')

  return model.experimental_pin(seen=np.float32(seen))


def numpyro_model(seen):
  import jax.numpy as jnp
  import numpyro
  from numpyro import distributions as dist

  real = dist.constraints.real_vector

  def walk(name, first, drift, scale):
    path = numpyro.sample(name, dist.ImproperUniform(real, (), (100,)))
    steps = dist.Normal(drift, scale).log_prob(jnp.diff(path))
    numpyro.factor(f'{name}_walk', first.log_prob(path[0]) + steps.sum())
    return path

  def model():
    slope_noise = numpyro.sample('slope_noise', dist.HalfNormal(0.2))
    level_noise = numpyro.sample('level_noise', dist.HalfNormal(0.5))
    noise = numpyro.sample('noise', dist.HalfNormal(1.0))
    slope = walk('slope', dist.Normal(0.0, 0.5), 0.0, slope_noise)
    level = walk('level', dist.Normal(0.0, 5.0), slope[:-1], level_noise)
    with numpyro.plate('days', 100):
      numpyro.sample('seen', dist.Normal(level, noise), obs=seen)

  return model


def pymc_model(seen):
  import pymc as pm
  import pytensor.tensor as pt

  with pm.Model() as model:
    slope_noise = pm.HalfNormal('slope_noise', 0.2)
    level_noise = pm.HalfNormal('level_noise', 0.5)
    noise = pm.HalfNormal('noise', 1.0)
    slope = pm.GaussianRandomWalk(
      'slope',
      sigma=slope_noise,
      init_dist=pm.Normal.dist(0.0, 0.5),
      steps=99,
    )
    # PyMC's walk has one drift, but this walk has a drift for each day.
    level = pm.Flat('level', shape=100, initval=seen)
    pm.Potential('first', pm.logp(pm.Normal.dist(0.0, 5.0), level[0]))
    steps = pm.Normal.dist(slope[:-1], level_noise)
    pm.Potential('level_walk', pm.logp(steps, pt.diff(level)).sum())
    pm.Normal('seen', level, noise, observed=seen)
  return model
