"""Gaussian process regression on four inputs, of which two matter.

  lengthscale_k ~ LogNormal(0.5, 1),  k = 1..4
  amplitude ~ HalfNormal(2),  noise ~ LogNormal(-1, 0.7)
  K_ij = amplitude^2 exp(-sum_k (x_ik - x_jk)^2 / (2 lengthscale_k^2))
  seen ~ N(0, K + noise^2 I)

The curve is integrated out. Lengthscales of inputs that do not matter have long
tails. Data: simulated at a fixed seed, 60 points.
"""

import numpy as np


def data():
  rng = np.random.RandomState(109)
  inputs = rng.uniform(-2.0, 2.0, size=(60, 4))
  curve = 1.5 * np.sin(2.0 * inputs[:, 0]) + 0.4 * inputs[:, 1] ** 2 - 0.5
  return dict(seen=curve + 0.3 * rng.normal(size=60), inputs=inputs)


def tfp_model(seen, inputs):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd, kernels = tfp.distributions, tfp.math.psd_kernels
  Root = tfd.JointDistributionCoroutine.Root
  inputs = np.float32(inputs)

  # Kernels, Cholesky and normals have batches, so nothing must be vectorized.
  @tfd.JointDistributionCoroutine
  def model():
    lengthscale = yield Root(
      tfd.Sample(tfd.LogNormal(0.5, 1.0), 4, name='lengthscale')
    )
    amplitude = yield Root(tfd.HalfNormal(2.0, name='amplitude'))
    noise = yield Root(tfd.LogNormal(-1.0, 0.7, name='noise'))
    kernel = kernels.FeatureScaled(
      kernels.ExponentiatedQuadratic(amplitude), lengthscale
    )
    covariance = kernel.matrix(inputs, inputs)
    covariance += tf.square(noise)[..., tf.newaxis, tf.newaxis] * tf.eye(60)
    yield tfd.MultivariateNormalTriL(
      scale_tril=tf.linalg.cholesky(covariance), name='seen'
    )

  return model.experimental_pin(seen=np.float32(seen))


def numpyro_model(seen, inputs):
  import jax.numpy as jnp
  import numpyro
  from numpyro import distributions as dist

  squares = (inputs[:, None] - inputs) ** 2

  def model():
    with numpyro.plate('inputs', 4):
      lengthscale = numpyro.sample('lengthscale', dist.LogNormal(0.5, 1.0))
    amplitude = numpyro.sample('amplitude', dist.HalfNormal(2.0))
    noise = numpyro.sample('noise', dist.LogNormal(-1.0, 0.7))
    distance = squares @ lengthscale**-2.0
    covariance = amplitude**2 * jnp.exp(-0.5 * distance)
    covariance += noise**2 * jnp.eye(60)
    numpyro.sample(
      'seen',
      dist.MultivariateNormal(covariance_matrix=covariance),
      obs=seen,
    )

  return model


def pymc_model(seen, inputs):
  import pymc as pm

  with pm.Model() as model:
    lengthscale = pm.LogNormal('lengthscale', 0.5, 1.0, shape=4)
    amplitude = pm.HalfNormal('amplitude', 2.0)
    noise = pm.LogNormal('noise', -1.0, 0.7)
    kernel = amplitude**2 * pm.gp.cov.ExpQuad(4, ls=lengthscale)
    process = pm.gp.Marginal(cov_func=kernel)
    process.marginal_likelihood('seen', inputs, seen, noise, jitter=0.0)
  return model
