"""Twenty-five studies of one effect, with outliers: heavy tails.

  mean ~ N(0, 1),  spread ~ HalfCauchy(0.3),  df ~ Gamma(2, rate=0.1)
  effect_j ~ StudentT(df, mean, spread),  seen_j ~ N(effect_j, errors_j^2)

Effects are centered. Data: log odds ratios simulated at a fixed seed. Most of
their differences are due to errors, and three studies are outliers.
"""

import numpy as np


def data():
  rng = np.random.RandomState(111)
  errors = np.exp(rng.normal(-1.4, 0.5, size=25))
  effect = 0.3 + 0.1 * rng.normal(size=25)
  effect[[4, 11, 19]] += [1.2, -0.9, 1.6]
  return dict(seen=rng.normal(effect, errors), errors=errors)


def tfp_model(seen, errors):
  import tensorflow_probability as tfp

  tfd = tfp.distributions
  errors = np.float32(errors)

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    mean = yield tfd.Normal(0.0, 1.0, name='mean')
    spread = yield tfd.HalfCauchy(0.0, 0.3, name='spread')
    df = yield tfd.Gamma(2.0, 0.1, name='df')
    effect = yield tfd.Sample(tfd.StudentT(df, mean, spread), 25, name='effect')
    yield tfd.Normal(effect, errors, name='seen')

  return model.experimental_pin(seen=np.float32(seen))


def numpyro_model(seen, errors):
  import numpyro
  from numpyro import distributions as dist

  def model():
    mean = numpyro.sample('mean', dist.Normal(0.0, 1.0))
    spread = numpyro.sample('spread', dist.HalfCauchy(0.3))
    df = numpyro.sample('df', dist.Gamma(2.0, 0.1))
    with numpyro.plate('studies', 25):
      effect = numpyro.sample('effect', dist.StudentT(df, mean, spread))
      numpyro.sample('seen', dist.Normal(effect, errors), obs=seen)

  return model


def pymc_model(seen, errors):
  import pymc as pm

  with pm.Model() as model:
    mean = pm.Normal('mean', 0.0, 1.0)
    spread = pm.HalfCauchy('spread', 0.3)
    df = pm.Gamma('df', 2.0, 0.1)
    effect = pm.StudentT('effect', nu=df, mu=mean, sigma=spread, shape=25)
    pm.Normal('seen', effect, errors, observed=seen)
  return model
