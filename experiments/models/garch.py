"""Financial returns whose variance depends on earlier returns: GARCH(1, 1).

  drift ~ N(0, 1),  base ~ HalfNormal(1)
  shock ~ Uniform(0, 1),  memory ~ Uniform(0, 1 - shock)
  variance_1 = variance of the returns
  variance_t = base + shock (return_{t-1} - drift)^2 + memory variance_{t-1}
  return_t ~ N(drift, variance_t)

The support of `memory` ends where the process stops being stationary. Data:
simulated at a fixed seed from this model, 400 returns in percent.
"""

import numpy as np


def data():
  rng = np.random.RandomState(106)
  returns, variance = [0.0], 1.0
  for noise in rng.normal(size=500):
    variance = 0.1 + 0.15 * (returns[-1] - 0.05) ** 2 + 0.75 * variance
    returns.append(0.05 + np.sqrt(variance) * noise)
  return dict(returns=np.array(returns[-400:]))


def tfp_model(returns):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions
  Root = tfd.JointDistributionCoroutine.Root
  start = np.float32(np.var(returns))
  returns = np.float32(returns)

  # XLA cannot compile a vectorized scan. Batches are explicit; time is last.
  @tfd.JointDistributionCoroutine
  def model():
    drift = yield Root(tfd.Normal(0.0, 1.0, name='drift'))
    base = yield Root(tfd.HalfNormal(1.0, name='base'))
    shock = yield Root(tfd.Uniform(0.0, 1.0, name='shock'))
    memory = yield tfd.Uniform(0.0, 1.0 - shock, name='memory')
    first = start * tf.ones_like(drift)
    later = tf.scan(
      lambda variance, r: base + shock * (r - drift) ** 2 + memory * variance,
      returns[:-1],
      initializer=first,
    )
    variance = tf.concat(
      [first[..., tf.newaxis], tf.einsum('t...->...t', later)], axis=-1
    )
    yield tfd.Independent(
      tfd.Normal(drift[..., tf.newaxis], tf.sqrt(variance)), 1, name='returns'
    )

  return model.experimental_pin(returns=returns)


def numpyro_model(returns):
  import jax
  import jax.numpy as jnp
  import numpyro
  from numpyro import distributions as dist

  def model():
    drift = numpyro.sample('drift', dist.Normal(0.0, 1.0))
    base = numpyro.sample('base', dist.HalfNormal(1.0))
    shock = numpyro.sample('shock', dist.Uniform(0.0, 1.0))
    memory = numpyro.sample('memory', dist.Uniform(0.0, 1.0 - shock))

    def step(variance, seen):
      new = base + shock * (seen - drift) ** 2 + memory * variance
      return new, new

    start = jnp.asarray(np.var(returns))
    _, later = jax.lax.scan(step, start, jnp.asarray(returns[:-1]))
    variance = jnp.concatenate([start[None], later])
    with numpyro.plate('days', returns.size):
      numpyro.sample(
        'returns', dist.Normal(drift, jnp.sqrt(variance)), obs=returns
      )

  return model


def pymc_model(returns):
  import pymc as pm
  import pytensor
  import pytensor.tensor as pt

  def step(seen, variance, drift, base, shock, memory):
    return base + shock * (seen - drift) ** 2 + memory * variance

  with pm.Model() as model:
    drift = pm.Normal('drift', 0.0, 1.0)
    base = pm.HalfNormal('base', 1.0)
    shock = pm.Uniform('shock', 0.0, 1.0)
    memory = pm.Uniform('memory', 0.0, 1.0 - shock)
    start = pt.as_tensor(np.var(returns))
    later, _ = pytensor.scan(
      step,
      sequences=[pt.as_tensor(returns[:-1])],
      outputs_info=[start],
      non_sequences=[drift, base, shock, memory],
    )
    variance = pt.concatenate([start[None], later])
    pm.Normal('returns', drift, pt.sqrt(variance), observed=returns)
  return model
