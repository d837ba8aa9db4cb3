"""Radon: a level and an effect of the floor for every county.

  mean_a, mean_b ~ N(0, 2^2),  spread_a, spread_b, sigma ~ HalfNormal(1)
  z_a_j, z_b_j ~ N(0, 1)
  a_j = mean_a + spread_a z_a_j,  b_j = mean_b + spread_b z_b_j
  y_i ~ N(a_j + b_j floor_i, sigma^2),  j = county_i

The model is non-centered. Data: 919 houses in 85 counties of very different
size, simulated at the estimates for Minnesota of Gelman and Hill (2007),
chapter 13.
"""

import numpy as np

_NUM_COUNTIES = 85


def data():
  """Returns county, floor and y, each [919]; some counties have 1 or 2 rows."""
  random = np.random.RandomState(919)
  shares = random.dirichlet(np.full(_NUM_COUNTIES, 0.8))
  sizes = 1 + random.multinomial(919 - _NUM_COUNTIES, shares)
  county = np.repeat(np.arange(_NUM_COUNTIES), sizes)
  floor = np.float64(random.uniform(size=919) < 0.17)
  a, b = random.normal(size=[2, _NUM_COUNTIES])
  line = 1.46 + 0.35 * a[county] + (-0.68 + 0.34 * b[county]) * floor
  y = line + 0.75 * random.normal(size=919)
  return dict(county=county.astype(np.int32), floor=floor, y=y)


def tfp_model(county, floor, y):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions
  Root = tfd.JointDistributionCoroutine.Root
  floor = np.float32(floor)

  @tfd.JointDistributionCoroutine
  def model():
    mean_a = yield Root(tfd.Normal(0.0, 2.0, name='mean_a'))
    mean_b = yield Root(tfd.Normal(0.0, 2.0, name='mean_b'))
    spread_a = yield Root(tfd.HalfNormal(1.0, name='spread_a'))
    spread_b = yield Root(tfd.HalfNormal(1.0, name='spread_b'))
    sigma = yield Root(tfd.HalfNormal(1.0, name='sigma'))
    standard = tfd.Sample(tfd.Normal(0.0, 1.0), _NUM_COUNTIES)
    z_a = yield Root(standard.copy(name='z_a'))
    z_b = yield Root(standard.copy(name='z_b'))
    a = mean_a[..., tf.newaxis] + spread_a[..., tf.newaxis] * z_a
    b = mean_b[..., tf.newaxis] + spread_b[..., tf.newaxis] * z_b
    line = tf.gather(a, county, axis=-1)
    line += tf.gather(b, county, axis=-1) * floor
    yield tfd.Independent(tfd.Normal(line, sigma[..., tf.newaxis]), 1, name='y')

  return model.experimental_pin(y=np.float32(y))


def numpyro_model(county, floor, y):
  import numpyro
  from numpyro import distributions as dist

  def model():
    mean_a = numpyro.sample('mean_a', dist.Normal(0.0, 2.0))
    mean_b = numpyro.sample('mean_b', dist.Normal(0.0, 2.0))
    spread_a = numpyro.sample('spread_a', dist.HalfNormal(1.0))
    spread_b = numpyro.sample('spread_b', dist.HalfNormal(1.0))
    sigma = numpyro.sample('sigma', dist.HalfNormal(1.0))
    with numpyro.plate('counties', _NUM_COUNTIES):
      z_a = numpyro.sample('z_a', dist.Normal(0.0, 1.0))
      z_b = numpyro.sample('z_b', dist.Normal(0.0, 1.0))
    a, b = mean_a + spread_a * z_a, mean_b + spread_b * z_b
    with numpyro.plate('houses', len(y)):
      line = a[county] + b[county] * floor
      numpyro.sample('y', dist.Normal(line, sigma), obs=y)

  return model


def pymc_model(county, floor, y):
  import pymc as pm

  with pm.Model() as model:
    mean_a = pm.Normal('mean_a', 0.0, 2.0)
    mean_b = pm.Normal('mean_b', 0.0, 2.0)
    spread_a = pm.HalfNormal('spread_a', 1.0)
    spread_b = pm.HalfNormal('spread_b', 1.0)
    sigma = pm.HalfNormal('sigma', 1.0)
    z_a = pm.Normal('z_a', 0.0, 1.0, shape=_NUM_COUNTIES)
    z_b = pm.Normal('z_b', 0.0, 1.0, shape=_NUM_COUNTIES)
    a, b = mean_a + spread_a * z_a, mean_b + spread_b * z_b
    pm.Normal('y', a[county] + b[county] * floor, sigma, observed=y)
  return model
