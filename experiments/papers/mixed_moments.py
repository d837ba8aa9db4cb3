"""Distance of draws from a reference in all mixed moments up to order three.

  MMD^2 = E k(x, x') + E k(y, y') - 2 E k(x, y),   k(x, y) = (1 + <x, y>)^3

The kernel's features are the monomials of degree 0 to 3 with known weights, so
that the MMD is the distance of two vectors of weighted moments. Coordinates are
standardized by the reference.

References: Strathmann et al. (2015), Figure 4,
https://arxiv.org/abs/1506.02564; Gretton et al. (2012).
"""

import collections
import functools
import itertools
import math

import numpy as np

from experiments.run import store

_DEGREE = 3
_AT = (500, 1000, 2000, 3000, 4000, 6000)


def features(points):
  """Returns features [n, C(d + 3, 3)] whose products are (1 + <x, y>)^3."""
  # The coordinate that is always 1 makes the lower degrees.
  extended = np.concatenate([np.ones_like(points[:, :1]), points], axis=1)
  columns = []
  for indices in itertools.combinations_with_replacement(
    range(extended.shape[1]), _DEGREE
  ):
    orders = map(math.factorial, collections.Counter(indices).values())
    weight = math.sqrt(math.factorial(_DEGREE) / math.prod(orders))
    columns.append(weight * np.prod(extended[:, indices], axis=1))
  return np.stack(columns, axis=1)


@functools.cache
def _reference(folder):
  """Returns mean, deviation and mean features of all draws of a run."""
  draws = [
    np.asarray(store.read_draws(folder, record).posterior['unconstrained'])
    for record in store.read(folder)
    if record.status == 'finished'
  ]
  draws = np.concatenate([one.reshape(-1, one.shape[-1]) for one in draws])
  mean, deviation = draws.mean(axis=0), draws.std(axis=0)
  return mean, deviation, features((draws - mean) / deviation).mean(axis=0)


def distances(states, folder):
  """Returns {number of steps: MMD of the draws of so many first steps}.

  Args:
    states: [num_steps, num_chains, event_size]; chains are pooled.
    folder: Folder of the run whose draws are the reference.
  """
  mean, deviation, expected = _reference(folder)
  found = {}
  for count in _AT:
    if count <= len(states):
      rows = ((states[:count] - mean) / deviation).reshape(-1, len(mean))
      found[count] = float(np.linalg.norm(features(rows).mean(0) - expected))
  return found
