"""Classification of points of the plane by a Gaussian process.

  lengthscale ~ InverseGamma(5, 5),  amplitude ~ HalfNormal(2),  z_i ~ N(0, 1)
  L L^T = exp(-|x_i - x_j|^2 / (2 lengthscale^2)) + 10^-4 [i = j]
  labels_i ~ Bernoulli(logits = amplitude (L z)_i)

The latent function is whitened. Single precision needs the jitter, which is a
part of the model. Data: 100 points of the square [-2, 2]^2, simulated, with
logits 3 sin(1.5 x_1) cos(1.5 x_2).
"""

import numpy as np

_JITTER = 1e-4


def data():
  """Returns inputs [100, 2] and labels [100]."""
  random = np.random.RandomState(2)
  inputs = random.uniform(-2.0, 2.0, size=[100, 2])
  logits = 3.0 * np.sin(1.5 * inputs[:, 0]) * np.cos(1.5 * inputs[:, 1])
  labels = random.uniform(size=100) < 1.0 / (1.0 + np.exp(-logits))
  return dict(inputs=inputs, labels=labels.astype(np.int32))


def tfp_model(inputs, labels):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions
  Root = tfd.JointDistributionCoroutine.Root
  inputs, size = np.float32(inputs), len(inputs)
  jitter = np.float32(_JITTER * np.eye(size))

  @tfd.JointDistributionCoroutine
  def model():
    lengthscale = yield Root(tfd.InverseGamma(5.0, 5.0, name='lengthscale'))
    amplitude = yield Root(tfd.HalfNormal(2.0, name='amplitude'))
    z = yield Root(tfd.Sample(tfd.Normal(0.0, 1.0), size, name='z'))
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(
      length_scale=lengthscale
    )
    factor = tf.linalg.cholesky(kernel.matrix(inputs, inputs) + jitter)
    logits = amplitude[..., tf.newaxis] * tf.linalg.matvec(factor, z)
    yield tfd.Independent(tfd.Bernoulli(logits), 1, name='labels')

  return model.experimental_pin(labels=labels)


def numpyro_model(inputs, labels):
  import numpyro
  from jax import numpy as jnp
  from numpyro import distributions as dist

  differences = inputs[:, np.newaxis] - inputs
  squares = np.sum(differences**2, axis=-1)
  jitter = _JITTER * np.eye(len(inputs))

  def model():
    lengthscale = numpyro.sample('lengthscale', dist.InverseGamma(5.0, 5.0))
    amplitude = numpyro.sample('amplitude', dist.HalfNormal(2.0))
    with numpyro.plate('points', len(inputs)):
      z = numpyro.sample('z', dist.Normal(0.0, 1.0))
      kernel = jnp.exp(-0.5 * squares / lengthscale**2)
      logits = amplitude * (jnp.linalg.cholesky(kernel + jitter) @ z)
      numpyro.sample('labels', dist.Bernoulli(logits=logits), obs=labels)

  return model


def pymc_model(inputs, labels):
  import pymc as pm
  from pytensor.tensor.linalg import cholesky

  with pm.Model() as model:
    lengthscale = pm.InverseGamma('lengthscale', 5.0, 5.0)
    amplitude = pm.HalfNormal('amplitude', 2.0)
    z = pm.Normal('z', 0.0, 1.0, shape=len(inputs))
    kernel = pm.gp.cov.ExpQuad(2, ls=lengthscale)(inputs)
    factor = cholesky(kernel + _JITTER * np.eye(len(inputs)))
    pm.Bernoulli('labels', logit_p=amplitude * (factor @ z), observed=labels)
  return model
