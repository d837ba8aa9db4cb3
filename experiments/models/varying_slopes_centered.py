"""Radon: a level and an effect of the floor for every county, centered.

  mean_a, mean_b ~ N(0, 2^2),  spread_a, spread_b, sigma ~ HalfNormal(1)
  a_j ~ N(mean_a, spread_a^2),  b_j ~ N(mean_b, spread_b^2)
  y_i ~ N(a_j + b_j floor_i, sigma^2),  j = county_i

Many counties have little information on b_j, which is narrower with a smaller
spread_b. The posterior and the data are those of varying_slopes.py, which is
non-centered.
"""

import numpy as np

_NUM_COUNTIES = 85


def data():
  """Returns county, floor and y, each [919]."""
  # Only the environment of this project, which has the package, reads data.
  from experiments.models import varying_slopes

  return varying_slopes.data()


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
    a = yield tfd.Sample(tfd.Normal(mean_a, spread_a), _NUM_COUNTIES, name='a')
    b = yield tfd.Sample(tfd.Normal(mean_b, spread_b), _NUM_COUNTIES, name='b')
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
      a = numpyro.sample('a', dist.Normal(mean_a, spread_a))
      b = numpyro.sample('b', dist.Normal(mean_b, spread_b))
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
    a = pm.Normal('a', mean_a, spread_a, shape=_NUM_COUNTIES)
    b = pm.Normal('b', mean_b, spread_b, shape=_NUM_COUNTIES)
    pm.Normal('y', a[county] + b[county] * floor, sigma, observed=y)
  return model
