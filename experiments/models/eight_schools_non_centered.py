"""Effects of training in eight schools, in units of their spread.

  mean ~ N(0, 5^2),  spread ~ HalfCauchy(5),  standard_j ~ N(0, 1)
  effect_j = mean + spread standard_j,  seen_j ~ N(effect_j, errors_j^2)

This is the posterior of eight_schools.py, non-centered. Data: Rubin (1981).
Prior: Gelman (2006).
"""

import numpy as np


def data():
  # Only the environment of this project, which has the package, reads data.
  from experiments.models import eight_schools

  return eight_schools.data()


def tfp_model(seen, errors):
  import tensorflow_probability as tfp

  tfd = tfp.distributions

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    mean = yield tfd.Normal(0.0, 5.0, name='mean')
    spread = yield tfd.HalfCauchy(0.0, 5.0, name='spread')
    standard = yield tfd.Sample(tfd.Normal(0.0, 1.0), 8, name='standard')
    effect = mean + spread * standard
    yield tfd.Normal(effect, np.float32(errors), name='seen')

  return model.experimental_pin(seen=np.float32(seen))


def numpyro_model(seen, errors):
  import numpyro
  from numpyro import distributions as dist

  def model():
    mean = numpyro.sample('mean', dist.Normal(0.0, 5.0))
    spread = numpyro.sample('spread', dist.HalfCauchy(5.0))
    with numpyro.plate('schools', 8):
      standard = numpyro.sample('standard', dist.Normal(0.0, 1.0))
      effect = mean + spread * standard
      numpyro.sample('seen', dist.Normal(effect, errors), obs=seen)

  return model


def pymc_model(seen, errors):
  import pymc as pm

  with pm.Model() as model:
    mean = pm.Normal('mean', 0.0, 5.0)
    spread = pm.HalfCauchy('spread', 5.0)
    standard = pm.Normal('standard', 0.0, 1.0, shape=8)
    pm.Normal('seen', mean + spread * standard, errors, observed=seen)
  return model
