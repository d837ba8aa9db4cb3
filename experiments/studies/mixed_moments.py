"""Distance of draws from a reference in all mixed moments up to order three.

  MMD^2 = E k(x, x') + E k(y, y') - 2 E k(x, y),   k(x, y) = (1 + <x, y>)^3

The kernel's features are the monomials of degree 0 to 3, each with a known
weight, so that MMD is the Euclidean distance of the weighted mean moments; it
is 0 only if all of them agree. Coordinates are standardized by the reference,
else the widest would decide alone.
References: Gretton et al. (2012); Sejdinovic et al. (2014), 5.
"""

import itertools
import math

import numpy as np

__all__ = [
  'MomentDistance',
  'mean_error_norm',
  'moment_features',
]

_DEGREE = 3
# Rows of features held at a time.
_CHUNK = 10000


def moment_features(points):
  """Returns features whose inner products are (1 + <x, y>)^3.

  Args:
    points: [n, d].

  Returns:
    [n, C(d + 3, 3)] float64, one column for each monomial: 1 and x_i, ...,
    times the root of its multinomial coefficient.
  """
  points = np.asarray(points, np.float64)
  # The coordinate that is always 1 makes the lower degrees.
  extended = np.concatenate([np.ones_like(points[:, :1]), points], axis=1)
  columns = []
  for indices in itertools.combinations_with_replacement(
    range(extended.shape[1]), _DEGREE
  ):
    orders = [math.factorial(indices.count(i)) for i in set(indices)]
    weight = math.sqrt(math.factorial(_DEGREE) / math.prod(orders))
    columns.append(weight * np.prod(extended[:, indices], axis=1))
  return np.stack(columns, axis=1)


class MomentDistance:
  """MMD of draws from one reference sample."""

  def __init__(self, reference):
    """Keeps the moments of the reference.

    Args:
      reference: [n, d] draws of a long run, or exact ones.
    """
    reference = np.asarray(reference, np.float64)
    self._mean = reference.mean(axis=0)
    self._scale = reference.std(axis=0)
    if not np.all(self._scale > 0):
      raise ValueError(
        'reference: every coordinate must vary; of those given, '
        f'{np.flatnonzero(self._scale == 0)} are constant.'
      )
    self._moments = self._cumulative(reference, [len(reference)])[0]

  def of(self, draws):
    """Returns the MMD, a float, of draws [n, d]."""
    return float(self.along(draws, [len(draws)])[0])

  def along(self, draws, iterations):
    """Returns the MMD of the first so many draws of one or more chains.

    Args:
      draws: [num_draws, d], or [num_draws, num_chains, d], pooled.
      iterations: increasing counts of draws, each at least 1.

    Returns:
      [len(iterations)] float64.
    """
    moments = self._cumulative(draws, iterations)
    return np.linalg.norm(moments - self._moments, axis=-1)

  def _cumulative(self, draws, iterations):
    """Returns mean features of the first draws, [len(iterations), f]."""
    draws = np.asarray(draws, np.float64)
    iterations = _checked(iterations, len(draws))
    standard = (draws - self._mean) / self._scale
    means, total, start = [], 0.0, 0
    for stop in iterations:
      for first in range(start, stop, _CHUNK):
        part = standard[first : min(stop, first + _CHUNK)]
        part = part.reshape(-1, draws.shape[-1])
        total = total + moment_features(part).sum(axis=0)
      means.append(total / (stop * (draws[0].size // draws.shape[-1])))
      start = stop
    return np.stack(means)


def mean_error_norm(draws, mean):
  """Returns |average of all draws - mean|, a float.

  Args:
    draws: [..., d].
    mean: [d], known.
  """
  draws = np.asarray(draws, np.float64)
  average = draws.reshape(-1, draws.shape[-1]).mean(axis=0)
  return float(np.linalg.norm(average - mean))


def _checked(iterations, num_draws):
  iterations = [int(count) for count in iterations]
  steps = np.diff([0, *iterations])
  if not iterations or np.any(steps <= 0) or iterations[-1] > num_draws:
    raise ValueError(
      f'iterations: {iterations} was given for {num_draws} draws; write '
      'increasing counts between 1 and the number of draws.'
    )
  return iterations
