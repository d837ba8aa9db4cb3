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

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

tfd = tfp.distributions


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
  kernels = tfd.Independent(tfd.Normal(simulated, simulator.tolerance), 1)
  return tfp.math.reduce_logmeanexp(kernels.log_prob(simulator.observed), 0)


def synthetic_log_likelihood(simulator, states, noise):
  """Returns log of the synthetic likelihood, [chains...].

  Args:
    states: [chains..., d].
    noise: Standard normals, [S, chains..., noise_size], S at least 2.
  """
  simulated = simulator.simulate_fn(states, noise)
  count = tf.cast(tf.shape(noise)[0], simulated.dtype)
  covariance = count / (count - 1.0) * tfp.stats.covariance(simulated)
  size = len(simulator.observed)
  covariance += simulator.tolerance**2 * tf.eye(size, dtype=simulated.dtype)
  fitted = tfd.MultivariateNormalTriL(
    tf.reduce_mean(simulated, axis=0), tf.linalg.cholesky(covariance)
  )
  return fitted.log_prob(simulator.observed)
