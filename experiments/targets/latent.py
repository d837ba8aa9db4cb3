"""Latent Gaussian models: a likelihood f, a prior N(mean, C), both apart.

  pi(x) ~ exp f(x) N(x | mean, C)

The samplers of such models take f and the prior. Others need one density: that
of x where C has an inverse, or that of white noise e behind the field,

  pi(e) ~ exp f(x(e)) N(e | 0, I),  x(e) = mean + C^{1/2} e,

which every C has (`coordinates: white`). What is measured is x in both.
"""

from typing import Literal

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.targets.base import LatentGaussian
from experiments.targets.base import Target
from experiments.targets.base import TargetParameters

__all__ = [
  'LatentParameters',
  'as_dtype',
  'half_mean_square',
  'latent_target',
  'spectral_prior',
  'squared_exponential',
]

# Rows of states that are turned into fields at once.
_BLOCK = 1000


class LatentParameters(TargetParameters):
  """Base of the registered latent Gaussian models."""

  coordinates: Literal['field', 'white'] = 'field'


def half_mean_square(inputs):
  """Returns half the mean squared distance: the number of standardized inputs.

  Args:
    inputs: [n, num_features].
  """
  return float(np.sum(np.var(np.asarray(inputs, np.float64), axis=0)))


def squared_exponential(inputs, variance, squared_length_scale):
  """Returns variance * exp(-|s - s'|^2 / (2 l^2)), [n, n] float64.

  Args:
    inputs: [n, num_features].
    variance: of the field.
    squared_length_scale: l^2, in squared units of the inputs.
  """
  inputs = np.asarray(inputs, np.float64)
  norms = np.sum(inputs**2, axis=-1)
  squares = norms[:, None] + norms - 2.0 * inputs @ inputs.T
  # Rounding leaves traces on the diagonal, and below zero.
  squares = np.maximum(0.5 * (squares + squares.T), 0.0)
  np.fill_diagonal(squares, 0.0)
  return variance * np.exp(-0.5 * squares / squared_length_scale)


def spectral_prior(covariance, dtype):
  """Returns the dense prior, decomposed in float64, used in `dtype`."""
  return as_dtype(
    tfpa.gaussian_priors.spectral(np.asarray(covariance, np.float64)), dtype
  )


def as_dtype(prior, dtype):
  """Returns the prior with its params cast to `dtype`."""
  return prior._replace(
    params=tf.nest.map_structure(lambda p: tf.cast(p, dtype), prior.params)
  )


def latent_target(
  name, log_likelihood_fn, prior, dtype, coordinates='field', **known
):
  """Returns a latent Gaussian model as a `Target`.

  Args:
    name: of the target.
    log_likelihood_fn: f, [chains..., event_size] -> [chains...].
    prior: a `tfpa.interfaces.GaussianPrior` in `dtype`.
    dtype: 'float32' or 'float64', of the states.
    coordinates: 'field' samples x; 'white' the noise behind it, for samplers
      that take a plain density, and no others.
    **known: further fields of the `Target`; `noise_variance` goes to its
      `latent`.
  """
  event_size = int(np.prod(prior.event_shape))
  noise_variance = known.pop('noise_variance', None)
  covariance = prior.covariance(prior.params)

  def field(noise):
    return prior.from_coordinates(prior.params, covariance.draw(noise))

  def white_log_prob(noise):
    square = tf.reduce_sum(tf.square(noise), axis=-1)
    return log_likelihood_fn(field(noise)) - 0.5 * square

  def field_log_prob(x):
    centered = prior.to_coordinates(prior.params, x)
    return log_likelihood_fn(x) + covariance.log_prob(centered)

  def sample_prior(num_chains, seed):
    noise = np.random.default_rng(seed).normal(size=(num_chains, event_size))
    noise = noise.astype(dtype)
    return noise if coordinates == 'white' else field(noise).numpy()

  target = Target(
    name=name,
    target_log_prob_fn=None if prior.is_singular else field_log_prob,
    event_size=event_size,
    dtype=dtype,
    sample_prior=sample_prior,
    latent=LatentGaussian(log_likelihood_fn, prior, noise_variance),
    **known,
  )
  if coordinates == 'field':
    return target
  return target._replace(
    target_log_prob_fn=white_log_prob,
    latent=None,
    view=_blockwise(field, then=known.get('view')),
  )


def _blockwise(function, then=None):
  """Returns a numpy function of rows [..., d] that goes through few at once."""

  def view(states):
    rows = np.reshape(states, [-1, states.shape[-1]])
    parts = [
      function(tf.constant(rows[start : start + _BLOCK])).numpy()
      for start in range(0, len(rows), _BLOCK)
    ]
    whole = np.concatenate(parts).reshape(*states.shape[:-1], -1)
    return whole if then is None else then(whole)

  return view
