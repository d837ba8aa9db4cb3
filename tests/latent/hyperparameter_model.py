"""A field of five points with its hyperparameters, in dense numpy."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa

tfd = tfp.distributions

D = 5
POINTS = np.linspace(0.0, 2.0, D)
NOISE = 0.3
DATA = np.array([1.1, 0.4, -0.6, -1.4, -0.9])
MEAN = 0.2
JITTER = 0.05
DISTANCE = np.abs(POINTS[:, np.newaxis] - POINTS)


def log_likelihood(x):
  miss = tf.constant(DATA) - x
  return -0.5 * tf.reduce_sum(miss**2, axis=-1) / NOISE


def kernel_matrix(amplitude, length_scale, lib):
  """Returns C for scalars, or [chains..., d, d] for Tensors."""
  distance = DISTANCE / length_scale[..., np.newaxis, np.newaxis]
  matrix = amplitude[..., np.newaxis, np.newaxis] ** 2 * lib.exp(-distance)
  return matrix + JITTER * np.eye(D)


def prior_fn(amplitude, length_scale):
  return tfpa.gaussian_priors.spectral(
    kernel_matrix(amplitude, length_scale, tf), mean=MEAN
  )


LOG_NORMAL = dict(amplitude=(0.0, 0.6), length_scale=(0.0, 0.4))


def hyperprior():
  return tfd.JointDistributionNamed(
    {
      name: tfd.LogNormal(np.float64(loc), np.float64(scale))
      for name, (loc, scale) in LOG_NORMAL.items()
    }
  )


def kernel(num_adaptation_steps=0, **options):
  return tfpa.latent_gaussian_hyperparameters(
    log_likelihood,
    num_adaptation_steps,
    prior_fn=prior_fn,
    hyperprior=hyperprior(),
    **options,
  )


def start(num_chains, seed=0):
  rng = np.random.default_rng(seed)
  theta = {
    name: tf.constant(rng.normal(loc, 0.3, size=num_chains))
    for name, (loc, _) in LOG_NORMAL.items()
  }
  return tf.constant(rng.normal(size=(num_chains, D))), theta


def log_normal(x, mean, covariance):
  miss = x - mean
  _, log_det = np.linalg.slogdet(2.0 * np.pi * covariance)
  return -0.5 * (miss @ np.linalg.solve(covariance, miss) + log_det)


def dense_log_joint(x, amplitude, length_scale):
  """log pi(x, theta) of theta itself, in the unconstrained (log) measure."""
  log_prob = -0.5 * np.sum((DATA - x) ** 2) / NOISE
  matrix = kernel_matrix(np.float64(amplitude), np.float64(length_scale), np)
  log_prob += log_normal(x, MEAN, matrix)
  theta = dict(amplitude=amplitude, length_scale=length_scale)
  for name, (loc, scale) in LOG_NORMAL.items():
    log_prob -= 0.5 * ((np.log(theta[name]) - loc) / scale) ** 2
  return log_prob


def gradient(x):
  return (DATA - x) / NOISE
