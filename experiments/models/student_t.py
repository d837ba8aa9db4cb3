"""A Student-t of five degrees of freedom in 50 dimensions: no data.

  x ~ StudentT(5, 0, L L^T),  L L^T = Q diag(1, ..., 10^4) Q^T

with Q a rotation drawn at a fixed seed and variances even in their logarithm.
Wide in some directions, narrow in others, and far draws in all at once. The
distribution of the archived study length_targets (tag archive/2026-11-studies).
"""

import numpy as np

__all__ = ['data', 'numpyro_model', 'pymc_model', 'tfp_model']


def data():
  """Returns the Cholesky factor of the scale matrix [50, 50]."""
  # Only the environment of this project reads data, and it has the package.
  from experiments.targets.gaussians import rotated_covariance

  covariance = rotated_covariance(np.geomspace(1.0, 1e4, 50), seed=5)
  return dict(factor=np.linalg.cholesky(covariance))


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
