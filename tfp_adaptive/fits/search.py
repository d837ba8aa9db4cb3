"""Searches for drivers and exponents of a conditional Gaussian on pairs."""

import itertools
from typing import NamedTuple

import numpy as np

from tfp_adaptive.fits import conditional
from tfp_adaptive.fits import natural as natural_lib
from tfp_adaptive.fits import pairs as pairs_lib

MOST_DRIVERS = 3
_MOST_PAIRS = 500  # Most pairs that a search uses.
_FEWEST_PAIRS = 100  # With fewer pairs there is no search.
_NUM_TRIED = 5  # Coordinates tried as drivers of scales, and 5 of means.
_NUM_CHANGES = 3  # Rounds of a search, beside one for each driver.
_NUM_FITS = 2  # Rounds of a fit after each change.
_NUM_BLOCKS = 8  # Blocks alternate between fitting and holding out.
# A change must gain this many standard errors on held-out pairs. A new driver
# or term must gain `_LEAST_GAIN` more, because exact fits have errors near 0.
_STANDARD_ERRORS = 3.0
_LEAST_GAIN = 0.025
_TINY = 1e-12


def find(states, scores, first, is_bent=False, is_path=False):
  """Returns drivers, [k] ints, -1 for none, and an exponent for each, [k].

  The search makes one change after another: a new driver, a new exponent, or
  another coordinate instead of a driver with exponent 0, which moves only
  means. Each time it makes the change that lowers the held-out loss the most,
  as long as the gain exceeds noise.

  If no change gains, it tries two drivers at once, one for scales and one for
  means. In a hierarchy, the driver of the scale and the driver of the mean may
  help only together. Linear dependence on a driver is no gain, because C
  represents it.

  States and scores, [n, d], are chain after chain, each in the order of time.
  If `first` has drivers, only their exponents are searched. Else up to k
  drivers are searched too, where k is the size of `first`.
  """
  drivers, exponents = np.array(first, int), np.zeros([len(first)])
  may_add, is_two = bool(np.all(drivers < 0)), False
  if len(states) < _FEWEST_PAIRS:
    return drivers, exponents
  count = min(len(states), _MOST_PAIRS)
  pairs = pairs_lib.thinned(states, scores, count, is_path)
  search = _Search(pairs, may_add, is_bent, is_path)
  fitted = search.start(drivers, exponents)
  for _ in range(len(drivers) + _NUM_CHANGES):
    for _ in range(_NUM_FITS):
      fitted = search.fit(drivers, exponents, fitted)
    change, worth = search.best(drivers, exponents, fitted, is_two)
    if worth > 0.0:
      drivers, exponents = change.of(drivers, exponents)
    elif is_two or not may_add or np.sum(drivers < 0) < 2:
      break
    is_two = not worth > 0.0
  return drivers, exponents


class _Change(NamedTuple):
  """A driver and its exponent for one of the k places.

  `other` is a second driver, with exponent 0, which takes the next place; -1
  means that there is none.
  """

  place: int
  driver: int
  exponent: float
  other: int = -1

  def of(self, drivers, exponents):
    """Returns drivers and exponents, [k] each, after the change."""
    drivers, exponents = drivers.copy(), exponents.copy()
    drivers[self.place], exponents[self.place] = self.driver, self.exponent
    if self.other >= 0:
      drivers[self.place + 1], exponents[self.place + 1] = self.other, 0.0
    return drivers, exponents

  def is_allowed(self, drivers):
    """Whether there is room for the change, and no driver occurs twice."""
    if self.is_new(drivers) and self.driver in drivers:
      return False
    if self.other < 0:
      return True
    has_room = self.place + 1 < len(drivers)
    return has_room and self.other not in (*drivers, self.driver)

  def is_new(self, drivers):
    """Whether the place has another driver before the change."""
    return drivers[self.place] != self.driver

  def num_terms_added(self, drivers, exponents):
    """Returns the number of new drivers and terms."""
    is_added = self.is_new(drivers) or exponents[self.place] == 0.0
    return int(is_added) + (self.other >= 0)


class _Search:
  """Losses of drivers on pairs; every other block of pairs is held out."""

  def __init__(self, pairs, may_add, is_bent, is_path):
    self._pairs, self._may_add = pairs, may_add
    self._is_bent, self._is_path = is_bent, is_path
    count = len(pairs.states)
    is_held_out = np.arange(count) * _NUM_BLOCKS // count % 2 == 1
    self._held_out = pairs_lib.normalized(is_held_out.astype(float))
    self._fitted = pairs_lib.normalized((~is_held_out).astype(float))

  def start(self, drivers, exponents):
    """Returns a first `conditional.Fitted`."""
    matrix = conditional.in_units(self._pairs, drivers, exponents)
    return conditional.start(
      self._pairs, drivers, matrix, self._is_bent, self._is_path
    )

  def fit(self, drivers, exponents, before):
    """Returns the `conditional.Fitted` of one round after `before`."""
    matrix = conditional.in_units(self._pairs, drivers, exponents)
    return conditional.regress(
      self._pairs, self._fitted, drivers, matrix, before
    )

  def best(self, drivers, exponents, now, is_two):
    """Returns the best `_Change` and its worth (`_worth`); -inf without any.

    `now` is the fit of the present drivers. If `is_two`, pairs of new drivers
    are tried instead of single changes.
    """
    whitened = self._whitened(now)
    found = None, -np.inf, -np.inf
    for change in self._tried(now, drivers, exponents, is_two):
      if not change.is_allowed(drivers):
        continue
      rank, worth = self._worth(change, drivers, exponents, now, whitened)
      if np.isfinite(worth) and rank > found[1]:
        found = change, rank, worth
    return found[0], found[2]

  def _worth(self, change, drivers, exponents, now, whitened):
    """Returns (rank, worth) of a change, from its gain on held-out pairs.

    The best change has the highest rank. It is made if its worth is positive,
    which means that the gain exceeds noise. Linear dependence on a driver that
    comes or goes is removed from both maps, because it is no gain.
    """
    then = self._whitened(self.fit(*change.of(drivers, exponents), now))
    if change.is_new(drivers):
      whitened = self._sheared(*whitened, change.driver)
      if drivers[change.place] >= 0:
        then = self._sheared(*then, drivers[change.place])
    if change.other >= 0:
      whitened = self._sheared(*whitened, change.other)
    gains = self._losses(sum(whitened)) - self._losses(sum(then))
    mean = self._held_out @ gains
    error = np.sqrt(np.sum((self._held_out * (gains - mean)) ** 2))
    least = _LEAST_GAIN * change.num_terms_added(drivers, exponents)
    # A change with an exponent must gain more than a change without.
    rank = mean - _LEAST_GAIN * (change.exponent != 0.0)
    return rank, mean - _STANDARD_ERRORS * error - least

  def _tried(self, now, drivers, exponents, is_two):
    """Returns each `_Change` to try."""
    explained, sign = self._dependence(now)
    used, free = np.flatnonzero(drivers >= 0), np.flatnonzero(drivers < 0)[:1]
    found = []
    # Exponents are halved or doubled, and an exponent of 0 becomes 1 or 2.
    for unit, by in ((1.0, 0.5), (2.0, 2.0)):
      for place in used:
        driver, exponent = drivers[place], exponents[place]
        exponent = by * exponent if exponent else unit * sign[driver]
        found.append(_Change(place, driver, exponent))
    if not self._may_add:
      return found
    of_scale, of_place = (
      np.argsort(-rank, kind='stable')[:_NUM_TRIED]
      for rank in (explained, self._moved(now))
    )
    if is_two:
      return [
        _Change(place, driver, 2.0 * sign[driver], other)
        for place, driver, other in itertools.product(free, of_scale, of_place)
      ]
    for unit, ranked in ((1.0, of_scale), (2.0, of_scale), (0.0, of_place)):
      found += [
        _Change(place, driver, unit * sign[driver])
        for place, driver in itertools.product(free, ranked)
      ]
    # A driver with exponent 0, which moves only means, may be replaced.
    of_means = used[exponents[used] == 0.0]
    return found + [
      _Change(place, driver, 0.0)
      for place, driver in itertools.product(of_means, of_place)
      if driver != drivers[place]
    ]

  def _dependence(self, now):
    """Returns how much precisions depend on each coordinate, and signs, [d].

    For the true P, P x = h - g. Errors of the fitted P therefore show in
    e = log |h - g| - log |P x|, which each pair and coordinate has. The result
    is the share of the variance of e that a coordinate explains, summed over
    the other coordinates. The sign, +-1, is that of the dependence.
    """
    weights = self._fitted[:, np.newaxis]
    true, fitted = (
      np.log(square + _TINY)
      for square in ((now.push - now.residual) ** 2, now.push**2)
    )
    correlation = _others(
      weights * _standard(self._pairs.states, weights),
      _standard(true - fitted, weights),
    )
    explained = np.sum(correlation**2, axis=-1)
    direction = np.sum(correlation * np.abs(correlation), axis=-1)
    return explained, np.where(direction < 0.0, -1.0, 1.0)

  def _moved(self, now):
    """Returns how much each coordinate explains of others' residuals, [d].

    The features that explain are the coordinate times each term and, if means
    may bend, its square.
    """
    states, weights = self._pairs.states, self._fitted[:, np.newaxis]
    share = weights / (1.0 + 0.25 * now.residual**2)
    root = 1.0 / np.sqrt(now.precision)
    distances = pairs_lib.pick(states, now.natural.drivers, 0.0)
    terms = natural_lib.terms(now.natural.exponents, distances)
    rows = [term[:, np.newaxis] * states for term in terms.T]
    if self._is_bent:
      rows.append(states**2 - np.sum(weights * states**2, axis=0))
    own = _TINY + np.sum(share * root**2 * states**2, axis=0)
    moved = np.zeros_like(states[0])
    for along in rows:
      # g_j was regressed on x_j, so only what x_j does not explain counts.
      square = (along**2).T @ (share * root**2)
      shared = along.T @ (share * root**2 * states)
      left = np.maximum(square - shared**2 / own, 1e-6 * square) + _TINY
      of_residual = _others(along, share * root * now.residual)
      moved += np.sum(of_residual**2 / left, axis=-1)
    return moved

  def _whitened(self, fitted):
    """Returns y and its scores, standardized, for `Fitted`."""
    rows = natural_lib.whitened(
      fitted.natural, self._pairs.states, self._pairs.scores
    )
    own = pairs_lib.standardize(*rows, self._fitted)
    return own.states, own.scores

  def _losses(self, residuals):
    residuals = residuals - self._fitted @ residuals
    return np.sum(pairs_lib.robust(residuals), axis=-1)

  def _sheared(self, rows, scores, driver):
    """Returns y and its scores without their linear dependence on a driver."""
    along = rows[:, driver] - self._fitted @ rows[:, driver]
    weights = self._fitted * along
    slope = weights @ (rows + scores) / (weights @ along)
    slope[driver] = 0.0
    scores = scores.copy()
    scores[:, driver] += scores @ slope
    own = pairs_lib.standardize(
      rows - along[:, np.newaxis] * slope, scores, self._fitted
    )
    return own.states, own.scores


def _others(left, right):
  """Returns left^T right, [d, d], with a zero diagonal."""
  sums = left.T @ right
  np.fill_diagonal(sums, 0.0)
  return sums


def _standard(rows, weights):
  rows = rows - np.sum(weights * rows, axis=0)
  return rows / np.sqrt(np.sum(weights * rows**2, axis=0) + _TINY)
