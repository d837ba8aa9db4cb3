"""Sparse regression by the regularized horseshoe.

  z_j ~ N(0, 1),  local_j ~ HalfCauchy(1),  tau ~ HalfCauchy(tau_0)
  slab ~ InverseGamma(2, 8),  sigma ~ HalfNormal(2)
  weight_j = z_j tau local_j / sqrt(1 + tau^2 local_j^2 / slab)
  y_i ~ N(sum_j x_ij weight_j, sigma^2)

  tau_0 = p_0 / (p - p_0) / sqrt(n),  p_0 = 5 weights that are not zero

Few scales are large and all others small, which makes funnels with heavy tails.
Weights are non-centered. Data: n = 100, p = 50, simulated.

Source: Piironen and Vehtari (2017), Sparsity information and regularization in
the horseshoe and other shrinkage priors.
"""

import numpy as np


def data():
  """Returns inputs [100, 50], y [100], and tau_0 for noise of unit scale."""
  random = np.random.RandomState(50)
  inputs = random.normal(size=[100, 50])
  weights = np.append([3.0, -2.0, 1.5, -1.0, 0.5], np.zeros(45))
  y = inputs @ weights + random.normal(size=100)
  return dict(inputs=inputs, y=y, tau_0=5.0 / 45.0 / np.sqrt(100.0))


def tfp_model(inputs, y, tau_0):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions
  Root = tfd.JointDistributionCoroutine.Root
  transposed = np.float32(inputs.T)
  size = len(transposed)

  @tfd.JointDistributionCoroutine
  def model():
    z = yield Root(tfd.Sample(tfd.Normal(0.0, 1.0), size, name='z'))
    local = yield Root(tfd.Sample(tfd.HalfCauchy(0.0, 1.0), size, name='local'))
    tau = yield Root(tfd.HalfCauchy(0.0, np.float32(tau_0), name='tau'))
    slab = yield Root(tfd.InverseGamma(2.0, 8.0, name='slab'))
    sigma = yield Root(tfd.HalfNormal(2.0, name='sigma'))
    scale = tau[..., tf.newaxis] * local
    weights = z * scale / tf.sqrt(1.0 + scale**2 / slab[..., tf.newaxis])
    line = tf.tensordot(weights, transposed, 1)
    yield tfd.Independent(tfd.Normal(line, sigma[..., tf.newaxis]), 1, name='y')

  return model.experimental_pin(y=np.float32(y))


def numpyro_model(inputs, y, tau_0):
  import numpyro
  from jax import numpy as jnp
  from numpyro import distributions as dist

  num_rows, num_columns = inputs.shape

  def model():
    with numpyro.plate('columns', num_columns):
      z = numpyro.sample('z', dist.Normal(0.0, 1.0))
      local = numpyro.sample('local', dist.HalfCauchy(1.0))
    tau = numpyro.sample('tau', dist.HalfCauchy(tau_0))
    slab = numpyro.sample('slab', dist.InverseGamma(2.0, 8.0))
    sigma = numpyro.sample('sigma', dist.HalfNormal(2.0))
    scale = tau * local
    weights = z * scale / jnp.sqrt(1.0 + scale**2 / slab)
    with numpyro.plate('rows', num_rows):
      numpyro.sample('y', dist.Normal(inputs @ weights, sigma), obs=y)

  return model


def pymc_model(inputs, y, tau_0):
  import pymc as pm

  with pm.Model() as model:
    z = pm.Normal('z', 0.0, 1.0, shape=inputs.shape[1])
    local = pm.HalfCauchy('local', 1.0, shape=inputs.shape[1])
    tau = pm.HalfCauchy('tau', tau_0)
    slab = pm.InverseGamma('slab', 2.0, 8.0)
    sigma = pm.HalfNormal('sigma', 2.0)
    scale = tau * local
    weights = z * scale / pm.math.sqrt(1.0 + scale**2 / slab)
    pm.Normal('y', inputs @ weights, sigma, observed=y)
  return model
