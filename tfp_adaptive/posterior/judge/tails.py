"""Measures how heavy tails are, which decides whether a mean has a known error.

Beyond a high threshold, almost any distribution is close to a generalized
Pareto distribution. Moments exist for orders below 1/k, with k the shape of
that distribution. The error of a mean depends on the second moment, so draws
give this error only if k is well below one. R-hat, effective sizes and
quantiles are right for any k, because they depend on ranks.

Sources: Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed
importance sampling, JMLR 25(72), equation 13, appendices C and H; Zhang and
Stephens (2009), A new and efficient estimation method for the generalized
Pareto distribution, Technometrics 51(3).
"""

from typing import NamedTuple

import numpy as np

_HIGHEST = 0.7
_LARGEST_SHARE = 0.2  # Largest share of the draws in a tail.
_FEWEST = 5  # Fewest draws in a tail.
# The fit is shrunk to `_GUESS`, as if `_WEIGHT` more draws had this k.
_GUESS, _WEIGHT = 0.5, 10.0
_NUMBERS = 2**17  # Most numbers in memory during a fit.


class Tails(NamedTuple):
  """Tail shapes k of coordinates, [d] each; NaN where too few draws differ."""

  value: np.ndarray  # Pareto k of draws, the larger k of both tails.
  square: np.ndarray  # Pareto k of squares around the mean.
  highest: np.ndarray  # Largest k at which the error of a mean is reliable.

  @property
  def is_heavy(self):
    """Whether means and deviations have no reliable error, [2, d] bool."""
    # NaN does not count as heavy, because chains that stand still fail another
    # check.
    return np.stack([self.value > self.highest, self.square > self.highest])


def of_draws(draws, sizes):
  """Returns the `Tails` of draws [n, chains, d].

  The fewer the effective draws in the tails are (`sizes`, [d]), the more draws
  form a tail.
  """
  flat = np.asarray(draws, np.float64).reshape(-1, draws.shape[-1]).T
  sizes = np.clip(np.nan_to_num(sizes, nan=1.0), 1.0, flat.shape[1])
  lengths = _lengths(flat.shape[1], sizes)
  value, square = np.full([2, len(flat)], np.nan)
  for length in np.unique(lengths):
    rows = np.flatnonzero(lengths == length)
    width = max(1, _NUMBERS // flat.shape[1])
    for start in range(0, len(rows), width):
      some = rows[start : start + width]
      value[some], square[some] = _of_some(flat[some], length)
  return Tails(value, square, highest_k(sizes))


def highest_k(sizes):
  """Returns min(0.7, 1 - 1 / log10 S) for effective sizes S, [...]."""
  digits = np.log10(np.maximum(sizes, 10.0))
  return np.minimum(_HIGHEST, 1.0 - 1.0 / digits)


def shape(excesses):
  """Returns k of generalized Pareto draws, [d], by Zhang and Stephens.

  With sigma the scale and theta = -k / sigma, the profile log likelihood of m
  draws x_i is

    l(theta) = m (log(-theta / k) - k - 1),   k = mean_i log(1 - theta x_i).

  theta is the mean over a grid with weights exp(l). The grid stands for a prior
  that is wide on the scale of the draws. Then k is shrunk to 1/2.

  The excesses are [d, m], positive and ascending; no first quartile is 0.
  """
  m = excesses.shape[1]
  num_points = 30 + int(np.sqrt(m))
  places = 1.0 - np.sqrt(num_points / (np.arange(num_points) + 0.5))
  quartile = excesses[:, int(m / 4 + 0.5) - 1, np.newaxis]
  theta = 1.0 / excesses[:, -1:] + places / (3.0 * quartile)
  k = _mean_log(theta, excesses)
  log_likelihood = m * (np.log(-theta / k) - k - 1.0)
  weights = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
  theta = np.sum(weights * theta, axis=1) / np.sum(weights, axis=1)
  k = _mean_log(theta[:, np.newaxis], excesses)[:, 0]
  return (m * k + _WEIGHT * _GUESS) / (m + _WEIGHT)


def _mean_log(theta, x):
  """Returns mean_i log(1 - theta_j x_i), [d, j], for theta [d, j], x [d, m]."""
  means = np.empty_like(theta)
  width = max(1, _NUMBERS // (theta.shape[1] * x.shape[1]))
  for start in range(0, len(x), width):
    some = slice(start, start + width)
    products = theta[some, :, np.newaxis] * x[some, np.newaxis]
    means[some] = np.log1p(-products).mean(axis=-1)
  return means


def _lengths(n, sizes):
  """Returns the number of draws in a tail, 3 n / sqrt(S), [d], with sizes S.

  That is 3 sqrt(n) for independent draws and more for correlated ones. Lengths
  are rounded to powers of 1.2, so that many coordinates share one fit.
  """
  lengths = 3.0 * n / np.sqrt(sizes)
  steps = np.round(np.log(lengths) / np.log(1.2))
  return np.int64(np.minimum(1.2**steps, _LARGEST_SHARE * n))


def _of_some(rows, length):
  """Returns k of values and k of squares, [d] each, for rows [d, n]."""
  rows = rows - rows.mean(axis=1, keepdims=True)
  scale = np.abs(rows).max(axis=1, keepdims=True)
  rows = rows / np.where(scale > 0.0, scale, 1.0)  # No square overflows then.
  value = np.fmax(_of_tail(rows, length), _of_tail(-rows, length))
  return value, _of_tail(rows**2, length)


def _of_tail(rows, length):
  """Returns k of the upper tail, [d], for rows [d, n]."""
  found = np.full(len(rows), np.nan)
  if length < _FEWEST:
    return found
  largest = np.partition(rows, -length - 1, axis=1)[:, -length - 1 :]
  largest = np.sort(largest, axis=1)
  excesses = largest[:, 1:] - largest[:, :1]
  is_known = excesses[:, int(length / 4 + 0.5) - 1] > 0.0
  found[is_known] = shape(excesses[is_known])
  return found
