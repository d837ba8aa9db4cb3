"""Effects of training in eight schools, and how much they differ.

  mean ~ N(0, 5^2),  spread ~ HalfCauchy(5)
  effect_j ~ N(mean, spread^2),  seen_j ~ N(effect_j, errors_j^2)

Centered: the smaller the spread, the narrower the effects. Data: Rubin (1981);
prior: Gelman (2006).
"""

import numpy as np

__all__ = ['data', 'numpyro_model', 'pymc_model', 'tfp_model']


def data():
  return dict(
    seen=np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
    errors=np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
  )


def tfp_model(seen, errors):
  import tensorflow_probability as tfp

  tfd = tfp.distributions

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    mean = yield tfd.Normal(0.0, 5.0, name='mean')
    spread = yield tfd.HalfCauchy(0.0, 5.0, name='spread')
    effect = yield tfd.Sample(tfd.Normal(mean, spread), 8, name='effect')
    yield tfd.Normal(effect, np.float32(errors), name='seen')

  return model.experimental_pin(seen=np.float32(seen))


def numpyro_model(seen, errors):
  import numpyro
  from numpyro import distributions as dist

  def model():
    mean = numpyro.sample('mean', dist.Normal(0.0, 5.0))
    spread = numpyro.sample('spread', dist.HalfCauchy(5.0))
    with numpyro.plate('schools', 8):
      effect = numpyro.sample('effect', dist.Normal(mean, spread))
      numpyro.sample('seen', dist.Normal(effect, errors), obs=seen)

  return model


def pymc_model(seen, errors):
  import pymc as pm

  with pm.Model() as model:
    mean = pm.Normal('mean', 0.0, 5.0)
    spread = pm.HalfCauchy('spread', 5.0)
    effect = pm.Normal('effect', mean, spread, shape=8)
    pm.Normal('seen', effect, errors, observed=seen)
  return model
