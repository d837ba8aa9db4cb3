"""What a method learned, as small as its structure and size allow."""

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
    float64 [d, d]; [d] where it is diagonal; None where there is none, or too
    large a one.
  """
  if not method.is_adaptive or hasattr(method.kernel.proposal, 'transport'):
    return None  # Nothing learned, or a map that is no matrix.
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
  """Returns that of C^-1 Sigma C^-T: 1 where the shape was learned.

  Args:
    factor: C, [d, d] or its diagonal [d].
    covariance: Sigma, [d, d] or its diagonal [d].

  Returns:
    At least 1; infinity where C is singular, to the rounding of the numbers.
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
  """Returns C C^T and its inverse, the first and last coordinates of them.

  Args:
    factor: C, [d, d] or its diagonal [d].

  Returns:
    {name: float32 [n, n]}; of a small matrix the first holds all of it.

  Raises:
    numpy.linalg.LinAlgError: if the factor is singular.
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
      # Of a diagonal only the corner is made a matrix.
      product = np.diag(part**2) if part.ndim == 1 else part @ part.T
      named[f'{name}_{end}'] = np.asarray(product, np.float32)
  return named
