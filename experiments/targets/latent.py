"""Latent Gaussian models: a likelihood f and a separate prior N(mean, C).

  pi(x) ~ exp f(x) N(x | mean, C)

The samplers of such models take f and the prior. Other samplers need the
density of x, which exists if C has an inverse.
"""

import numpy as np
import tensorflow as tf
from sklearn.metrics.pairwise import rbf_kernel

import tfp_adaptive as tfpa
from experiments.targets.base import LatentGaussian
from experiments.targets.base import Target


def half_mean_square(inputs):
  """Returns half the mean squared distance, d for d standardized inputs.

  Args:
    inputs: [n, num_features].
  """
  return float(np.sum(np.var(np.asarray(inputs, np.float64), axis=0)))


def squared_exponential(inputs, variance, squared_length_scale):
  """Returns variance * exp(-|s - s'|^2 / (2 l^2)), [n, n] float64.

  Args:
    inputs: [n, num_features].
    squared_length_scale: l^2, in squared units of the inputs.
  """
  inputs = np.asarray(inputs, np.float64)
  return variance * rbf_kernel(inputs, gamma=0.5 / squared_length_scale)


def spectral_prior(covariance, dtype):
  """Returns the dense prior in `dtype`, decomposed in float64."""
  return as_dtype(
    tfpa.gaussian_priors.spectral(np.asarray(covariance, np.float64)), dtype
  )


def as_dtype(prior, dtype):
  """Returns the prior with its params cast to `dtype`."""
  return prior._replace(
    params=tf.nest.map_structure(lambda p: tf.cast(p, dtype), prior.params)
  )


def latent_target(name, log_likelihood_fn, prior, dtype, **known):
  """Returns a latent Gaussian model as a `Target`.

  Args:
    log_likelihood_fn: f, [chains..., event_size] -> [chains...].
    **known: Further fields of the `Target`. `noise_variance` is a field of its
      `latent`.
  """
  event_size = int(np.prod(prior.event_shape))
  noise_variance = known.pop('noise_variance', None)
  covariance = prior.covariance(prior.params)

  def target_log_prob_fn(x):
    centered = prior.to_coordinates(prior.params, x)
    return log_likelihood_fn(x) + covariance.log_prob(centered)

  def sample_prior(num_chains, seed):
    noise = np.random.default_rng(seed).normal(size=(num_chains, event_size))
    draws = covariance.draw(noise.astype(dtype))
    return prior.from_coordinates(prior.params, draws).numpy()

  return Target(
    name=name,
    target_log_prob_fn=None if prior.is_singular else target_log_prob_fn,
    event_size=event_size,
    dtype=dtype,
    sample_prior=sample_prior,
    latent=LatentGaussian(log_likelihood_fn, prior, noise_variance),
    **known,
  )
