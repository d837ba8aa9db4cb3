"""Models of inference_gym with a Gaussian field, in separate parts.

Log-Gaussian Cox process for the counts at n places s with extents e:

  x ~ N(m, C),  C(s, s') = a^2 (1 + r) exp(-r) + 1e-6 1{s = s'},
  r = sqrt(3) |s - s'| / l,  a = exp(theta_1) + 0.001,  l = exp(theta_2) + 0.001
  theta_1 ~ N(-1, 0.5^2),  theta_2 ~ N(-1, 1)
  log p(y | x) = sum_i [y_i x_i - e_i exp(x_i)]

m is the mean of the observed log intensities.

Brownian motion x with known scales q and s, observed at some times t:

  x_0 ~ N(0, q^2),  x_t ~ N(x_{t-1}, q^2),  y_t ~ N(x_t, s^2)

References: Diggle et al. (2013), Spatial and spatio-temporal log-Gaussian Cox
processes.
"""

import numpy as np
import tensorflow as tf
from inference_gym.internal import data

import tfp_adaptive as tfpa
from experiments.targets.base import Hierarchy
from experiments.targets.base import LatentGaussian

_JITTER = 1e-6
_OFFSET = 0.001
_MEANS = np.array([-1.0, -1.0])
_DEVIATIONS = np.array([0.5, 1.0])


def cox_process():
  """Returns the parts of SyntheticLogGaussianCoxProcess, theta first."""
  dataset = data.synthetic_log_gaussian_cox_process()
  places = np.asarray(dataset['train_locations'], np.float64)
  extents = np.asarray(dataset['train_extents'], np.float64)
  counts = np.asarray(dataset['train_counts'], np.float64)
  mean = np.mean(np.log(counts) - np.log(extents))
  gaps = np.linalg.norm(places[:, np.newaxis] - places, axis=-1)
  nugget = _JITTER * np.eye(len(counts))

  def prior_fn(theta):
    amplitude, length = tf.split(
      tf.exp(theta)[..., tf.newaxis] + _OFFSET, 2, axis=-2
    )
    ratio = np.sqrt(3.0) * gaps / length
    return tfpa.gaussian_priors.spectral(
      amplitude**2 * (1.0 + ratio) * tf.exp(-ratio) + nugget, mean
    )

  def hyper_log_prob_fn(theta):
    gaps_in_deviations = (theta - _MEANS) / _DEVIATIONS
    return -0.5 * tf.reduce_sum(tf.square(gaps_in_deviations), axis=-1)

  def log_likelihood_fn(x):
    return tf.reduce_sum(counts * x - extents * tf.exp(x), axis=-1)

  return Hierarchy(
    log_likelihood_fn,
    prior_fn,
    hyper_log_prob_fn,
    num_latent=len(counts),
    is_field_first=False,
  )


def brownian_motion():
  """Returns the parts of BrownianMotionMissingMiddleObservations."""
  dataset = data.brownian_motion_missing_middle_observations()
  observed = np.asarray(dataset['observed_locs'], np.float32)
  step = float(dataset['innovation_noise_scale'])
  variance = float(dataset['observation_noise_scale']) ** 2
  is_observed = np.isfinite(observed)

  def log_likelihood_fn(x):
    gaps = np.where(is_observed, observed, 0.0) - x
    return -0.5 * tf.reduce_sum(is_observed * gaps**2, axis=-1) / variance

  prior = tfpa.gaussian_priors.random_walk(
    step, len(observed), initial_scale=step
  )
  return LatentGaussian(log_likelihood_fn, prior, variance)


# Name of the model -> () -> `LatentGaussian` with float32 states.
FIELDS = {'BrownianMotionMissingMiddleObservations': brownian_motion}
# Name of the model -> () -> `Hierarchy` with float64 states.
HIERARCHIES = {'SyntheticLogGaussianCoxProcess': cox_process}
