"""The random-feature surrogate as its paper fits it, for comparison.

  f(x) = theta . phi(x),   phi_j(x) = sqrt(2 / m) cos(w_j . x + u_j)
  theta = (C + lambda I)^-1 b
  C = mean_i sum_l d_l phi(x_i) d_l phi(x_i)^T
  b = -mean_i sum_l d_ll phi(x_i)

in the coordinates of the target, for the rational quadratic kernel: one
bandwidth, no metric, no Gaussian base. Bandwidth and lambda are those with the
best score-matching objective on draws held out.
References: Strathmann et al. (2015), Proposition 2 and section 6,
https://arxiv.org/abs/1506.02564.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.spatial.distance

__all__ = ['PlainFeatures', 'fit', 'objective', 'score', 'sums']

_BANDWIDTHS = (0.25, 1.0, 4.0, 16.0, 64.0)  # Times the median distance^2.
_REGULARIZATIONS = (1e-8, 1e-6, 1e-4, 1e-2)  # Of the mean of diag C.
_MAX_SEARCHED = 400  # Features in the search for the bandwidth.
_TRAINED_SHARE = 0.8


class PlainFeatures(NamedTuple):
  """w [d, m], u [m] and theta [m]."""

  frequencies: np.ndarray
  phases: np.ndarray
  coefficients: np.ndarray


def fit(draws, num_features, seed):
  """Returns `PlainFeatures` fitted to draws [n, d]."""
  draws = np.asarray(draws, np.float64)
  rng = np.random.default_rng(seed)
  shape = (draws.shape[1], num_features)
  # A rational quadratic kernel of shape 1 mixes precisions ~ Exponential(1).
  mixing = rng.exponential(size=num_features)
  frequencies = rng.normal(size=shape) * np.sqrt(2.0 * mixing)
  phases = rng.uniform(0.0, 2.0 * np.pi, size=num_features)
  median = np.median(scipy.spatial.distance.pdist(draws[:300], 'sqeuclidean'))
  num_trained = int(_TRAINED_SHARE * len(draws))
  parts = draws[:num_trained], draws[num_trained:]

  few = slice(0, min(num_features, _MAX_SEARCHED))
  scales = [1.0 / np.sqrt(factor * median) for factor in _BANDWIDTHS]
  tried = [
    _search(parts, scale * frequencies[:, few], phases[few])[0]
    for scale in scales
  ]
  frequencies *= scales[int(np.argmin(tried))]
  _, regularization = _search(parts, frequencies, phases)
  theta = _solve(*sums(draws, frequencies, phases), regularization)
  return PlainFeatures(frequencies, phases, theta)


def sums(draws, frequencies, phases):
  """Returns (C [m, m], b [m]) of the draws."""
  angles = draws @ frequencies + phases
  sines = np.sin(angles)
  scale = 2.0 / len(phases)
  gram = (frequencies.T @ frequencies) * (sines.T @ sines) / len(draws)
  curved = np.sum(frequencies**2, axis=0) * np.cos(angles).mean(axis=0)
  return scale * gram, np.sqrt(scale) * curved


def objective(coefficients, gram, curved):
  """Returns the score-matching objective of the draws behind C and b."""
  return 0.5 * coefficients @ gram @ coefficients - coefficients @ curved


def score(features, x):
  """Returns the gradient of f at x [k, d]."""
  sines = np.sin(x @ features.frequencies + features.phases)
  amplitude = np.sqrt(2.0 / len(features.phases))
  return -amplitude * (sines * features.coefficients) @ features.frequencies.T


def _search(parts, frequencies, phases):
  """Returns (objective held out, regularization) of the best."""
  trained, held_out = (sums(part, frequencies, phases) for part in parts)
  values = [
    objective(_solve(*trained, regularization), *held_out)
    for regularization in _REGULARIZATIONS
  ]
  best = int(np.argmin(values))
  return values[best], _REGULARIZATIONS[best]


def _solve(gram, curved, regularization):
  ridge = regularization * np.trace(gram) / len(gram)
  factor = scipy.linalg.cho_factor(gram + ridge * np.eye(len(gram)))
  return scipy.linalg.cho_solve(factor, curved)
