"""Moves starts uphill before sampling, so that units do not matter.

Covariates may be years or incomes. A start near zero can then lie a billion
nats below the posterior. There, Hamiltonian steps that fit the posterior are
always rejected. Every start climbs the log density by limited-memory BFGS.
The climb stops when iterations gain little, long before it reaches a maximum.
So starts stay apart, each in the mode where it began.

Reference: Nocedal and Wright (2006), Numerical Optimization, algorithm 7.4.
"""

from collections.abc import Callable

import numpy as np

_MOST_ITERATIONS = 300
_MEMORY = 10  # Remembered pairs of a step and a change of the gradient.
_MOST_HALVINGS = 30
_SUFFICIENT = 1e-4  # Least gain, as a share of what the slope predicts.
# A chain stops after `_PATIENCE` iterations in a row with little gain. A chain
# far below the best chain stops after `_PATIENCE_BELOW` iterations in a row
# with gains below `_LEAST_GAIN_BELOW` nats.
_PATIENCE, _PATIENCE_BELOW, _LEAST_GAIN_BELOW = 2, 8, 0.5


def ascend(
  evaluate: Callable[[np.ndarray], tuple],
  starts: np.ndarray,
  least_gain: float,
  gap: float,
  is_late: Callable[[], bool] = lambda: False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns points [n, d] uphill of starts, values [n] and gains in nats [n].

  Values and gradients of the starts are finite. A chain stops after two gains
  in a row below `least_gain` nats. A chain more than `gap` nats below the best
  chain stops only after eight iterations in a row with gains below half a nat.
  All chains stop if `is_late()`. A start that gained little stays where it is.
  """
  with np.errstate(over='ignore', invalid='ignore'):
    starts = np.asarray(starts, np.float64)
    first, gradients = evaluated(evaluate, starts)
    points, values, memory = starts, first, _Memory(starts.shape)
    num_stalled = np.zeros(len(starts), int)
    for _ in range(_MOST_ITERATIONS):
      is_below = values < np.max(values) - gap
      is_moving = num_stalled < np.where(is_below, _PATIENCE_BELOW, _PATIENCE)
      if is_late() or not np.any(is_moving):
        break
      directions = memory.directions(gradients)
      found = _searched(
        evaluate, points, values, gradients, directions, is_moving
      )
      memory.add(found[0] - points, gradients - found[2])
      gains = found[1] - values
      points, values, gradients = found
      least = np.where(is_below, _LEAST_GAIN_BELOW, least_gain)
      num_stalled = np.where(gains < least, num_stalled + 1, 0)
      # The remembered curvature may be that of another region.
      memory.forget(num_stalled == _PATIENCE_BELOW // 2)
    # A start that gained little was good enough, so it is kept.
    is_same = values - first < _PATIENCE * least_gain
    points = np.where(is_same[:, np.newaxis], starts, points)
    values = np.where(is_same, first, values)
    return points, values, values - first


def evaluated(evaluate, rows):
  """Returns (values, gradients), with -inf and zeros for non-finite rows."""
  values, gradients = evaluate(rows)
  values = np.asarray(values, np.float64)
  gradients = np.asarray(gradients, np.float64)
  is_finite = np.isfinite(values) & np.all(np.isfinite(gradients), axis=-1)
  gradients = np.where(is_finite[:, np.newaxis], gradients, 0.0)
  return np.where(is_finite, values, -np.inf), gradients


def _searched(evaluate, points, values, gradients, directions, is_moving):
  """Returns points, values and gradients after one line search.

  A step is halved until the density gains enough, and further while each half
  gains more. Without further halving, a chain may keep a long step into a flat
  region. A chain stays where it is if no step gains.
  """
  slopes = np.sum(gradients * directions, axis=-1)
  points, values, gradients = points.copy(), values.copy(), gradients.copy()
  start, low = points.copy(), values.copy()
  size, is_left = np.ones(len(points)), is_moving.copy()
  for _ in range(_MOST_HALVINGS):
    if not np.any(is_left):
      break
    rows = np.where(
      is_left[:, np.newaxis], start + size[:, np.newaxis] * directions, points
    )
    found, slope = evaluated(evaluate, rows)
    is_better = is_left & (found > values)
    is_better &= found > low + _SUFFICIENT * size * slopes
    points[is_better], values[is_better] = rows[is_better], found[is_better]
    gradients[is_better] = slope[is_better]
    is_left &= is_better | (values == low)
    size = 0.5 * size
  return points, values, gradients


class _Memory:
  """The last steps of each chain, and the inverse curvature that they imply."""

  def __init__(self, shape):
    self._pairs = []  # (steps, changes, 1 / products), the oldest first.
    self._radius = np.ones(shape[0])
    self._scale = np.zeros(shape[0])  # 0: no curvature is known.

  def add(self, steps, changes):
    """Remembers steps [n, d] and the decreases of the gradient [n, d]."""
    products = np.sum(steps * changes, axis=-1)
    squares = np.sum(changes**2, axis=-1)
    lengths = np.sqrt(np.sum(steps**2, axis=-1))
    is_curved = products > 1e-12 * np.sqrt(squares) * lengths
    inverse = np.where(is_curved, 1.0 / np.where(is_curved, products, 1.0), 0.0)
    self._pairs = [*self._pairs, (steps, changes, inverse)][-_MEMORY:]
    ratio = products / np.where(is_curved, squares, 1.0)
    self._scale = np.where(is_curved, ratio, self._scale)
    # While the density curves upwards, each step may double the last one.
    self._radius = np.where(lengths > 0.0, 2.0 * lengths, self._radius)

  def forget(self, is_forgotten):
    """Resets chains to steps of length 1 along the gradient."""
    self._pairs = [
      (steps, changes, np.where(is_forgotten, 0.0, inverse))
      for steps, changes, inverse in self._pairs
    ]
    self._scale = np.where(is_forgotten, 0.0, self._scale)
    self._radius = np.where(is_forgotten, 1.0, self._radius)

  def directions(self, gradients):
    """Returns the inverse curvature times gradients, [n, d].

    This is the two-loop recursion of Nocedal and Wright, algorithm 7.4.
    """
    found, shares = gradients.copy(), []
    for steps, changes, inverse in reversed(self._pairs):
      share = inverse * np.sum(steps * found, axis=-1)
      shares.append(share)
      found -= share[:, np.newaxis] * changes
    lengths = np.sqrt(np.sum(found**2, axis=-1))
    plain = self._radius / np.where(lengths > 0.0, lengths, 1.0)
    found *= np.where(self._scale > 0.0, self._scale, plain)[:, np.newaxis]
    for (steps, changes, inverse), share in zip(self._pairs, reversed(shares)):
      back = inverse * np.sum(changes * found, axis=-1)
      found += (share - back)[:, np.newaxis] * steps
    return found
