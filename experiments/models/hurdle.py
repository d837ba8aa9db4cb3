"""Counts with many zeros: a hurdle, and Poisson above it, at 25 sites.

  gate_bias ~ N(0, 1.5^2),  gate_slope_k ~ N(0, 1),  k = 1..4
  P(count_i > 0) = sigmoid(gate_bias + features_i . gate_slope)
  spread ~ HalfNormal(1),  mean ~ N(0, 1.5^2),  slope_k ~ N(0, 1)
  site_j ~ N(mean, spread^2)
  log rate_i = site_{j(i)} + features_i . slope
  count_i | count_i > 0 ~ Poisson(rate_i) truncated at zero

Sites are centered, and some have few counts above zero. Data: simulated at a
fixed seed from this model, 16 rows of each site.
"""

import numpy as np


def data():
  rng = np.random.RandomState(103)
  site_of = np.repeat(np.arange(25), 16)
  features = rng.normal(size=(400, 4))
  gate = -0.7 + features @ np.array([0.9, 0.0, -0.6, 0.3])
  positive = rng.uniform(size=400) < 1.0 / (1.0 + np.exp(-gate))
  site = rng.normal(0.3, 0.4, size=25)
  rate = np.exp(site[site_of] + features @ np.array([0.3, -0.4, 0.0, 0.2]))
  # Draw a Poisson number above zero: the time of the first event comes from an
  # Exponential cut at one. Then draw the events in the remaining time.
  first = -np.log1p(rng.uniform(size=400) * np.expm1(-rate))
  count = 1 + rng.poisson(rate - first)
  return dict(
    count=np.where(positive, count, 0).astype(np.int64),
    site_of=site_of.astype(np.int32),
    features=features,
  )


def tfp_model(count, site_of, features):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions
  features = np.float32(features)
  rows = np.flatnonzero(count)

  class PositivePoisson(tfd.Poisson):
    def _log_prob(self, x):
      return super()._log_prob(x) - tfp.math.log1mexp(self.rate)

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    gate_bias = yield tfd.Normal(0.0, 1.5, name='gate_bias')
    gate_slope = yield tfd.Sample(tfd.Normal(0.0, 1.0), 4, name='gate_slope')
    mean = yield tfd.Normal(0.0, 1.5, name='mean')
    spread = yield tfd.HalfNormal(1.0, name='spread')
    slope = yield tfd.Sample(tfd.Normal(0.0, 1.0), 4, name='slope')
    site = yield tfd.Sample(tfd.Normal(mean, spread), 25, name='site')
    gate = gate_bias + tf.linalg.matvec(features, gate_slope)
    yield tfd.Bernoulli(logits=gate, name='is_positive')
    log_rate = tf.gather(site, site_of[rows])
    log_rate += tf.linalg.matvec(features[rows], slope)
    yield PositivePoisson(tf.exp(log_rate), name='positive')

  return model.experimental_pin(
    is_positive=np.int32(count > 0), positive=np.float32(count[rows])
  )


def numpyro_model(count, site_of, features):
  import jax
  import jax.numpy as jnp
  import numpyro
  from numpyro import distributions as dist

  def model():
    gate_bias = numpyro.sample('gate_bias', dist.Normal(0.0, 1.5))
    mean = numpyro.sample('mean', dist.Normal(0.0, 1.5))
    spread = numpyro.sample('spread', dist.HalfNormal(1.0))
    with numpyro.plate('columns', 4):
      gate_slope = numpyro.sample('gate_slope', dist.Normal(0.0, 1.0))
      slope = numpyro.sample('slope', dist.Normal(0.0, 1.0))
    with numpyro.plate('sites', 25):
      site = numpyro.sample('site', dist.Normal(mean, spread))
    zero = jax.nn.sigmoid(-gate_bias - features @ gate_slope)
    rate = jnp.exp(site[site_of] + features @ slope)
    with numpyro.plate('rows', count.size):
      numpyro.sample('count', dist.HurdlePoisson(zero, rate), obs=count)

  return model


def pymc_model(count, site_of, features):
  import pymc as pm

  with pm.Model() as model:
    gate_bias = pm.Normal('gate_bias', 0.0, 1.5)
    gate_slope = pm.Normal('gate_slope', 0.0, 1.0, shape=4)
    mean = pm.Normal('mean', 0.0, 1.5)
    spread = pm.HalfNormal('spread', 1.0)
    slope = pm.Normal('slope', 0.0, 1.0, shape=4)
    site = pm.Normal('site', mean, spread, shape=25)
    positive = pm.math.sigmoid(gate_bias + features @ gate_slope)
    rate = pm.math.exp(site[site_of] + features @ slope)
    pm.HurdlePoisson('count', psi=positive, mu=rate, observed=count)
  return model
