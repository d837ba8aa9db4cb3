"""Matrices C with the least Fisher divergence, dense and diagonal, in NumPy.

`linear.fisher_fit` explains the formulas, and implements them for compiled
kernels. With covariances X of the states and Y of the scores, C C^T is the
geometric mean X # Y^-1.
"""

import numpy as np

# As in `linear.fisher_fit`.
_FEWEST_STATES, _SHRINKAGE = 0.5, 0.1


def fit(states, gradients, weights=None):
  """Returns the factor C, [d, d], for states and gradients [n, d]; NaN if none.

  The weights of the pairs, [n], sum to one; by default they are equal.
  """
  count = len(states)
  if weights is None:
    weights = np.full([count], 1.0 / count)
  spreads = []
  for rows in (states, gradients):
    rows = rows - weights @ rows
    spreads.append(rows.T @ (weights[:, np.newaxis] * rows))
  return factor(*spreads, 1.0 / np.sum(weights**2))


def fit_diagonal(states, gradients, weights=None):
  """Returns the scales on the diagonal of C, [d]; see `fit`."""
  count = len(states)
  if weights is None:
    weights = np.full([count], 1.0 / count)
  return _scales(
    *(weights @ (rows - weights @ rows) ** 2 for rows in (states, gradients))
  )


def factor(covariance, precision, num_states):
  """Returns C, with correlations shrunk if states are few, [d, d]; NaN if none.

  `precision` is the covariance of the gradients.
  """
  diagonals = np.diag(covariance), np.diag(precision)
  ratio = num_states / len(covariance)
  share = 1.0 - _SHRINKAGE / (1.0 + ratio**4)
  if ratio < _FEWEST_STATES:
    return np.diag(_scales(*diagonals))
  shrunk = [share * spread for spread in (covariance, precision)]
  for spread, diagonal in zip(shrunk, diagonals):
    np.fill_diagonal(spread, diagonal)
  return factor_of_mean(*shrunk)


def factor_of_mean(covariance, precision):
  """Returns the Cholesky factor of X # Y^-1, [d, d]; NaN if none exists.

  With X = L L^T, it is L times the Cholesky factor of (L^T Y L)^-1/2.
  """
  try:
    lower = np.linalg.cholesky(covariance)
    whitened = lower.T @ precision @ lower
    values, vectors = np.linalg.eigh(0.5 * (whitened + whitened.T))
    if not values[0] > 0.0:
      raise np.linalg.LinAlgError
    root = (vectors / np.sqrt(values)) @ vectors.T
    return lower @ np.linalg.cholesky(0.5 * (root + root.T))
  except np.linalg.LinAlgError:
    return np.full_like(covariance, np.nan)


def _scales(variances, of_gradients):
  """Returns (variance / variance of gradients)^1/4, [d]; NaN instead of 0."""
  with np.errstate(divide='ignore', invalid='ignore'):
    scales = (variances / of_gradients) ** 0.25
  return np.where(scales > 0.0, scales, np.nan)
