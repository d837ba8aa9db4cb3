"""Logistic growth of twenty subjects: nonlinear mixed effects.

  means_k ~ N(loc_k, 1),  spreads_k ~ HalfNormal(0.5),  k = 1..3
  subject_i ~ N(means, diag(spreads^2)): logs of asymptote, midpoint and width
  size_it = asymptote_i / (1 + exp(-(t - midpoint_i) / width_i))
  noise ~ HalfNormal(1),  seen_it ~ N(size_it, noise^2)
  loc = log(10, 5, 1)

Subjects are centered. Data: simulated at a fixed seed from this model, eight
times for each subject. Half of the subjects are observed only before they are
grown.
"""

import numpy as np

_LOC = np.log([10.0, 5.0, 1.0])


def data():
  rng = np.random.RandomState(112)
  asymptote, midpoint, width = np.exp(
    _LOC + np.array([0.2, 0.15, 0.3]) * rng.normal(size=(20, 3))
  ).T[..., None]
  times = np.where(np.arange(20)[:, None] < 10, 5.5, 10.0)
  times = times * np.linspace(0.1, 1.0, 8)
  size = asymptote / (1.0 + np.exp(-(times - midpoint) / width))
  return dict(seen=size + 0.4 * rng.normal(size=(20, 8)), times=times)


def tfp_model(seen, times):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions
  times = np.float32(times)

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    means = yield tfd.Normal(np.float32(_LOC), 1.0, name='means')
    spreads = yield tfd.Sample(tfd.HalfNormal(0.5), 3, name='spreads')
    subject = yield tfd.Sample(
      tfd.MultivariateNormalDiag(means, spreads), 20, name='subject'
    )
    noise = yield tfd.HalfNormal(1.0, name='noise')
    asymptote, midpoint, width = tf.split(tf.exp(subject), 3, axis=-1)
    size = asymptote * tf.sigmoid((times - midpoint) / width)
    yield tfd.Normal(size, noise, name='seen')

  return model.experimental_pin(seen=np.float32(seen))


def numpyro_model(seen, times):
  import jax
  import jax.numpy as jnp
  import numpyro
  from numpyro import distributions as dist

  def model():
    with numpyro.plate('parameters', 3):
      means = numpyro.sample('means', dist.Normal(_LOC, 1.0))
      spreads = numpyro.sample('spreads', dist.HalfNormal(0.5))
    with numpyro.plate('subjects', 20):
      subject = numpyro.sample(
        'subject', dist.Normal(means, spreads).to_event(1)
      )
    noise = numpyro.sample('noise', dist.HalfNormal(1.0))
    asymptote, midpoint, width = jnp.exp(subject).T[..., None]
    size = asymptote * jax.nn.sigmoid((times - midpoint) / width)
    with numpyro.plate('rows', 20, dim=-2), numpyro.plate('times', 8):
      numpyro.sample('seen', dist.Normal(size, noise), obs=seen)

  return model


def pymc_model(seen, times):
  import pymc as pm

  with pm.Model() as model:
    means = pm.Normal('means', _LOC, 1.0)
    spreads = pm.HalfNormal('spreads', 0.5, shape=3)
    subject = pm.Normal('subject', means, spreads, shape=(20, 3))
    noise = pm.HalfNormal('noise', 1.0)
    natural = pm.math.exp(subject)
    asymptote, midpoint, width = (natural[:, k, None] for k in range(3))
    size = asymptote * pm.math.sigmoid((times - midpoint) / width)
    pm.Normal('seen', size, noise, observed=seen)
  return model
