"""What the factories of Gaussian priors share: reading and checking input."""

import numpy as np
import tensorflow as tf

__all__ = ['check_eigenvalues', 'covariance_matrix', 'mean']


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
  if matrix.shape.rank is None or matrix.shape.rank < 2 or (
    matrix.shape[-1] != matrix.shape[-2]
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


def check_eigenvalues(eigenvalues, advice):
  """Refuses eigenvalues that are negative beyond rounding, where known."""
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
  gap = np.max(np.abs(values - np.swapaxes(values, -1, -2)), initial=0.0)
  largest = np.max(np.abs(values), initial=0.0)
  if gap > 1e3 * np.finfo(values.dtype).eps * largest:
    raise ValueError(
      f'The covariance must be symmetric, but differs from its transpose by '
      f'{gap:.3g}. Pass `0.5 * (C + C^T)` if that is rounding.'
    )
