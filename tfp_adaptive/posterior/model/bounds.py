"""Finds intervals for unknowns that the data bound.

An example is the start of a window, which cannot lie after the first event. If
the support of data depends on an unknown, the posterior ends abruptly. The
gradient does not show this boundary, so proposals beyond it are rejected.

If no interval depends on other coordinates, a map of all real numbers onto the
intervals moves the boundaries to infinity. The data must be impossible outside
of the intervals, because no chain goes there. Data of a mixture, or of |x|, may
be possible in an L-shaped set or in two pieces. Such boundaries stay.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.posterior.model import supports

tfb = tfp.bijectors

_MOST_COORDINATES = 64
_FARTHEST = 2.0**30  # Bounds that are farther away count as infinite.
_NUM_CHECKS = 256  # Points at which the box of all intervals is checked.
# Distances from an end of the box to impossible points, relative to the larger
# of 1 and the end.
_BEYOND = 2.0 ** np.arange(-4, 7)


def intervals(
  is_possible: Callable,
  is_finite: Callable,
  candidates: np.ndarray,
  which: np.ndarray,
) -> tfb.Bijector | None:
  """Returns the map of all real numbers onto the coordinates' intervals.

  It is `None` if no candidate [n, d] is possible, or if no coordinate is
  bounded. It is also `None` if too many may be (`which`), if the intervals
  depend on each other, or if points outside of them are possible.

  `is_possible` tells where the data are possible, [n], for points [n, d] in
  unconstrained space. It is true where unknowns overflow. There `is_finite` is
  false.
  """
  found = np.asarray(is_possible(candidates))
  if len(which) > _MOST_COORDINATES or not np.any(found):
    return None
  center = candidates[np.argmax(found)]
  bounds = [
    _bounds(is_possible, center, which, direction) for direction in (-1, 1)
  ]
  low, high = (np.full(center.shape, side) for side in (-np.inf, np.inf))
  low[which], high[which] = bounds
  if not np.any(np.isfinite([low, high])):
    return None
  box = supports.interval(*(tf.constant(x, center.dtype) for x in (low, high)))
  normal = np.random.default_rng(0).normal(size=[_NUM_CHECKS, len(center)])
  points = np.asarray(box.forward(tf.constant(2 * normal, center.dtype)))
  if not np.all(is_possible(points)):
    return None
  others = candidates[found & _is_outside(candidates, low, high)]
  if np.any(is_finite(others)):
    return None
  for outside in _beyond(points, low, high):
    if np.any(np.asarray(is_possible(outside)) & is_finite(outside)):
      return None
  return box


def _is_outside(points, low, high):
  """Returns which points [n, d] are outside of a box by more than rounding."""
  slack = [_BEYOND[0] * np.maximum(1, np.abs(end)) for end in (low, high)]
  return np.any((points < low - slack[0]) | (points > high + slack[1]), axis=-1)


def _beyond(points, low, high):
  """Yields points [n, d] of a box, with one coordinate moved out of the box.

  The coordinates, and the finite ends of their intervals, take turns.
  """
  for ends, direction in ((low, -1), (high, 1)):
    bounded = np.flatnonzero(np.isfinite(ends))
    if not len(bounded):
      continue
    rows = np.arange(len(points))
    columns = bounded[rows % len(bounded)]
    end = ends[columns]
    for step in _BEYOND:
      moved = points.copy()
      moved[rows, columns] = end + direction * step * np.maximum(1, np.abs(end))
      yield moved


def _bounds(is_possible, center, which, direction):
  """Returns the last possible value of each coordinate, or infinity.

  All coordinates are bisected at once. Each is moved alone from the center.
  """
  index = np.arange(len(which))

  def are_possible(steps):
    points = np.repeat(center[np.newaxis], len(which), axis=0)
    points[index, which] += direction * steps
    return np.asarray(is_possible(points))

  inside, outside = np.zeros(len(which)), np.full(len(which), np.inf)
  step = np.full(len(which), 2.0**-10)
  while np.any(np.isinf(outside)) and step[0] <= _FARTHEST:
    is_good = are_possible(step)
    outside = np.where(np.isinf(outside) & ~is_good, step, outside)
    inside = np.where(np.isinf(outside), step, inside)
    step = 2 * step
  is_bounded = np.isfinite(outside)
  outside = np.where(is_bounded, outside, inside)
  for _ in range(60):
    middle = 0.5 * (inside + outside)
    is_good = are_possible(middle)
    inside = np.where(is_good, middle, inside)
    outside = np.where(is_good, outside, middle)
  end = center[which] + direction * inside
  return np.where(is_bounded, end, direction * np.inf)
