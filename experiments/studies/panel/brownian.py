"""The exact moments of inference_gym's Brownian motion with unknown scales.

  log a, log s ~ N(0, 4),  x_t ~ N(x_{t-1}, a^2),  x_0 = 0,  y_t ~ N(x_t, s^2)

Given both scales the path is Gaussian; with K_tu = min(t, u) over the observed
days, K = V diag(w) V^T and z = V^T y,

  z_j ~ N(0, a^2 w_j + s^2)

so that two dimensions of quadrature give all moments. inference_gym's own are
off by ten of their standard errors and more (innovation scale 0.120 for 0.116,
observation scale 0.101 for 0.113).
"""

import numpy as np
from inference_gym.internal import data as gym_data

__all__ = ['exact_moments', 'moments_of']

_LOWEST, _HIGHEST = -14.0, 2.5
_NUM_POINTS = 661
_PRIOR_DEVIATION = 2.0


def exact_moments():
  """Returns the moments as the file of a reference has them, a dict."""
  data = gym_data.brownian_motion_missing_middle_observations()
  observed = np.asarray(data['observed_locs'], np.float64)
  coarse = moments_of(observed, (_NUM_POINTS + 1) // 2)
  mean, second, fourth = moments_of(observed, _NUM_POINTS)
  return {
    'source': 'quadrature',
    'is_converged': True,
    'num_points': _NUM_POINTS**2,
    'mean': mean.tolist(),
    'deviation': np.sqrt(second - mean**2).tolist(),
    # What halving the spacing changed.
    'standard_error': np.abs(mean - coarse[0]).tolist(),
    'variance_of_square': (fourth - second**2).tolist(),
  }


def moments_of(observed, num_points):
  """Returns E[v], E[v^2], E[v^4] of v = (a, path, s), [3, num_days + 2].

  Args:
    observed: [num_days], NaN where missing.
    num_points: of the grid over each log scale.
  """
  days = np.arange(1, len(observed) + 1)
  is_known = ~np.isnan(observed)
  covariance = np.minimum.outer(days, days).astype(float)
  values, vectors = np.linalg.eigh(covariance[np.ix_(is_known, is_known)])
  rotated = vectors.T @ observed[is_known]
  loadings = covariance[:, is_known] @ vectors
  line = np.linspace(_LOWEST, _HIGHEST, num_points)
  squares = np.exp(2 * line)
  # [a, s, observed].
  variances = squares[:, None, None] * values + squares[:, None]
  log_weights = -0.5 * (np.log(variances) + rotated**2 / variances).sum(-1)
  log_prior = -0.5 * (line / _PRIOR_DEVIATION) ** 2
  log_weights += log_prior[:, None] + log_prior
  weights = np.exp(log_weights - log_weights.max())
  weights /= weights.sum()
  sums = np.zeros([3, len(days) + 2])
  for innovation, variance, weight in zip(
    squares, variances, weights, strict=True
  ):
    mean = innovation * (rotated / variance) @ loadings.T
    explained = innovation**2 * (1 / variance) @ (loadings**2).T
    spread = np.maximum(innovation * np.diag(covariance) - explained, 0.0)
    sums[:, 1:-1] += [
      weight @ mean,
      weight @ (mean**2 + spread),
      weight @ (mean**4 + 6 * mean**2 * spread + 3 * spread**2),
    ]
  for i, power in enumerate((1, 2, 4)):
    sums[i, 0] = weights.sum(axis=1) @ np.exp(power * line)
    sums[i, -1] = weights.sum(axis=0) @ np.exp(power * line)
  return sums
