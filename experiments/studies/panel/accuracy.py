"""How far a run is from the truth: squared bias by cost, and z-scores.

  b^2 = (E^[x^2] - E[x^2])^2 / Var[x^2]

E^ is the mean over draws of all chains, for each coordinate. Independent draws
have b^2 = 1/n on average, so that 1 / b^2 counts draws.
References: Hoffman and Sountsov (2022), Tuning-free generalized Hamiltonian
Monte Carlo, section 4.
"""

from typing import NamedTuple

import numpy as np

from experiments.papers import moments

_NUM_POINTS = 12
# Larger values, and values that are not finite, count as this.
_FARTHEST = 1e6


class Curve(NamedTuple):
  """b^2 after a number of draws, lists of one length."""

  num_draws: list
  worst: list
  mean: list


class WorstZ(NamedTuple):
  """The largest error in standard errors, and the number of comparisons."""

  worst: float
  # 'mean' or 'deviation', and the coordinate.
  moment: str
  coordinate: int
  num_comparisons: int
  root_mean_square: float


def squared_bias_curve(draws, truth):
  """Returns the `Curve` over geometrically growing numbers of draws."""
  sizes = np.unique(
    np.geomspace(1, len(draws), _NUM_POINTS).round().astype(int)
  )
  sums, start, biases = 0.0, 0, []
  for size in sizes:
    sums = sums + np.square(draws[start:size]).mean(axis=1).sum(axis=0)
    start = size
    error = sums / size - truth.mean_of_square
    biases.append(error**2 / truth.variance_of_square)
  return Curve(
    [int(size) for size in sizes],
    [_bounded(values.max()) for values in biases],
    [_bounded(values.mean()) for values in biases],
  )


def _bounded(values):
  known = np.nan_to_num(values, nan=_FARTHEST, posinf=_FARTHEST)
  return np.clip(known, -_FARTHEST, _FARTHEST).tolist()


def worst_z(draws, truth, counts=None):
  """Returns the `WorstZ` of means and deviations of all coordinates.

  Args:
    draws: [num_draws, num_chains, n].
    counts: Which means and deviations are compared, [2, n] bool, at least one.
      `None` compares all.
  """
  scores = moments.z_scores(
    draws, truth.mean, truth.deviation, truth.standard_error
  )
  both = np.asarray(_bounded(np.stack([scores.mean_z, scores.deviation_z])))
  counts = np.ones(both.shape, bool) if counts is None else counts
  farthest = np.argmax(np.where(counts, np.abs(both), -1.0))
  moment, coordinate = np.unravel_index(farthest, both.shape)
  return WorstZ(
    float(both[moment, coordinate]),
    ('mean', 'deviation')[moment],
    int(coordinate),
    int(np.sum(counts)),
    float(np.sqrt(np.mean(np.square(both[counts])))),
  )
