"""A Student-t of five degrees of freedom in 50 dimensions: no data.

  x ~ StudentT(5, 0, L L^T),  L L^T = Q diag(1, ..., 10^4) Q^T

Q is a rotation drawn at a fixed seed. Logarithms of the variances are evenly
spaced. Some directions are wide and others narrow, and outliers are far out in
all directions at once.
"""

import numpy as np


def data():
  """Returns the Cholesky factor of the scale matrix [50, 50]."""
  normal = np.random.default_rng(5).normal(size=(50, 50))
  rotation, triangle = np.linalg.qr(normal)
  # With these signs the rotation is uniform over the orthogonal group.
  rotation = rotation * np.sign(np.diag(triangle))
  covariance = (rotation * np.geomspace(1.0, 1e4, 50)) @ rotation.T
  symmetric = 0.5 * (covariance + covariance.T)
  return dict(factor=np.linalg.cholesky(symmetric))


def tfp_model(factor):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions

  @tfd.JointDistributionCoroutine
  def model():
    yield tfd.JointDistributionCoroutine.Root(
      tfd.MultivariateStudentTLinearOperator(
        5.0,
        tf.zeros(len(factor)),
        tf.linalg.LinearOperatorLowerTriangular(np.float32(factor)),
        name='x',
      )
    )

  return model


def numpyro_model(factor):
  import numpyro
  from jax import numpy as jnp
  from numpyro import distributions as dist

  def model():
    numpyro.sample(
      'x', dist.MultivariateStudentT(5.0, jnp.zeros(len(factor)), factor)
    )

  return model


def pymc_model(factor):
  import pymc as pm

  with pm.Model() as model:
    pm.MvStudentT('x', nu=5.0, mu=np.zeros(len(factor)), chol=factor)
  return model
