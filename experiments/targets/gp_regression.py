"""Gaussian process regression on a line, with a known posterior.

  y(s) = sin(2 pi s) + cos(2.5 pi s) + noise,  s = 0, 0.004, ..., 4
  x ~ N(0, C),  C(s, s') = variance * exp(-(s - s')^2 / (2 l^2))
  y_i ~ N(x_i, noise_variance)

The posterior is N(C (C + noise I)^-1 y, noise C (C + noise I)^-1). An
eigenvalue gamma of C becomes gamma noise / (gamma + noise). With small noise,
the data decide the leading directions and the prior the others.

References: Titsias and Papaspiliopoulos (2018), 5.1,
https://arxiv.org/abs/1610.09641.
"""

import numpy as np
import tensorflow as tf
from pydantic import Field

from experiments.targets import latent
from experiments.targets.base import TargetParameters
from experiments.targets.registry import TARGETS

_END = 4.0


def simulate(num_points, noise_variance, data_seed):
  """Returns (inputs, observations), [num_points] each."""
  inputs = np.linspace(0.0, _END, num_points)
  signal = np.sin(2.0 * np.pi * inputs) + np.cos(2.5 * np.pi * inputs)
  noise = np.random.default_rng(data_seed).normal(size=num_points)
  return inputs, signal + np.sqrt(noise_variance) * noise


def posterior_moments(covariance, observations, noise_variance):
  """Returns the exact mean [d] and covariance [d, d] of the field.

  Args:
    covariance: C, [d, d].
    observations: y, [d].
  """
  noisy = covariance + noise_variance * np.eye(len(covariance))
  gain = np.linalg.solve(noisy, covariance).T
  posterior = noise_variance * 0.5 * (gain + gain.T)
  return gain @ observations, posterior


def gp_regression_target(
  covariance, observations, noise_variance, dtype='float32'
):
  """Returns the posterior of a field that is observed with Gaussian noise.

  Args:
    covariance: C, [d, d].
    observations: y, [d].
  """
  mean, posterior = posterior_moments(covariance, observations, noise_variance)
  observed = np.asarray(observations, dtype)

  def log_likelihood_fn(x):
    square = tf.reduce_sum(tf.square(x - observed), axis=-1)
    return -0.5 / noise_variance * square

  deviation = np.sqrt(np.diag(posterior))
  return latent.latent_target(
    'gp_regression',
    log_likelihood_fn,
    latent.spectral_prior(covariance, dtype),
    dtype,
    mean=mean,
    covariance=posterior,
    constrain=lambda states: {'field': np.asarray(states)},
    ground_truth={'field': (mean, deviation, np.zeros_like(mean))},
    noise_variance=noise_variance,
  )


@TARGETS.register('gp_regression')
class GpRegression(TargetParameters):
  """Regression of two waves on a line, Gaussian noise: posterior known."""

  num_points: int = Field(1001, ge=2, le=4000)
  noise_variance: float = Field(0.01, gt=0)
  variance: float = Field(1.0, gt=0)
  squared_length_scale: float = Field(0.16, gt=0)
  data_seed: int = Field(0, ge=0)

  def build(self, context):
    inputs, observations = simulate(
      self.num_points, self.noise_variance, self.data_seed
    )
    covariance = latent.squared_exponential(
      inputs[:, None], self.variance, self.squared_length_scale
    )
    return gp_regression_target(
      covariance,
      observations,
      self.noise_variance,
      context.dtype,
    )
