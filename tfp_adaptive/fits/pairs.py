"""Standardizes and weights pairs of a state and a score, for fits of maps."""

from typing import NamedTuple

import numpy as np

_LARGEST_SCORE = 10.0  # Times the typical size. Larger ones have less weight.
_TINY = 1e-30


class Pairs(NamedTuple):
  """Standardized pairs, [n, d], and the mean and the scale of x, [d]."""

  states: np.ndarray
  scores: np.ndarray
  mean: np.ndarray
  scale: np.ndarray


def standardize(states, scores, weights=None, is_path=False):
  """Returns `Pairs` in which x has mean 0 and x and g have equal variances.

  The scale of a coordinate is (Var x / Var g)^1/4. All coordinates of a path
  get the geometric mean of these scales. The weights [n] sum to one; by default
  they are equal.
  """
  if weights is None:
    weights = np.full([len(states)], 1.0 / len(states))
  mean, of_scores = weights @ states, weights @ scores
  variance = weights @ (states - mean) ** 2
  score_variance = weights @ (scores - of_scores) ** 2
  scale = ((variance + _TINY) / (score_variance + _TINY)) ** 0.25
  if is_path:
    scale = np.full_like(scale, np.exp(np.mean(np.log(scale))))
  return Pairs((states - mean) / scale, scores * scale, mean, scale)


def thinned(states, scores, count, is_path=False):
  """Returns `count` evenly spaced pairs as `Pairs`."""
  index = (2 * np.arange(count) + 1) * len(states) // (2 * count)
  return standardize(states[index], scores[index], is_path=is_path)


def pick(rows, drivers, default):
  """Returns the drivers' entries along the last axis; -1 gives the default."""
  return np.where(drivers >= 0, rows[..., np.maximum(drivers, 0)], default)


def robust(residual):
  """Returns a loss of about r^2 / 2 that grows like a logarithm for large r."""
  return 2.0 * np.log1p(0.25 * residual**2)


def without_odd(scores, is_driver):
  """Returns weights [n], lower for pairs with large scores of drivers.

  In a narrow region, rounding dominates such scores.
  """
  size = np.where(is_driver, np.abs(scores), 0.0)
  # The mean of logarithms is robust against a few large scores.
  typical = np.exp(np.mean(np.log(size + _TINY), axis=0))
  odd = np.max(size / (_LARGEST_SCORE * typical), axis=-1)
  return normalized(np.maximum(odd, 1.0) ** -2.0)


def normalized(weights):
  """Returns weights that sum to one."""
  return weights / max(np.sum(weights), _TINY)
