"""The learned factor of a method, in a form that suits its size."""

import numpy as np

import tfp_adaptive as tfpa
from experiments.samplers.base import find_field

# Beyond this many coordinates a dense factor is neither formed nor inverted.
_MAX_DENSE = 3000
# Coordinates at either end that an image shows.
_CORNER = 100


def learned_factor(method, result, event_size):
  """Returns the learned scale factor C, step size included.

  Returns:
    float64 [d, d], or [d] if C is diagonal. `None` if there is no matrix, or
    if C is too large.
  """
  if not method.is_adaptive or hasattr(method.kernel.proposal, 'transport'):
    return None  # No matrix was learned.
  results = result.final_kernel_results
  params = find_field(results, 'preconditioner_params')
  if hasattr(params, 'shape') and params.shape.rank == 1:
    step_size = np.asarray(find_field(results, 'step_size'), np.float64)
    return step_size * np.asarray(params, np.float64)
  if event_size > _MAX_DENSE:
    return None
  return np.asarray(tfpa.learned_factor(method.kernel, results), np.float64)


def is_singular(factor):
  """Returns whether C has no inverse, or is not finite.

  Args:
    factor: C, [d, d] or its diagonal [d].
  """
  if not np.all(np.isfinite(factor)):
    return True
  if factor.ndim == 1:
    return not np.all(factor)
  sign, log_det = np.linalg.slogdet(factor)
  return bool(sign == 0.0 or not np.isfinite(log_det))


def condition_number(factor, covariance):
  """Returns the condition number of C^-1 Sigma C^-T, 1 for the right shape.

  Args:
    factor: C, [d, d] or its diagonal [d].
    covariance: Sigma, [d, d] or its diagonal [d].

  Returns:
    At least 1; infinity if C is singular up to rounding.
  """
  if is_singular(factor):
    return np.inf
  if factor.ndim == 1 and covariance.ndim == 1:
    ratio = covariance / factor**2
    return ratio.max() / ratio.min()
  factor = np.diag(factor) if factor.ndim == 1 else factor
  covariance = np.diag(covariance) if covariance.ndim == 1 else covariance
  whitened = np.linalg.solve(factor, covariance)
  whitened = np.linalg.solve(factor, whitened.T)
  eigenvalues = np.linalg.eigvalsh(0.5 * (whitened + whitened.T))
  if eigenvalues[0] <= 0.0:
    return np.inf
  return eigenvalues[-1] / eigenvalues[0]


def images(factor):
  """Returns the first and last coordinates of C C^T and of its inverse.

  Args:
    factor: C, [d, d] or its diagonal [d].

  Returns:
    {name: float32 [n, n]}. The first coordinates of a small matrix are all.

  Raises:
    numpy.linalg.LinAlgError: If the factor is singular.
  """
  if factor.ndim == 1:
    if not np.all(factor):
      raise np.linalg.LinAlgError('A factor with a zero is singular.')
    rows = {'covariance': factor, 'precision': 1.0 / factor}
  else:
    rows = {'covariance': factor, 'precision': np.linalg.inv(factor).T}
  named = {}
  for name, matrix in rows.items():
    ends = {'first': matrix[:_CORNER]}
    if len(matrix) > _CORNER:
      ends['last'] = matrix[-_CORNER:]
    for end, part in ends.items():
      # Only the corner of a diagonal becomes a matrix.
      product = np.diag(part**2) if part.ndim == 1 else part @ part.T
      named[f'{name}_{end}'] = np.asarray(product, np.float32)
  return named
