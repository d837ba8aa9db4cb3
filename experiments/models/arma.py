"""A series with memory of itself and of its noise: ARMA(1, 1).

  mean ~ N(0, 5^2),  phi ~ Uniform(-1, 1),  theta ~ Uniform(-1, 1)
  noise ~ HalfNormal(2)
  error_1 = seen_1 - mean
  error_t = seen_t - mean - phi (seen_{t-1} - mean) - theta error_{t-1}
  error_t ~ N(0, noise^2)

Near phi = -theta both terms cancel, which makes a ridge. Data: simulated at a
fixed seed with phi = 0.8 and theta = -0.5, 200 values.
"""

import numpy as np


def data():
  rng = np.random.RandomState(107)
  errors = rng.normal(scale=1.5, size=300)
  seen = [2.0]
  for before, now in zip(errors[:-1], errors[1:]):
    seen.append(2.0 + 0.8 * (seen[-1] - 2.0) - 0.5 * before + now)
  return dict(seen=np.array(seen[-200:]))


def tfp_model(seen):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions
  Root = tfd.JointDistributionCoroutine.Root
  seen = np.float32(seen)

  # XLA cannot compile a vectorized scan. Batches are explicit; time is last.
  @tfd.JointDistributionCoroutine
  def model():
    mean = yield Root(tfd.Normal(0.0, 5.0, name='mean'))
    phi = yield Root(tfd.Uniform(-1.0, 1.0, name='phi'))
    theta = yield Root(tfd.Uniform(-1.0, 1.0, name='theta'))
    noise = yield Root(tfd.HalfNormal(2.0, name='noise'))

    def forecast(carry, pair):
      before, now = pair
      value = mean + phi * (before - mean) + theta * carry[1]
      return value, now - value

    later, _ = tf.scan(
      forecast, (seen[:-1], seen[1:]), initializer=(mean, seen[0] - mean)
    )
    values = tf.concat(
      [mean[..., tf.newaxis], tf.einsum('t...->...t', later)], axis=-1
    )
    yield tfd.Independent(
      tfd.Normal(values, noise[..., tf.newaxis]), 1, name='seen'
    )

  return model.experimental_pin(seen=seen)


def numpyro_model(seen):
  import jax
  import jax.numpy as jnp
  import numpyro
  from numpyro import distributions as dist

  def model():
    mean = numpyro.sample('mean', dist.Normal(0.0, 5.0))
    phi = numpyro.sample('phi', dist.Uniform(-1.0, 1.0))
    theta = numpyro.sample('theta', dist.Uniform(-1.0, 1.0))
    noise = numpyro.sample('noise', dist.HalfNormal(2.0))

    def forecast(error, pair):
      before, now = pair
      value = mean + phi * (before - mean) + theta * error
      return now - value, value

    pairs = jnp.asarray(seen[:-1]), jnp.asarray(seen[1:])
    _, later = jax.lax.scan(forecast, seen[0] - mean, pairs)
    values = jnp.concatenate([mean[None], later])
    with numpyro.plate('times', seen.size):
      numpyro.sample('seen', dist.Normal(values, noise), obs=seen)

  return model


def pymc_model(seen):
  import pymc as pm
  import pytensor
  import pytensor.tensor as pt

  def step(before, now, error, mean, phi, theta):
    return now - mean - phi * (before - mean) - theta * error

  with pm.Model() as model:
    mean = pm.Normal('mean', 0.0, 5.0)
    phi = pm.Uniform('phi', -1.0, 1.0)
    theta = pm.Uniform('theta', -1.0, 1.0)
    noise = pm.HalfNormal('noise', 2.0)
    first = seen[0] - mean
    later, _ = pytensor.scan(
      step,
      sequences=[pt.as_tensor(seen[:-1]), pt.as_tensor(seen[1:])],
      outputs_info=[first],
      non_sequences=[mean, phi, theta],
    )
    values = seen - pt.concatenate([first[None], later])
    pm.Normal('seen', values, noise, observed=seen)
  return model
