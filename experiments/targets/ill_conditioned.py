"""inference_gym's ill-conditioned Gaussian, whitened by a product.

  log N(x | 0, L L^T) = -|W x|^2 / 2 - log det L - d log(2 pi) / 2,  W = L^-1

The gym solves with L. On a CPU, XLA prepares such a solve again in each
leapfrog step and each branch of a sampler. A step of HMC then takes 30 to 50
times as long as with a precomputed inverse.
"""

import numpy as np
import tensorflow as tf

from experiments.targets.jax_density import gaussian


def target_log_prob_fn(model):
  """Returns the density over [..., ndims] float32."""
  whitener, log_volume = _constants(model)

  def log_prob(x):
    white = tf.tensordot(x, whitener, 1)
    return -0.5 * tf.reduce_sum(tf.square(white), axis=-1) - log_volume

  return log_prob


def jax_log_prob_fn(model):
  """Returns the factory of the same density in JAX."""
  whitener, log_volume = _constants(model)

  def factory():
    log_prob = gaussian(whitener)()
    return lambda x: log_prob(x) - log_volume

  return factory


def _constants(model):
  """Returns W^T and log det L + d log(2 pi) / 2, numpy float32."""
  # The model has no public name for its factor.
  factor = model._gaussian.scale.to_dense().numpy().astype(np.float64)
  log_volume = np.log(2 * np.pi) * len(factor) / 2
  log_volume += np.log(np.diag(factor)).sum()
  return np.linalg.inv(factor).T.astype(np.float32), np.float32(log_volume)
