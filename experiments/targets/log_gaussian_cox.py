"""Log-Gaussian Cox process on n x n cells as a latent Gaussian model.

  x ~ N(0, C),  y_a ~ Poisson(m exp(x_a + mu)),  m = 1 / n^2
  sigma^2 = 1.91,  beta = 1/33,  mu = log 126 - sigma^2 / 2

There are two distances, because the paper's text and its code differ:

  cells        C_ab = sigma^2 exp(-|a - b| / (n beta)), |a - b| in cells
  unit_square  C_ab = sigma^2 exp(-|a - b| / (64 beta)), with cells 1 / (n - 1)
               apart and the outer cells on the edges of the unit square

With unit_square the field hardly varies. The published effective sizes are for
this distance. Counts are the published ones, or simulated from a fixed seed. A
coarser grid merges cells of a finer grid, as in the supplement.

References: Titsias and Papaspiliopoulos (2018), 5.2,
https://arxiv.org/abs/1610.09641; Girolami and Calderhead (2011), Section 9.
"""

from typing import Literal

import numpy as np
import tensorflow as tf
from pydantic import Field
from scipy.spatial import distance as distance_lib

import tfp_adaptive as tfpa
from experiments.data import datasets
from experiments.data.sources import COUNTS
from experiments.targets import latent
from experiments.targets.base import TargetParameters
from experiments.targets.registry import TARGETS

VARIANCE = 1.91
BETA = 1.0 / 33.0
MEAN = np.log(126.0) - 0.5 * VARIANCE


def length_scale(num_cells, distance):
  """Returns the length over which the field varies, in cells."""
  if distance == 'cells':
    return num_cells * BETA
  return 64.0 * BETA * (num_cells - 1)


def cell_covariance(num_cells, distance):
  """Returns C, [n^2, n^2] float64, for cells counted row by row."""
  cells = np.indices((num_cells, num_cells)).reshape(2, -1).T
  gaps = distance_lib.cdist(cells, cells)
  return VARIANCE * np.exp(-gaps / length_scale(num_cells, distance))


def simulate_counts(num_cells, distance, data_seed):
  """Returns Poisson counts [n, n] of a field drawn from the prior."""
  rng = np.random.default_rng(data_seed)
  factor = np.linalg.cholesky(cell_covariance(num_cells, distance))
  field = MEAN + factor @ rng.normal(size=num_cells**2)
  counts = rng.poisson(np.exp(field) / num_cells**2)
  return counts.reshape(num_cells, num_cells)


def merge(counts, num_cells):
  """Returns counts [n, n] summed over blocks of cells of a finer grid."""
  factor, rest = divmod(len(counts), num_cells)
  if rest:
    raise ValueError(
      f'target.num_cells_per_side: {num_cells} does not divide the '
      f'{len(counts)} cells per side of the counts. Write a divisor of '
      f'{len(counts)}.'
    )
  blocks = counts.reshape(num_cells, factor, num_cells, factor)
  return blocks.sum(axis=(1, 3))


def stationary_prior(num_cells, distance, dtype):
  """Returns the same prior by FFT, whose state is a torus around the grid."""
  length = length_scale(num_cells, distance)
  prior = tfpa.gaussian_priors.stationary(
    (num_cells, num_cells),
    lambda gaps: VARIANCE * tf.exp(-gaps / tf.cast(length, gaps.dtype)),
    dtype='float64',
  )
  return latent.as_dtype(prior, dtype)


def log_gaussian_cox_target(counts, prior, dtype='float32'):
  """Returns the posterior of the centered latent field given counts.

  Args:
    counts: [n, n] array.
    prior: Prior of the field, or of a torus around the field.
  """
  num_cells = counts.size
  observed = np.asarray(counts, dtype).ravel()

  def log_likelihood_fn(x):
    seen = _on_grid(prior, num_cells, x)
    # One exponential gives exp(x + mu) / n^2.
    expected = tf.exp(seen + (MEAN - np.log(num_cells)))
    return tf.reduce_sum(observed * seen - expected, axis=-1)

  def view(states):
    return _on_grid(prior, num_cells, tf.constant(states)).numpy()

  return latent.latent_target(
    f'log_gaussian_cox_{num_cells}',
    log_likelihood_fn,
    # The likelihood restricts the state, which a kernel must not do again.
    prior._replace(restrict=None),
    dtype,
    view=None if prior.restrict is None else view,
  )


def _on_grid(prior, num_cells, x):
  """Returns the part of a torus [..., d] that has counts, [..., n^2]."""
  if prior.restrict is None:
    return x
  chains = x.shape[:-1]
  grid = prior.restrict(tf.reshape(x, [*chains, *prior.event_shape]))
  return tf.reshape(grid, [*chains, num_cells])


@TARGETS.register('log_gaussian_cox')
class LogGaussianCox(TargetParameters):
  """Cox process on a grid, with a dense prior or a prior by FFT."""

  num_cells_per_side: int = Field(64, ge=2, le=256)
  distance: Literal['cells', 'unit_square'] = 'cells'
  prior: Literal['spectral', 'stationary'] = Field(
    'spectral', description='dense, or by FFT on a torus around the grid'
  )
  counts: Literal['simulated', 'published'] = Field(
    'simulated', description='published: 64 x 64, from the data folder'
  )
  data_seed: int = Field(0, ge=0)
  simulated_cells_per_side: int | None = Field(
    None, ge=2, le=64, description='finer grid of the counts; None: the same'
  )

  def build(self, context):
    num_cells = self.num_cells_per_side
    if self.counts == 'published':
      counts, _ = datasets.load(COUNTS, context.data_dir)
    else:
      finer = self.simulated_cells_per_side or num_cells
      counts = simulate_counts(finer, self.distance, self.data_seed)
    counts = merge(counts, num_cells)
    if self.prior == 'stationary':
      prior = stationary_prior(num_cells, self.distance, context.dtype)
    else:
      covariance = cell_covariance(num_cells, self.distance)
      prior = latent.spectral_prior(covariance, context.dtype)
    return log_gaussian_cox_target(counts, prior, context.dtype)
