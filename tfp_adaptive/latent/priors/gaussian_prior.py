"""Reads and checks the arguments of the factories of Gaussian priors."""

import math

import numpy as np
import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core.tfp_private import prefer_static as ps


def centered(name, event_shape, params, covariance, smoother):
  """Returns the prior with coordinates x - mean, for params with a `mean`."""
  return interfaces.GaussianPrior(
    name=name,
    event_shape=tuple(event_shape),
    params=params,
    to_coordinates=lambda params, x: x - params.mean,
    from_coordinates=lambda params, s: s + params.mean,
    pull=lambda params, rows: rows,
    covariance=covariance,
    smoother=smoother,
  )


def covariance_matrix(covariance, kernel, index_points, jitter=0.0):
  """Returns C, [..., d, d], from a matrix or from a kernel and its inputs."""
  has_kernel = kernel is not None and index_points is not None
  if (covariance is not None) == has_kernel:
    raise ValueError(
      'Give either `covariance`, a matrix [d, d], or both `kernel`, a '
      '`tfp.math.psd_kernels` kernel, and `index_points`, [d, features]: got '
      f'covariance {"given" if covariance is not None else "None"}, kernel '
      f'{kernel!r}, index_points '
      f'{"given" if index_points is not None else "None"}.'
    )
  if has_kernel:
    matrix = kernel.matrix(index_points, index_points)
  else:
    matrix = tf.convert_to_tensor(covariance)
  if not matrix.dtype.is_floating:
    raise ValueError(
      f'The covariance must be float32 or float64, but has {matrix.dtype.name}.'
    )
  if (
    matrix.shape.rank is None
    or matrix.shape.rank < 2
    or (matrix.shape[-1] != matrix.shape[-2])
  ):
    raise ValueError(
      'The covariance must be square with static shape [d, d], but has shape '
      f'{matrix.shape}.'
    )
  _check_symmetric(matrix)
  size = matrix.shape[-1]
  return matrix + jitter * tf.eye(size, dtype=matrix.dtype)


def mean(value, dtype, size):
  """Returns the mean as a Tensor that broadcasts to [chains..., d]."""
  value = tf.convert_to_tensor(value, dtype=dtype)
  if value.shape.rank and value.shape[-1] not in (1, size):
    raise ValueError(
      f'`mean` must be a number or end in the {size} coordinates of the field, '
      f'but has shape {value.shape}.'
    )
  return value


def field_mean(value, dtype, shape, padded_shape=None):
  """Returns the mean of a field, [] or [chains..., 1 or number of points].

  `value` is a number or [chains..., *shape], where trailing dimensions may be
  1. With `padded_shape`, a mean that varies is 0 in the margin of the field.
  """
  value = tf.convert_to_tensor(value, dtype=dtype)
  if not value.shape.rank:
    return value
  shape, padded_shape = list(shape), list(padded_shape or shape)
  given = value.shape[-len(shape) :]
  if len(given) != len(shape) or any(
    m not in (1, n) for m, n in zip(given, shape)
  ):
    raise ValueError(
      f'`mean` must be a number or have shape [..., {str(shape)[1:]}, one for '
      f'every point of the field, but has shape {value.shape}.'
    )
  batch = ps.shape(value)[: -len(shape)]
  if given.num_elements() == 1:
    return tf.reshape(value, ps.concat([batch, [1]], axis=0))
  value = tf.broadcast_to(value, ps.concat([batch, shape], axis=0))
  margin = [[0, m - n] for m, n in zip(padded_shape, shape)]
  value = tf.pad(value, [[0, 0]] * (value.shape.rank - len(shape)) + margin)
  return tf.reshape(
    value, ps.concat([batch, [math.prod(padded_shape)]], axis=0)
  )


def per_chain(mean, chain_shape):
  """Returns the mean with the chain dimensions of the other params.

  If a prior depends on hyperparameters, its params are selected by chain. Then
  all params must have chain dimensions. The given mean, [], [d] or
  [chains..., d or 1], is unchanged if `chain_shape` is [].
  """
  if not chain_shape.rank or mean.shape.rank > chain_shape.rank:
    return mean
  last = mean.shape[-1:] if mean.shape.rank else [1]
  return tf.broadcast_to(mean, chain_shape.concatenate(last))


def rows_times(rows, matrix, transpose=False):
  """Returns v^T M for rows v, or v^T M^T; one M, or one for every chain.

  Rows are [..., chains..., d], and M is [d, d] or [chains..., d, d].
  """
  if matrix.shape.rank > 2:
    return tf.linalg.matvec(matrix, rows, transpose_a=not transpose)
  flat = tf.reshape(rows, [-1, rows.shape[-1]])
  product = tf.matmul(flat, matrix, transpose_b=transpose)
  return tf.reshape(product, tf.shape(rows))


def check_eigenvalues(eigenvalues, advice):
  """Refuses eigenvalues negative beyond rounding, outside a `tf.function`."""
  if tf.inside_function():
    return
  values = eigenvalues.numpy()
  if not np.all(np.isfinite(values)):
    raise ValueError('The covariance has entries that are not finite.')
  largest = np.max(values, axis=-1)
  tolerance = 10 * np.finfo(values.dtype).eps * values.shape[-1] * largest
  smallest = np.min(values, axis=-1)
  if np.any(smallest < -tolerance):
    raise ValueError(
      'The covariance is not positive semi-definite: its smallest eigenvalue '
      f'is {np.min(smallest):.3g}, its largest {np.max(largest):.3g}. {advice}'
    )


def _check_symmetric(matrix):
  if tf.inside_function():
    return
  values = matrix.numpy()
  with np.errstate(invalid='ignore'):  # Infinities are refused later.
    gap = np.max(np.abs(values - np.swapaxes(values, -1, -2)), initial=0.0)
  largest = np.max(np.abs(values), initial=0.0)
  if gap > 1e3 * np.finfo(values.dtype).eps * largest:
    raise ValueError(
      f'The covariance must be symmetric, but differs from its transpose by '
      f'{gap:.3g}. Pass `0.5 * (C + C^T)` if that is rounding.'
    )
