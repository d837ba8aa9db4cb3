"""Linear regression whose noise has heavy tails of unknown degrees of freedom.

  bias ~ N(0, 5^2),  slope_k ~ N(0, 2^2),  k = 1..10
  scale ~ HalfNormal(2),  df ~ Gamma(2, rate=0.1)
  seen_i ~ StudentT(df, bias + features_i . slope, scale)

Data: simulated at a fixed seed from this model with df 2.5, 200 rows. Columns
are correlated at 0.8.
"""

import numpy as np


def data():
  rng = np.random.RandomState(113)
  features = rng.normal(size=(200, 10)) + 2.0 * rng.normal(size=(200, 1))
  slope = np.array([1.0, -1.0, 0.5, 0.0, 0.0, 2.0, -0.5, 0.0, 0.3, 0.0])
  noise = rng.standard_t(2.5, size=200)
  return dict(seen=1.0 + features @ slope + noise, features=features)


def tfp_model(seen, features):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions
  features = np.float32(features)

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    bias = yield tfd.Normal(0.0, 5.0, name='bias')
    slope = yield tfd.Sample(tfd.Normal(0.0, 2.0), 10, name='slope')
    scale = yield tfd.HalfNormal(2.0, name='scale')
    df = yield tfd.Gamma(2.0, 0.1, name='df')
    line = bias + tf.linalg.matvec(features, slope)
    yield tfd.StudentT(df, line, scale, name='seen')

  return model.experimental_pin(seen=np.float32(seen))


def numpyro_model(seen, features):
  import numpyro
  from numpyro import distributions as dist

  def model():
    bias = numpyro.sample('bias', dist.Normal(0.0, 5.0))
    with numpyro.plate('columns', 10):
      slope = numpyro.sample('slope', dist.Normal(0.0, 2.0))
    scale = numpyro.sample('scale', dist.HalfNormal(2.0))
    df = numpyro.sample('df', dist.Gamma(2.0, 0.1))
    line = bias + features @ slope
    with numpyro.plate('rows', seen.size):
      numpyro.sample('seen', dist.StudentT(df, line, scale), obs=seen)

  return model


def pymc_model(seen, features):
  import pymc as pm

  with pm.Model() as model:
    bias = pm.Normal('bias', 0.0, 5.0)
    slope = pm.Normal('slope', 0.0, 2.0, shape=10)
    scale = pm.HalfNormal('scale', 2.0)
    df = pm.Gamma('df', 2.0, 0.1)
    line = bias + features @ slope
    pm.StudentT('seen', nu=df, mu=line, sigma=scale, observed=seen)
  return model
