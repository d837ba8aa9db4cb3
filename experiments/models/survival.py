"""Censored times to death at twenty centers: Weibull with frailties.

  shape ~ LogNormal(0, 0.5),  mean ~ N(1, 2^2),  spread ~ HalfNormal(1)
  slope_k ~ N(0, 1),  k = 1..4,  center_j ~ N(mean, spread^2)
  log scale_i = center_{j(i)} + features_i . slope
  time_i ~ Weibull(shape, scale_i)
  P(time_i > t) = exp(-(t / scale_i)^shape)

For patients alive at the end of the study, this last time is known. The effects
of the centers are centered. Data: simulated at a fixed seed from this model,
300 patients.
"""

import numpy as np


def data():
  rng = np.random.RandomState(110)
  center_of = rng.randint(20, size=300)
  features = rng.normal(size=(300, 4))
  center = rng.normal(1.2, 0.5, size=20)
  scale = np.exp(center[center_of] + features @ np.array([-0.4, 0.2, 0.0, 0.3]))
  time = scale * rng.weibull(1.4, size=300)
  end = rng.uniform(1.0, 6.0, size=300)
  return dict(
    time=np.minimum(time, end),
    died=(time <= end).astype(np.int32),
    center_of=center_of.astype(np.int32),
    features=features,
  )


def tfp_model(time, died, center_of, features):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions
  time, features = np.float32(time), np.float32(features)
  dead, alive = np.flatnonzero(died), np.flatnonzero(died == 0)

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    shape = yield tfd.LogNormal(0.0, 0.5, name='shape')
    mean = yield tfd.Normal(1.0, 2.0, name='mean')
    spread = yield tfd.HalfNormal(1.0, name='spread')
    slope = yield tfd.Sample(tfd.Normal(0.0, 1.0), 4, name='slope')
    center = yield tfd.Sample(tfd.Normal(mean, spread), 20, name='center')
    log_scale = tf.gather(center, center_of)
    log_scale += tf.linalg.matvec(features, slope)
    scale = tf.exp(tf.gather(log_scale, dead))
    yield tfd.Weibull(shape, scale, name='time')
    # A patient lives if a Poisson process with this hazard had no event.
    log_hazard = np.log(time[alive]) - tf.gather(log_scale, alive)
    yield tfd.Poisson(log_rate=shape * log_hazard, name='events')

  return model.experimental_pin(
    time=time[dead], events=np.zeros(alive.size, np.float32)
  )


def numpyro_model(time, died, center_of, features):
  import jax.numpy as jnp
  import numpyro
  from numpyro import distributions as dist

  dead, alive = np.flatnonzero(died), np.flatnonzero(died == 0)

  def model():
    shape = numpyro.sample('shape', dist.LogNormal(0.0, 0.5))
    mean = numpyro.sample('mean', dist.Normal(1.0, 2.0))
    spread = numpyro.sample('spread', dist.HalfNormal(1.0))
    with numpyro.plate('columns', 4):
      slope = numpyro.sample('slope', dist.Normal(0.0, 1.0))
    with numpyro.plate('centers', 20):
      center = numpyro.sample('center', dist.Normal(mean, spread))
    scale = jnp.exp(center[center_of] + features @ slope)
    with numpyro.plate('dead', dead.size):
      weibull = dist.Weibull(scale[dead], shape)
      numpyro.sample('time', weibull, obs=time[dead])
    hazard = (time[alive] / scale[alive]) ** shape
    numpyro.factor('alive', -hazard.sum())

  return model


def pymc_model(time, died, center_of, features):
  import pymc as pm

  dead, alive = np.flatnonzero(died), np.flatnonzero(died == 0)

  with pm.Model() as model:
    shape = pm.LogNormal('shape', 0.0, 0.5)
    mean = pm.Normal('mean', 1.0, 2.0)
    spread = pm.HalfNormal('spread', 1.0)
    slope = pm.Normal('slope', 0.0, 1.0, shape=4)
    center = pm.Normal('center', mean, spread, shape=20)
    scale = pm.math.exp(center[center_of] + features @ slope)
    pm.Weibull('time', shape, scale[dead], observed=time[dead])
    hazard = (time[alive] / scale[alive]) ** shape
    pm.Potential('alive', -hazard.sum())
  return model
