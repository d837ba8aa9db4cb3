"""Gaussian targets, whose known moments judge what a sampler learned.

log pi(x) = -1/2 |W (x - mean)|^2, where W^T W is the precision.
"""

import numpy as np
import tensorflow as tf
from pydantic import Field

from experiments.targets import jax_density
from experiments.targets.base import Target
from experiments.targets.base import TargetParameters
from experiments.targets.registry import TARGETS


def gaussian_target(name, covariance, dtype):
  """Returns the Gaussian with mean zero and this covariance.

  Args:
    covariance: [event_size, event_size] array, or [event_size] variances.

  Returns:
    A `Target` with its moments. Variances cost O(event_size).
  """
  covariance = np.asarray(covariance, np.float64)
  if covariance.ndim == 1:
    whitener = (1.0 / np.sqrt(covariance)).astype(dtype)

    def whiten(x):
      return x * whitener
  else:
    factor = np.linalg.cholesky(covariance)
    whitener = np.linalg.inv(factor).T.astype(dtype)

    def whiten(x):
      return tf.tensordot(x, whitener, 1)

  def target_log_prob_fn(x):
    return -0.5 * tf.reduce_sum(tf.square(whiten(x)), axis=-1)

  def exact_draws(num_draws, seed):
    rng = np.random.default_rng(seed)
    normals = rng.normal(size=(num_draws, len(covariance)))
    if covariance.ndim == 1:
      return normals * np.sqrt(covariance)
    return normals @ factor.T

  return Target(
    name=name,
    target_log_prob_fn=target_log_prob_fn,
    event_size=len(covariance),
    dtype=dtype,
    mean=np.zeros(len(covariance)),
    covariance=covariance,
    exact_draws_fn=exact_draws,
    jax_log_prob_fn=jax_density.gaussian(whitener),
  )


def rotated_covariance(variances, seed):
  """Returns Q diag(variances) Q^T, Q uniform over the orthogonal group."""
  variances = np.asarray(variances, np.float64)
  rng = np.random.default_rng(seed)
  normal = rng.normal(size=(len(variances), len(variances)))
  rotation, triangle = np.linalg.qr(normal)
  rotation = rotation * np.sign(np.diag(triangle))
  covariance = (rotation * variances) @ rotation.T
  return 0.5 * (covariance + covariance.T)


@TARGETS.register('gaussian_2d')
class Gaussian2D(TargetParameters):
  """Two coordinates of unit variance with correlation rho (Figure 1)."""

  rho: float = Field(0.99, gt=-1, lt=1)

  def build(self, context):
    covariance = [[1.0, self.rho], [self.rho, 1.0]]
    return gaussian_target('gaussian_2d', covariance, context.dtype)


@TARGETS.register('kernel_gaussian')
class KernelGaussian(TargetParameters):
  """Squared exponential kernel plus noise on a grid of [0, 4] (Figure 1)."""

  num_points: int = Field(51, ge=2, le=2000)
  squared_length_scale: float = Field(0.16, gt=0)
  noise_variance: float = Field(0.01, gt=0)

  def build(self, context):
    grid = np.linspace(0.0, 4.0, self.num_points)
    squared_distance = (grid[:, None] - grid) ** 2
    covariance = np.exp(-0.5 * squared_distance / self.squared_length_scale)
    covariance += self.noise_variance * np.eye(self.num_points)
    return gaussian_target('kernel_gaussian', covariance, context.dtype)


@TARGETS.register('neals_gaussian')
class NealsGaussian(TargetParameters):
  """Independent coordinates with standard deviations 1/d, 2/d, ..., 1."""

  event_size: int = Field(100, ge=1, le=10**6)

  def build(self, context):
    scales = np.arange(1, self.event_size + 1) / self.event_size
    return gaussian_target('neals_gaussian', scales**2, context.dtype)


@TARGETS.register('anisotropic_gaussian')
class AnisotropicGaussian(TargetParameters):
  """Independent coordinates, variances from 1 to 10^exponent, even in log."""

  event_size: int = Field(1000, ge=1, le=10**6)
  exponent: float = Field(3.0, ge=0, description='c; 0: N(0, I)')

  def build(self, context):
    variances = np.logspace(0, self.exponent, self.event_size)
    return gaussian_target('anisotropic_gaussian', variances, context.dtype)


@TARGETS.register('spectrum_gaussian')
class SpectrumGaussian(TargetParameters):
  """Eigenvalues of the covariance as given, rotated if a seed is given."""

  variances: list[float] = Field(min_length=1)
  rotation_seed: int | None = Field(None, ge=0)

  def build(self, context):
    if min(self.variances) <= 0:
      raise ValueError('target.variances: every variance must be above 0.')
    covariance = self.variances
    if self.rotation_seed is not None:
      covariance = rotated_covariance(self.variances, self.rotation_seed)
    return gaussian_target('spectrum_gaussian', covariance, context.dtype)
