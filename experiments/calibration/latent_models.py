"""Models with a latent Gaussian field, and its hyperparameters."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.calibration import models

__all__ = [
  'field',
  'field_prior',
  'hierarchy',
  'hyperprior',
  'kernel_matrix',
  'prior_fn',
]

_POINTS = np.linspace(0.0, 2.0, 6)
_DISTANCES = np.abs(_POINTS[:, np.newaxis] - _POINTS)
_MEAN = 0.5
_COVARIANCE = 0.6 * np.exp(-_DISTANCES) + 0.05 * np.eye(len(_POINTS))
# Of the logarithms: mean and standard deviation.
_HYPER = dict(amplitude=(-0.3, 0.4), length_scale=(0.0, 0.5))
_NOISE = 0.4
_DEGREES = 4.0


def field_prior():
  """Returns the prior of `field`, as the kernels take it."""
  return tfpa.gaussian_priors.spectral(_COVARIANCE, mean=_MEAN)


def field():
  """Counts on six points of a line: y_i ~ Poisson(exp f_i), f ~ N(m, C)."""
  factor = np.linalg.cholesky(_COVARIANCE)
  precision = np.linalg.inv(_COVARIANCE)

  def draw(num, seed):
    noise = models.normal([num, len(_POINTS)], seed)
    return _MEAN + noise @ tf.constant(factor.T)

  def simulate(state, seed):
    return models.poisson(tf.exp(state), seed)

  def log_likelihood(state, data):
    terms = data * state - tf.exp(state) - tf.math.lgamma(data + 1.0)
    return tf.reduce_sum(terms, axis=-1)

  def density(data):
    return lambda state: log_likelihood(state, data)

  def quantities(state, data):
    centered = state - _MEAN
    return dict(
      first=state[..., 0],
      middle=state[..., 3],
      mean=tf.reduce_mean(state, axis=-1),
      prior_square=tf.reduce_sum(
        centered * tf.linalg.matvec(tf.constant(precision), centered), axis=-1
      ),
      log_likelihood=log_likelihood(state, data),
    )

  return models.Model('latent field', draw, simulate, density, quantities)


def prior_fn(amplitude, length_scale):
  """Returns the field's prior at hyperparameters, one for each chain."""
  return tfpa.gaussian_priors.spectral(
    kernel_matrix(amplitude, length_scale), mean=_MEAN
  )


def hyperprior():
  """Returns the law of the hyperparameters, log-normal each."""
  return tfp.distributions.JointDistributionNamed(
    {
      name: tfp.distributions.LogNormal(np.float64(loc), np.float64(scale))
      for name, (loc, scale) in _HYPER.items()
    }
  )


def hierarchy():
  """A field seen in Student-t noise, amplitude and length-scale unknown.

  The state is (field, dict of logarithms of the hyperparameters).
  """

  def draw(num, seed):
    logs = {
      name: loc + scale * models.normal([num], models.fold_in(seed, i))
      for i, (name, (loc, scale)) in enumerate(_HYPER.items())
    }
    matrix = kernel_matrix(**tf.nest.map_structure(tf.exp, logs))
    noise = models.normal([num, len(_POINTS)], models.fold_in(seed, 9))
    x = _MEAN + tf.linalg.matvec(tf.linalg.cholesky(matrix), noise)
    return x, logs

  def simulate(state, seed):
    shape = [*state[0].shape]
    return state[0] + _NOISE * models.student_4(shape, seed)

  def log_likelihood(x, data):
    tail = tf.math.log1p(((data - x) / _NOISE) ** 2 / _DEGREES)
    return -0.5 * (_DEGREES + 1.0) * tf.reduce_sum(tail, axis=-1)

  def density(data):
    return lambda x: log_likelihood(x, data)

  def quantities(state, data):
    x, logs = state
    return dict(
      log_amplitude=logs['amplitude'],
      log_length_scale=logs['length_scale'],
      mean=tf.reduce_mean(x, axis=-1),
      roughness=tf.reduce_sum((x[..., 1:] - x[..., :-1]) ** 2, axis=-1),
      log_likelihood=log_likelihood(x, data),
    )

  return models.Model('hierarchy', draw, simulate, density, quantities)


def kernel_matrix(amplitude, length_scale):
  """Returns the covariance at hyperparameters, [chains, 6, 6]."""
  scaled = _DISTANCES / length_scale[..., tf.newaxis, tf.newaxis]
  matrix = amplitude[..., tf.newaxis, tf.newaxis] ** 2 * tf.exp(-scaled)
  return matrix + 0.05 * np.eye(len(_POINTS))
