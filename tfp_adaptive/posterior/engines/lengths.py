"""Learns trajectory lengths by effective draws per gradient, in NumPy.

`linear.trajectory_length` explains the rule and its symbols, and implements it
for compiled kernels.
"""

import numpy as np

from tfp_adaptive.linear import kept_momentum
from tfp_adaptive.linear import trajectory_length as rule
from tfp_adaptive.posterior.engines import kept

FIRST, MOST = (1, 5), 32
_RANGES = rule.ranges(MOST)
_SHARES = rule.shares(*_RANGES, MOST)


class Lengths(kept.Kept):
  """Mean jumps of trajectories of each length, and the best range.

  Attributes:
    best: The best range, (fewest, most).
    num_steps: Adapting steps.
    num_taken: Leapfrog steps of all adapting steps.
  """

  fields = (
    'best',
    'num_steps',
    'num_taken',
    '_time',
    '_next_review',
    '_mean',
    '_variance',
    '_means',
    '_squares',
    '_weights',
    '_jumps',
  )

  def __init__(self, places):
    """Starts with the range `FIRST`, at chains in x or in z, [chains, d]."""
    self.best = np.array(FIRST)
    self.num_steps = self.num_taken = 0
    self.restart(places)

  def restart(self, places):
    """Starts again in other coordinates; keeps the range."""
    size = places.shape[1]
    self._time, self._next_review = 0.0, rule.FIRST_REVIEW
    self._mean, self._variance = np.mean(places, axis=0), np.zeros([size])
    self._means, self._squares = np.zeros([2, 2, size])
    self._weights, self._jumps = np.zeros([MOST]), np.zeros([MOST, 2, size])

  def add(self, num_steps, before, after, now, accept_prob, is_searching):
    """Learns from a step of all chains, with `num_steps` leapfrog steps.

    Trajectories lead from `before` to `after`, and `now` are the states after
    acceptance, [chains, d] each. During the search for a first scale, a step
    does not count in time, so it has no weight in the jumps.
    """
    self.num_steps += 1
    self.num_taken += num_steps
    self._time += not is_searching
    weight = rule.GAIN / (self._time + rule.GAIN)
    self._add_moments(now, weight)
    before, after, now = map(self._functions, (before, after, now))
    jumps = accept_prob[:, np.newaxis] * (after - before) ** 2
    jumps = np.where(np.isfinite(jumps), jumps, 0.0)
    self._means += weight * (np.mean(now, axis=1) - self._means)
    self._squares += weight * (np.mean(now**2, axis=1) - self._squares)
    # Later steps have more weight, so that the first steps are forgotten.
    age = self._time * len(accept_prob)
    self._weights[num_steps - 1] += age
    self._jumps[num_steps - 1] += 0.5 * age * np.mean(jumps, axis=1)

  def review(self, step, num_adaptation_steps):
    """Changes to the best range if a review is due after a step."""
    is_open = _is_open(step, num_adaptation_steps)
    if is_open and self._time >= self._next_review:
      self._next_review *= rule.GROWTH
      self._choose()

  @property
  def settled(self):
    """The range of steps that keep momenta, see `linear.kept_momentum`."""
    return 1, 2 * max(1, sum(self.best) // 4) - 1

  @property
  def steps_of_draw(self):
    """Number of steps from one draw to the next.

    A draw then costs as many gradients as without kept momenta. Draws of every
    step would be closer together, and worth less for choosing a structure.
    """
    return round(np.mean(self.best) / np.mean(self.settled))

  def range_at(self, step, num_adaptation_steps):
    """Returns the range (fewest, most) that a step draws from.

    Adapting steps keep no momenta. With the shorter trajectories of kept
    momenta, the step size would grow, and more proposals would diverge.
    """
    if step >= num_adaptation_steps:
      return self.settled
    is_open = _is_open(step, num_adaptation_steps)
    if not is_open or step == 0 or step % 2 == 1:
      return self.best
    longest = max(rule.EXPLORED * self.best[1], rule.LEAST_EXPLORED)
    return 1, min(longest, MOST)

  def share_kept(self, length, step, num_adaptation_steps):
    """Returns the share a of the momentum that a step of this length keeps."""
    if step < num_adaptation_steps:
      return 0.0
    return np.exp(-2.0 * kept_momentum.DAMPING * length / sum(self.best))

  def _add_moments(self, rows, weight):
    delta = np.mean(rows, axis=0) - self._mean
    spread = np.var(rows, axis=0)
    past = (1.0 - weight) * (self._variance + weight * delta**2)
    self._mean = self._mean + weight * delta
    self._variance = past + weight * spread

  def _functions(self, rows):
    """Returns f_i: standardized rows and bounded squares, [2, chains, d]."""
    is_alive = self._variance > 0.0
    scale = np.sqrt(np.where(is_alive, self._variance, 1.0))
    z = (rows - self._mean) / scale
    return np.stack([z, np.minimum(z**2, rule.LARGEST_SQUARE)])

  def _choose(self):
    """Changes to the best range, if one is known."""
    variance = self._squares - self._means**2
    is_alive = variance > 0.0  # A function that never moves is left out.
    weights = self._weights[:, np.newaxis, np.newaxis]
    with np.errstate(divide='ignore', invalid='ignore', over='ignore'):
      jumps = self._jumps / (weights * variance)
    jumps = np.where(is_alive & (weights > 0.0), jumps, 0.0)
    # Lengths with few pairs are shrunk to the mean over coordinates times a
    # level. The level of a coordinate is its jumps relative to this mean, over
    # all lengths.
    count = np.sum(is_alive, axis=-1, keepdims=True)
    mean = np.sum(jumps, axis=-1, keepdims=True) / np.maximum(count, 1)
    pairs = weights / self._time
    total = np.sum(pairs * mean, axis=0)
    level = np.sum(pairs * jumps, axis=0) / np.where(total > 0.0, total, 1.0)
    jumps = pairs * jumps + rule.PRIOR_PAIRS * level * mean
    jumps = jumps / (pairs + rule.PRIOR_PAIRS)
    scores = _scores(_rates(jumps), is_alive)
    # Every length of a range must have been tried.
    is_known = _SHARES @ (self._weights > 0.0) > 1.0 - 0.5 / MOST
    scores = np.where(is_known & np.isfinite(scores), scores, np.inf)
    best = np.flatnonzero(scores == np.min(scores))[-1]
    if np.isfinite(scores[best]) and count[0, 0]:
      self.best = np.array([ends[best] for ends in _RANGES], int)


def _is_open(step, num_adaptation_steps):
  """Whether lengths are still learned at a step."""
  return step < int(rule.LAST_REVIEW * num_adaptation_steps)


def _rates(correlations):
  """Returns the effective draws per gradient e_i of ranges, [num_ranges, 2, d].

  `correlations` are 1 - r_i for each length, [lengths, 2, d].
  """
  change = np.tensordot(_SHARES, correlations, axes=1)
  cost = (sum(_RANGES) / 2.0)[:, np.newaxis, np.newaxis]
  # The bounds keep noise from giving a correlation of 1 or -1.
  change = np.clip(change, 1e-4, 1.99)
  return change / (2.0 - change) / cost


def _scores(rates, is_alive):
  """Returns 1 / (mean of the rates of order -16), up to a constant factor."""
  inverse = np.where(is_alive, 1.0 / rates, 0.0)
  powers = np.sum(inverse**rule.COARSE_ORDER, axis=(1, 2))
  unit = np.maximum(powers ** (1.0 / rule.COARSE_ORDER), 1.0)
  powers = (inverse / unit[:, np.newaxis, np.newaxis]) ** rule.ORDER
  return unit * np.sum(powers, axis=(1, 2)) ** (1.0 / rule.ORDER)
