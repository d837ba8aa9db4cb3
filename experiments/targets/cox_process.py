"""Log-Gaussian Cox process on a grid of n x n cells, simulated counts.

  x ~ N(mu 1, Sigma),  Sigma_ab = sigma^2 exp(-|a - b| / (n beta))
  y_a ~ Poisson(m exp(x_a)),  m = 1 / n^2

a, b are cells and |a - b| is their distance in cells. The constants are
sigma^2 = 1.91, beta = 1/33 and mu = log 126 - sigma^2 / 2, so that 126 points
are expected. The state is x. Cells with many points determine x well, and for
empty cells x follows the prior.

The expected Fisher information plus the prior precision does not depend on x:

  M = Lambda + Sigma^-1,  Lambda = diag(m exp(mu + Sigma_aa / 2))

The 2021 paper prints Sigma_aa instead of Sigma_aa / 2, here 'as_printed'.

References: Girolami and Calderhead (2011), Section 9,
https://doi.org/10.1111/j.1467-9868.2010.00765.x; Hirt, Titsias and Dellaportas
(2021), 4.3, https://arxiv.org/abs/2110.14625.
"""

import numpy as np
import tensorflow as tf
from pydantic import Field

from experiments.targets import log_gaussian_cox
from experiments.targets.base import Target
from experiments.targets.base import TargetParameters
from experiments.targets.registry import TARGETS

_MEAN = log_gaussian_cox.MEAN


def metric_factors(covariance):
  """Returns {name: C} with (Lambda + Sigma^-1)^-1 = C C^T, C lower triangular.

  Args:
    covariance: Sigma, [d, d].
  """
  variances = np.diag(covariance)
  exponents = {'expected_fisher': variances / 2, 'as_printed': variances}
  precision = np.linalg.inv(covariance)
  factors = {}
  for name, exponent in exponents.items():
    intensity = np.exp(_MEAN + exponent) / len(covariance)
    metric = np.diag(intensity) + precision
    inverse = np.linalg.inv(0.5 * (metric + metric.T))
    factors[name] = np.linalg.cholesky(0.5 * (inverse + inverse.T))
  return factors


def cox_process_target(counts, covariance, dtype='float32'):
  """Returns the posterior of the latent field given counts.

  Args:
    counts: [d] array.
    covariance: Sigma, [d, d].
  """
  num_cells = len(covariance)
  whitener = np.linalg.inv(np.linalg.cholesky(covariance)).T.astype(dtype)
  counts = np.asarray(counts, dtype)

  def target_log_prob_fn(x):
    whitened = tf.tensordot(x - _MEAN, whitener, 1)
    log_likelihood = counts * x - tf.exp(x - np.log(num_cells))
    return tf.reduce_sum(log_likelihood - 0.5 * tf.square(whitened), axis=-1)

  def sample_prior(num_chains, seed):
    noise = np.random.default_rng(seed).normal(size=(num_chains, num_cells))
    return (_MEAN + noise @ np.linalg.cholesky(covariance).T).astype(dtype)

  return Target(
    name=f'cox_process_{num_cells}',
    target_log_prob_fn=target_log_prob_fn,
    event_size=num_cells,
    dtype=dtype,
    sample_prior=sample_prior,
    suggested_start=np.full(num_cells, _MEAN),
    metric_factors=metric_factors(covariance),
  )


@TARGETS.register('cox_process')
class CoxProcess(TargetParameters):
  """Latent field of a log-Gaussian Cox process, simulated counts on a grid."""

  num_cells_per_side: int = Field(8, ge=2, le=64)
  data_seed: int = Field(0, ge=0)

  def build(self, context):
    size = self.num_cells_per_side
    counts = log_gaussian_cox.simulate_counts(size, 'cells', self.data_seed)
    covariance = log_gaussian_cox.cell_covariance(size, 'cells')
    return cox_process_target(counts.ravel(), covariance, context.dtype)
