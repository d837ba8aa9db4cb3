"""A covariance that is a Kronecker product, by its factors."""

import functools
import math

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import shown
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.latent.priors import gaussian_prior
from tfp_adaptive.latent.priors import spectral_prior


@shown.remembers_call
def kronecker(
  covariances=None, mean=0.0, kernels=None, index_points=None, jitter=0.0
):
  """Builds the prior of a field whose covariance is a product over its axes.

    Cov(x[i1, i2, ...], x[j1, j2, ...]) = C1[i1, j1] C2[i2, j2] ...

  Use it for fields on a grid, regular or not, with a separable kernel, and for
  several correlated outputs, indexed by output and input. Each factor is
  decomposed, O(n_i^3). A step with a gradient costs two products with every
  factor, O(d (n1 + n2 + ...)). A factor may be singular.

  Args:
    covariances: [C1, C2, ...], each [n_i, n_i], symmetric, or [chains...,
      n_i, n_i]; or give `kernels` and `index_points`.
    mean: Mean of the field: a number, or [..., n1, n2, ...], whose trailing
      dimensions may be 1.
    kernels: A `tfp.math.psd_kernels` kernel for every axis.
    index_points: Inputs of every kernel, [n_i, features]; [n_i] is read as one
      feature.
    jitter: Added to the variance of every point.

  Returns:
    An `interfaces.GaussianPrior` of states [chains..., n1, n2, ...].

  Raises:
    ValueError: If the factors are not given exactly once, are not square or
      symmetric, or have an eigenvalue that is negative beyond rounding.

  References:
    Saatci (2011), Scalable inference for structured Gaussian process models,
    chapter 5.

  Example:
    kernel = tfp.math.psd_kernels.MaternThreeHalves(1.0, np.float64(5))
    axis = np.arange(10.0)
    prior = tfpa.gaussian_priors.kronecker(
      kernels=[kernel, kernel], index_points=[axis, axis]
    )
    draws = tfpa.gaussian_priors.sample(prior, [4], seed=(0, 1))
  """
  matrices = _factors(covariances, kernels, index_points)
  event_shape = [matrix.shape[-1] for matrix in matrices]
  gamma, vectors = tf.ones([1], matrices[0].dtype), []
  for axis, matrix in enumerate(matrices):
    values, basis = spectral_prior.eigh(matrix)
    gaussian_prior.check_eigenvalues(
      values,
      f'That is factor {axis}: check its kernel, or add to its diagonal.',
    )
    # In the order of the state, the last axis is the fastest.
    values = spectral_prior.not_negative(values)
    outer = gamma[..., :, tf.newaxis] * values[..., tf.newaxis, :]
    gamma = tf.reshape(outer, ps.concat([ps.shape(outer)[:-2], [-1]], axis=0))
    vectors.append(basis)
  gamma = tf.ensure_shape(
    gamma, gamma.shape[:-1].concatenate(math.prod(event_shape))
  )
  batch = ps.shape(gamma)[:-1]
  vectors = tuple(
    tf.broadcast_to(u, ps.concat([batch, ps.shape(u)[-2:]], axis=0))
    for u in vectors
  )
  epsilon = np.finfo(gamma.dtype.as_numpy_dtype).eps
  return spectral_prior.build(
    'kronecker',
    event_shape,
    spectral_prior.SpectralParams(
      gaussian_prior.field_mean(mean, gamma.dtype, event_shape),
      gamma + jitter,
      vectors,
    ),
    forward=_rows_times,
    backward=functools.partial(_rows_times, transpose=True),
    rounding=epsilon * sum(event_shape),
  )


def _rows_times(factors, rows, transpose=False):
  """Returns (U1 x U2 x ...)^T v for rows v, or (U1 x U2 x ...) v.

  Every product contracts the first axis and appends the result as the last
  axis. After all products the axes are in order again.
  """
  lead, size = ps.shape(rows)[:-1], rows.shape[-1]
  for factor in factors:
    n = factor.shape[-1]
    planes = tf.reshape(rows, ps.concat([lead, [n, size // n]], axis=0))
    rows = tf.reshape(
      tf.matmul(planes, factor, transpose_a=True, transpose_b=transpose),
      ps.concat([lead, [size]], axis=0),
    )
  return rows


def _factors(covariances, kernels, index_points):
  """Returns the matrices of all axes, of one dtype."""
  if covariances is not None:
    num_axes = len(covariances)
  else:
    num_axes = len(kernels or ())
    if num_axes != len(index_points or ()):
      raise ValueError(
        '`kernels` and `index_points` must be lists with one entry for every '
        f'axis, but have {num_axes} and {len(index_points or ())}.'
      )
  if not num_axes:
    raise ValueError(
      'Give `covariances`, a list of one matrix for every axis, or `kernels` '
      'and `index_points`.'
    )
  matrices = [
    gaussian_prior.covariance_matrix(
      covariances and covariances[axis],
      kernels and kernels[axis],
      index_points and _as_points(index_points[axis]),
    )
    for axis in range(num_axes)
  ]
  dtypes = {matrix.dtype.name for matrix in matrices}
  if len(dtypes) > 1:
    raise ValueError(
      f'All factors must have one dtype, but have {sorted(dtypes)}. Cast them '
      "with `tf.cast(C, 'float64')`."
    )
  return matrices


def _as_points(points):
  if points is None:
    return None
  points = tf.convert_to_tensor(points)
  return points[:, tf.newaxis] if points.shape.rank == 1 else points
