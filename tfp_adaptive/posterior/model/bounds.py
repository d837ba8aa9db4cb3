"""Finds intervals for unknowns that the data bound.

An example is the start of a window, which cannot lie after the first event. If
the support of data depends on an unknown, the posterior ends abruptly. The
gradient does not show this boundary, so proposals beyond it are rejected.

If no interval depends on other coordinates, a map of all real numbers onto the
intervals moves the boundaries to infinity.
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


def intervals(
  is_possible: Callable, candidates: np.ndarray, which: np.ndarray
) -> tfb.Bijector | None:
  """Returns the map of all real numbers onto the coordinates' intervals.

  It is `None` if no candidate [n, d] is possible, if no coordinate is bounded,
  if too many may be (`which`), or if the intervals depend on each other.
  `is_possible` tells where the data are possible, [n], for points [n, d] in
  unconstrained space. It is true where unknowns overflow.
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
  low, high = (tf.constant(side, center.dtype) for side in (low, high))
  found = supports.interval(low, high)
  normal = np.random.default_rng(0).normal(size=[_NUM_CHECKS, len(center)])
  points = found.forward(tf.constant(2 * normal, center.dtype))
  return found if np.all(is_possible(np.asarray(points))) else None


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
