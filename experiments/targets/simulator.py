"""A model that can only be simulated, and two estimates of its likelihood.

x_1..x_S are data sets simulated at theta, and y are the observed data:

  kernel      (1/S) sum_s N(y | x_s, eps^2 I)          (unbiased for eps > 0)
  synthetic   N(y | mean of x_s, covariance of x_s + eps^2 I)

The kernel estimate is unbiased for the model with noise N(0, eps^2 I) on its
data, and a chain may keep the estimate. If the simulated data are not Gaussian,
the synthetic likelihood is biased for any S.

References: Marjoram et al. (2003); Wood (2010); Meeds, Leenders and Welling
(2015), 2, https://arxiv.org/abs/1503.01916.
"""

import math
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf


class Simulator(NamedTuple):
  """Data as a function of the parameters and of standard normals."""

  # (states [chains..., d], noise [S, chains..., noise_size]) -> simulated data
  # [S, chains..., data_size].
  simulate_fn: Callable[[Any, Any], Any]
  noise_size: int
  # Observed data, [data_size].
  observed: np.ndarray
  # eps, the standard deviation of the noise.
  tolerance: float


def kernel_log_likelihood(simulator, states, noise):
  """Returns log of the kernel estimate of p(y | states), [chains...].

  Args:
    states: [chains..., d].
    noise: Standard normals, [S, chains..., noise_size].
  """
  simulated = simulator.simulate_fn(states, noise)
  misfit = tf.reduce_sum(tf.square(simulator.observed - simulated), axis=-1)
  variance = simulator.tolerance**2
  size = len(simulator.observed)
  log_kernels = -0.5 * misfit / variance
  num_simulations = tf.cast(tf.shape(noise)[0], misfit.dtype)
  return (
    tf.reduce_logsumexp(log_kernels, axis=0)
    - tf.math.log(num_simulations)
    - 0.5 * size * math.log(2 * math.pi * variance)
  )


def synthetic_log_likelihood(simulator, states, noise):
  """Returns log of the synthetic likelihood, [chains...].

  Args:
    states: [chains..., d].
    noise: Standard normals, [S, chains..., noise_size], S at least 2.
  """
  simulated = simulator.simulate_fn(states, noise)
  mean = tf.reduce_mean(simulated, axis=0)
  # Shape [chains..., data_size, S].
  centered = tf.linalg.matrix_transpose(_simulations_last(simulated - mean))
  degrees = tf.cast(tf.shape(noise)[0] - 1, simulated.dtype)
  covariance = tf.matmul(centered, centered, transpose_b=True) / degrees
  size = len(simulator.observed)
  covariance += simulator.tolerance**2 * tf.eye(size, dtype=simulated.dtype)
  factor = tf.linalg.cholesky(covariance)
  residual = (simulator.observed - mean)[..., tf.newaxis]
  scaled = tf.linalg.triangular_solve(factor, residual)[..., 0]
  log_det = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), axis=-1)
  return (
    -0.5 * tf.reduce_sum(tf.square(scaled), axis=-1)
    - log_det
    - 0.5 * size * math.log(2 * math.pi)
  )


def _simulations_last(simulated):
  """Returns [chains..., S, data_size] of [S, chains..., data_size]."""
  rank = simulated.shape.rank
  return tf.transpose(simulated, [*range(1, rank - 1), 0, rank - 1])
