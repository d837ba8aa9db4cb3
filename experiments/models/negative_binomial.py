"""Counts of thirty groups, wider than Poisson: negative binomial regression.

  mean ~ N(0, 2^2),  spread ~ HalfNormal(1),  slope_k ~ N(0, 1)
  group_j ~ N(mean, spread^2),  concentration ~ Gamma(2, rate=0.1)
  eta_i = group_{j(i)} + features_i . slope
  count_i ~ NegativeBinomial(mean=exp(eta_i), concentration)
  Var[count_i] = exp(eta_i) + exp(2 eta_i) / concentration

Intercepts are centered. Data: simulated at a fixed seed from this model. Groups
have 3 to 25 rows.
"""

import numpy as np


def data():
  rng = np.random.RandomState(101)
  group_of = np.repeat(np.arange(30), rng.randint(3, 26, size=30))
  features = rng.normal(size=(group_of.size, 3))
  group = rng.normal(1.0, 0.6, size=30)
  eta = group[group_of] + features @ np.array([0.4, -0.3, 0.0])
  # A Poisson with a Gamma rate is negative binomial.
  rate = rng.gamma(1.5, np.exp(eta) / 1.5)
  return dict(
    count=rng.poisson(rate).astype(np.int64),
    group_of=group_of.astype(np.int32),
    features=features,
  )


def tfp_model(count, group_of, features):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions
  features = np.float32(features)

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    mean = yield tfd.Normal(0.0, 2.0, name='mean')
    spread = yield tfd.HalfNormal(1.0, name='spread')
    slope = yield tfd.Sample(tfd.Normal(0.0, 1.0), 3, name='slope')
    concentration = yield tfd.Gamma(2.0, 0.1, name='concentration')
    group = yield tfd.Sample(tfd.Normal(mean, spread), 30, name='group')
    eta = tf.gather(group, group_of) + tf.linalg.matvec(features, slope)
    yield tfd.NegativeBinomial(
      concentration, logits=eta - tf.math.log(concentration), name='count'
    )

  return model.experimental_pin(count=np.float32(count))


def numpyro_model(count, group_of, features):
  import jax.numpy as jnp
  import numpyro
  from numpyro import distributions as dist

  def model():
    mean = numpyro.sample('mean', dist.Normal(0.0, 2.0))
    spread = numpyro.sample('spread', dist.HalfNormal(1.0))
    with numpyro.plate('columns', 3):
      slope = numpyro.sample('slope', dist.Normal(0.0, 1.0))
    concentration = numpyro.sample('concentration', dist.Gamma(2.0, 0.1))
    with numpyro.plate('groups', 30):
      group = numpyro.sample('group', dist.Normal(mean, spread))
    rate = jnp.exp(group[group_of] + features @ slope)
    with numpyro.plate('rows', count.size):
      numpyro.sample(
        'count', dist.NegativeBinomial2(rate, concentration), obs=count
      )

  return model


def pymc_model(count, group_of, features):
  import pymc as pm

  with pm.Model() as model:
    mean = pm.Normal('mean', 0.0, 2.0)
    spread = pm.HalfNormal('spread', 1.0)
    slope = pm.Normal('slope', 0.0, 1.0, shape=3)
    concentration = pm.Gamma('concentration', 2.0, 0.1)
    group = pm.Normal('group', mean, spread, shape=30)
    rate = pm.math.exp(group[group_of] + features @ slope)
    pm.NegativeBinomial('count', mu=rate, alpha=concentration, observed=count)
  return model
