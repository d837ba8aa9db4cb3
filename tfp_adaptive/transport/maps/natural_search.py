"""Drivers and exponents of a conditional Gaussian, found on pairs."""

import collections

import tensorflow as tf

from tfp_adaptive.core import history
from tfp_adaptive.transport.maps import natural
from tfp_adaptive.transport.maps import natural_fit
from tfp_adaptive.transport.maps import pairs as pairs_lib

__all__ = ['find']

_MOST_PAIRS = 500  # That are looked at.
_FEWEST_PAIRS = 100.0  # Below it no driver is looked for.
_NUM_TRIED = 3  # Coordinates as drivers of scales, and of places.
_NUM_CHANGES = 2  # Of exponents, beside the drivers.
_NUM_BLOCKS = 8  # Of pairs, in turn to fit and to hold out.
# What a driver, or a term of one, must earn on pairs held out: noise, and what
# is worth a slot; where the rest is exact, noise is next to nothing.
_STANDARD_ERRORS = 4.0
_LEAST_GAIN = 0.05


def find(states, scores, weights, drivers, may_add, is_path, is_bent=False):
  """Returns drivers [k] int32, -1: none, and an exponent of each, [k].

  One change after the other: a driver more, or another exponent of one; each
  the one that lowers the loss of pairs held out the most, as long as it does so
  beyond noise. Where none does, two drivers at once, of a scale and of a place:
  of a hierarchy neither may help alone, whose scale moves the others about a
  mean. A driver that would only move the others along a line is none: that is
  what C is for.

  Args:
    states: [n, d], neighbours in a chain next to each other.
    scores: Gradients of the log density there, [n, d].
    weights: [n], summing to one; zero for rows that hold no pair.
    drivers: [k] int32.
    may_add: Whether to find drivers; `drivers` are the given ones if not.
    is_path: Whether neighbours are coupled.
    is_bent: Whether means follow products of drivers too.
  """
  count = min(states.shape[0], _MOST_PAIRS)
  pairs = pairs_lib.thinned(states, scores, weights, count, is_path)
  num_pairs = history.effective_size(weights)
  # Pairs that stand in for others are no further evidence.
  noise = _STANDARD_ERRORS * tf.sqrt(tf.maximum(count / num_pairs, 1.0))
  search = _Search(pairs, noise, may_add, is_path, is_bent)

  def turn(count, goes_on, is_two, drivers, exponents):
    change, worth = search.best(drivers, exponents, is_two)
    is_worth = worth > 0.0
    changed = change.of(drivers, exponents)
    return (
      count + 1,
      goes_on & (is_worth | may_add & ~is_two),
      ~is_worth,
      *(
        tf.where(is_worth, new, old)
        for new, old in zip(changed, (drivers, exponents))
      ),
    )

  most = drivers.shape[0] + _NUM_CHANGES
  *_, drivers, exponents = tf.while_loop(
    lambda count, goes_on, *_: goes_on & (count < most),
    turn,
    (
      tf.constant(0),
      num_pairs >= _FEWEST_PAIRS,
      tf.constant(False),
      -tf.ones_like(drivers) if may_add else drivers,
      tf.zeros(drivers.shape, states.dtype),
    ),
    maximum_iterations=most,
  )
  return drivers, exponents


class _Change(
  collections.namedtuple('_Change', ['place', 'driver', 'exponent', 'other'])
):
  """A driver and its exponent for a place, -1: no change.

  `other` is a driver for the place after it, whose term has no exponent; -1:
  none.
  """

  __slots__ = ()

  def of(self, drivers, exponents):
    """Returns drivers and exponents, [k] each, after the change."""
    places = tf.range(drivers.shape[0])
    is_here = (self.place >= 0) & (places == self.place)
    is_next = self.is_two & (places == self.place + 1)
    drivers = tf.where(is_next, self.other, drivers)
    exponents = tf.where(is_next, tf.zeros_like(exponents), exponents)
    return (
      tf.where(is_here, self.driver, drivers),
      tf.where(is_here, self.exponent, exponents),
    )

  def is_allowed(self, drivers):
    """Whether there is a place, and no driver twice."""
    has_room = ~self.is_two | (self.place + 1 < drivers.shape[0])
    is_free = tf.reduce_all(drivers != self.other) & (self.driver != self.other)
    is_free |= ~self.is_two
    is_free &= ~self.is_new(drivers) | tf.reduce_all(drivers != self.driver)
    return (self.place >= 0) & has_room & is_free

  def is_new(self, drivers):
    """Whether the driver is another than the one in its place."""
    is_here = tf.range(drivers.shape[0]) == self.place
    return tf.reduce_all((drivers != self.driver) | ~is_here)

  def has_new_term(self, drivers, exponents):
    """Whether there is a driver more, or one that had no exponent has one."""
    is_here = tf.range(drivers.shape[0]) == self.place
    had_none = tf.reduce_any(is_here & (exponents == 0.0))
    return self.is_new(drivers) | had_none

  @property
  def is_two(self):
    return self.other >= 0


class _Search:
  """Losses of drivers on pairs of which every other block is held out."""

  def __init__(self, pairs, noise, may_add, is_path, is_bent):
    self._pairs, self._noise = pairs, noise
    self._may_add = may_add
    self._is_path, self._is_bent = is_path, is_bent
    count = pairs.states.shape[0]
    is_held_out = tf.cast(
      tf.range(count) * _NUM_BLOCKS // count % 2, pairs.states.dtype
    )
    self._held_out = pairs_lib.normalized(is_held_out)
    self._fitted = pairs_lib.normalized(1.0 - is_held_out)

  def best(self, drivers, exponents, is_two):
    """Returns the best `_Change` and what it is worth.

    Args:
      drivers: [k] int32; -1: none.
      exponents: [k].
      is_two: Whether two drivers are tried at once, instead of one.
    """
    start = natural_fit.start(
      self._pairs,
      drivers,
      self._matrix(drivers, exponents),
      self._is_path,
      self._is_bent,
    )
    now = self._fit(drivers, exponents, start)
    rows, scores = self._whitened(now)
    tried = self._tried(now, drivers, exponents, is_two)

    def worth(change):
      is_new = change.is_new(drivers)
      then = self._fit(*change.of(drivers, exponents), now)
      sheared = self._sheared(rows, scores, change.driver, is_new)
      sheared = self._sheared(*sheared, change.other, change.is_two)
      gains = self._losses(tf.add(*sheared))
      gains -= self._losses(tf.add(*self._whitened(then)))
      mean = tf.reduce_sum(self._held_out * gains)
      variance = tf.reduce_sum((self._held_out * (gains - mean)) ** 2)
      added = [change.has_new_term(drivers, exponents), change.is_two]
      least = _LEAST_GAIN * tf.reduce_sum(tf.cast(added, mean.dtype))
      worth = mean - self._noise * tf.sqrt(variance) - least
      # As good without a term is better.
      rank = mean - _LEAST_GAIN * tf.cast(change.exponent != 0.0, mean.dtype)
      return tf.where(tf.math.is_finite(worth), tf.stack([rank, worth]), none)

    none = tf.constant([-float('inf')] * 2, rows.dtype)
    gains = tf.map_fn(
      lambda change: tf.cond(
        change.is_allowed(drivers), lambda: worth(change), lambda: none
      ),
      tried,
      fn_output_signature=tf.TensorSpec([2], rows.dtype),
    )
    best = tf.argmax(gains[:, 0])
    change = _Change(*(tf.gather(part, best) for part in tried))
    return change, gains[best, 1]

  def _tried(self, now, drivers, exponents, is_two):
    """Returns a `_Change` of Tensors [n]."""
    explained, sign = self._dependence(now)
    held = tf.where(drivers < 0, -1, tf.range(drivers.shape[0]))
    first = tf.gather(sign, tf.maximum(drivers, 0))
    held = tf.where(is_two, -1, held)
    changes = [
      _Change(
        held,
        drivers,
        tf.where(exponents == 0.0, unit * first, by * exponents),
        -tf.ones_like(held),
      )
      for unit, by in ((1.0, 0.5), (2.0, 2.0))
    ]
    if self._may_add:
      changes.append(self._added(now, drivers, explained, sign, is_two))
    return _Change(*(tf.concat(part, axis=0) for part in zip(*changes)))

  def _added(self, now, drivers, explained, sign, is_two):
    """Returns a `_Change` of Tensors [n] for one driver more, or two."""
    is_free = drivers < 0
    free = tf.argmax(is_free, output_type=tf.int32)
    free = tf.where(tf.reduce_any(is_free), free, -1)
    count = min(_NUM_TRIED, sign.shape[0])
    of_scale, of_place = (
      tf.math.top_k(rank, count).indices
      for rank in (explained, self._moved(now))
    )
    one = tf.concat([of_scale, of_scale, of_place], axis=0)
    by = tf.repeat(tf.constant([1.0, 2.0, 0.0], sign.dtype), count)
    # As many of two drivers as of one: the same program.
    two = tf.gather(of_scale, tf.range(3 * count) // 3)
    by = tf.where(is_two, tf.cast(2.0, sign.dtype), by)
    driver = tf.where(is_two, two, one)
    beside = tf.gather(of_place, tf.range(3 * count) % 3 % count)
    return _Change(
      tf.fill(driver.shape, free),
      driver,
      by * tf.gather(sign, driver),
      tf.where(is_two, beside, -1),
    )

  def _dependence(self, now):
    """Returns how others' precisions depend on a coordinate, and the sign.

    Explained variances of log |h - g| - log |P x|, whose h - g is the true P x,
    summed over the others, and +-1, [d] each.
    """
    weights = self._fitted[:, tf.newaxis]
    squares = (now.push - now.residual) ** 2, now.push**2
    true, fitted = (tf.math.log(square + 1e-12) for square in squares)
    correlation = _others(
      weights * _standard(self._pairs.states, weights),
      _standard(true - fitted, weights),
    )
    explained = tf.reduce_sum(correlation**2, axis=-1)
    direction = tf.reduce_sum(correlation * tf.abs(correlation), axis=-1)
    ones = tf.ones_like(direction)
    return explained, tf.where(direction < 0.0, -ones, ones)

  def _moved(self, now):
    """Returns what coordinates times the terms explain of others' residuals.

    And their squares, where means may bend.
    """
    states, weights = self._pairs.states, self._fitted[:, tf.newaxis]
    share = weights / (1.0 + 0.25 * now.residual**2)
    root = tf.math.rsqrt(now.precision)
    terms = natural.terms(
      now.natural.exponents, pairs_lib.pick(states, now.natural.drivers, 0.0)
    )
    rows = [term[:, tf.newaxis] * states for term in tf.unstack(terms, axis=-1)]
    if self._is_bent:
      rows.append(states**2 - tf.reduce_sum(weights * states**2, axis=0))
    own = 1e-12 + tf.reduce_sum(share * root**2 * states**2, axis=0)
    moved = tf.zeros_like(states[0])
    for along in rows:
      # Of what a coordinate does not explain of itself.
      square = tf.matmul(along**2, share * root**2, transpose_a=True)
      shared = tf.matmul(along, share * root**2 * states, transpose_a=True)
      left = tf.maximum(square - shared**2 / own, 1e-6 * square) + 1e-12
      of_residual = _others(along, share * root * now.residual)
      moved += tf.reduce_sum(of_residual**2 / left, axis=-1)
    return moved

  def _matrix(self, drivers, exponents):
    return natural_fit.in_units(self._pairs, drivers, exponents)

  def _fit(self, drivers, exponents, before):
    return natural_fit.regress(
      self._pairs,
      self._fitted,
      drivers,
      self._matrix(drivers, exponents),
      before,
      self._is_path,
    )

  def _whitened(self, fitted):
    """Returns y and its scores, of one spread."""
    rows, scores = natural.whitened(
      fitted.natural, self._pairs.states, self._pairs.scores
    )
    own = pairs_lib.standardize(rows, scores, self._fitted)
    return own.states, own.scores

  def _losses(self, residuals):
    residuals -= tf.linalg.matvec(residuals, self._fitted, transpose_a=True)
    return tf.reduce_sum(pairs_lib.robust(residuals), axis=-1)

  def _sheared(self, rows, scores, driver, is_used):
    """Returns y and its scores where the others follow a driver on a line."""
    fitted, here = self._fitted, tf.maximum(driver, 0)
    along = tf.gather(rows, here, axis=-1)
    along -= tf.reduce_sum(fitted * along)
    slope = tf.linalg.matvec(rows + scores, fitted * along, transpose_a=True)
    slope /= tf.reduce_sum(fitted * along**2)
    is_here = tf.range(rows.shape[-1]) == here
    slope = tf.where(is_used & ~is_here, slope, tf.zeros_like(slope))
    pull = tf.linalg.matvec(scores, slope)[:, tf.newaxis]
    own = pairs_lib.standardize(
      rows - along[:, tf.newaxis] * slope,
      scores + tf.where(is_here, pull, tf.zeros_like(pull)),
      fitted,
    )
    return own.states, own.scores


def _others(left, right):
  """Returns sums over pairs with zeros on the diagonal, [d, d]."""
  sums = tf.matmul(left, right, transpose_a=True)
  return tf.linalg.set_diag(sums, tf.zeros_like(sums[0]))


def _standard(rows, weights):
  rows -= tf.reduce_sum(weights * rows, axis=0)
  return rows * tf.math.rsqrt(tf.reduce_sum(weights * rows**2, axis=0) + 1e-12)
