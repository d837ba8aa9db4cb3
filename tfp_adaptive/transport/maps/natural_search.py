"""Drivers and exponents of a conditional Gaussian, found on pairs."""

import tensorflow as tf

from tfp_adaptive.core import history
from tfp_adaptive.transport.maps import natural
from tfp_adaptive.transport.maps import natural_fit

__all__ = ['find']

_MOST_PAIRS = 500  # That are looked at.
_FEWEST_PAIRS = 100.0  # Below it no driver is looked for.
_NUM_TRIED = 3  # Drivers of a scale for a place; as many of a place.
_NUM_CHANGES = 2  # Of exponents, beside the drivers.
_NUM_BLOCKS = 8  # Of pairs, in turn to fit and to hold out.
# What a driver must earn on pairs held out: noise, and what is worth a slot.
_STANDARD_ERRORS = 4.0
_LEAST_GAIN = 0.05


def find(states, scores, weights, num_drivers, is_path):
  """Returns drivers [num_drivers] int32, -1: none, and exponents of each.

  They are added one by one, each the one that lowers the loss of pairs held
  out the most, as long as it does so beyond noise. A driver that would only
  move the others along a line is none: that is what C is for. Of all, those
  are tried that explain the most of the residuals of the ones before.
  """
  count = min(states.shape[0], _MOST_PAIRS)
  # Rows of no weight, of a history that is not full, are passed over.
  rows = history.spread(tf.concat([states, scores], axis=-1), weights, count)
  equal = tf.fill([count], tf.constant(1.0 / count, states.dtype))
  pairs = natural_fit.standardize(*tf.split(rows, 2, axis=-1), equal, is_path)
  num_pairs = history.effective_size(weights)
  # Pairs that stand in for others are no further evidence.
  noise = _STANDARD_ERRORS * tf.sqrt(tf.maximum(count / num_pairs, 1.0))
  search = _Search(pairs, noise, num_drivers, is_path)
  drivers = tf.fill([num_drivers], -1)
  exponents = tf.zeros([num_drivers], states.dtype)

  def change(count, goes_on, drivers, exponents):
    place, driver, exponent, worth = search.best(drivers, exponents)
    goes_on &= worth > 0.0
    is_here = goes_on & (tf.range(num_drivers) == place)
    return (
      count + 1,
      goes_on,
      tf.where(is_here, driver, drivers),
      tf.where(is_here, exponent, exponents),
    )

  most = num_drivers + _NUM_CHANGES
  *_, drivers, exponents = tf.while_loop(
    lambda count, goes_on, *_: goes_on & (count < most),
    change,
    (tf.constant(0), num_pairs >= _FEWEST_PAIRS, drivers, exponents),
    maximum_iterations=most,
  )
  return drivers, exponents


class _Search:
  """Losses of drivers on pairs of which every other block is held out."""

  def __init__(self, pairs, noise, num_drivers, is_path):
    self._pairs, self._noise, self._is_path = pairs, noise, is_path
    self._places = tf.range(num_drivers)
    count = pairs.states.shape[0]
    is_held_out = tf.cast(
      tf.range(count) * _NUM_BLOCKS // count % 2, pairs.states.dtype
    )
    self._held_out = _normalized(is_held_out)
    self._fitted = _normalized(1.0 - is_held_out)

  def best(self, drivers, exponents):
    """Returns a place, its new driver and exponent, and what that is worth."""
    now = self._fit(drivers, exponents, self._start(drivers, exponents))
    rows, scores = self._whitened(now)
    losses = self._losses(rows + scores)
    tried = self._tried(now, drivers, exponents)

    def gain(change):
      place, driver, exponent = change
      is_here = self._places == place
      held = tf.reduce_sum(tf.where(is_here, drivers, 0))
      then = self._fit(
        tf.where(is_here, driver, drivers),
        tf.where(is_here, exponent, exponents),
        now,
      )
      is_new = driver != held
      gains = tf.where(
        is_new, self._sheared_losses(rows, scores, driver), losses
      )
      gains -= self._losses(tf.add(*self._whitened(then)))
      mean = tf.reduce_sum(self._held_out * gains)
      variance = tf.reduce_sum((self._held_out * (gains - mean)) ** 2)
      worth = mean - self._noise * tf.sqrt(variance)
      worth -= tf.where(is_new, tf.constant(_LEAST_GAIN, worth.dtype), 0.0)
      is_usable = ~is_new | tf.reduce_all(drivers != driver)
      is_usable &= (place >= 0) & tf.math.is_finite(worth)
      return tf.where(is_usable, tf.stack([mean, worth]), -float('inf'))

    gains = tf.map_fn(
      gain, tried, fn_output_signature=tf.TensorSpec([2], rows.dtype)
    )
    best = tf.argmax(gains[:, 0])
    found = (tf.gather(part, best) for part in (*tried, gains[:, 1]))
    return tuple(found)

  def _tried(self, now, drivers, exponents):
    """Returns changes: a new driver in the first free place, other exponents.

    Places [n], -1 where there is none, drivers and exponents.
    """
    new, of_new = self._screened(now)
    is_free = drivers < 0
    free = tf.where(
      tf.reduce_any(is_free), tf.argmax(is_free, output_type=tf.int32), -1
    )
    held = tf.where(is_free, -1, self._places)
    return (
      tf.concat([tf.fill(new.shape, free), held, held], axis=0),
      tf.concat([new, drivers, drivers], axis=0),
      tf.concat([of_new, 2.0 * exponents, 0.5 * exponents], axis=0),
    )

  def _matrix(self, drivers, exponents):
    """Returns exponents of terms, [1 + k, k], in units of the pairs."""
    units = natural.pick(self._pairs.scale, drivers, 1.0)
    diagonal = tf.linalg.diag(exponents * units)
    return tf.concat([tf.zeros_like(diagonal[:1]), diagonal], axis=0)

  def _start(self, drivers, exponents):
    matrix = self._matrix(drivers, exponents)
    return natural_fit.start(self._pairs, drivers, matrix, self._is_path)

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
    """Returns y and its scores, of which drivers have one spread."""
    rows, scores = natural.whitened(
      fitted.natural, self._pairs.states, self._pairs.scores
    )
    own = natural_fit.standardize(rows, scores, self._fitted)
    return own.states, own.scores

  def _screened(self, now):
    """Returns drivers and exponents that may explain what `now` does not.

    Those on which the logarithms of squared residuals depend the most, with
    exponents of that sign, and those whose products with the terms there are
    explain the most of residuals, without exponent.
    """
    states, residual = self._pairs.states, now.residual
    weights = self._fitted[:, tf.newaxis]
    slope = self._sums(
      weights * states, _standard(tf.math.log(residual**2 + 1e-12), weights)
    ) / (1e-12 + tf.reduce_sum(weights * states**2, axis=0))[:, tf.newaxis]
    square = tf.reduce_sum(weights * states**2, axis=0)[:, tf.newaxis]
    explained = tf.reduce_sum(slope**2 * square, axis=-1)
    sign = tf.sign(tf.reduce_sum(slope * tf.abs(slope), axis=-1))
    scales = tf.math.top_k(explained, min(_NUM_TRIED, explained.shape[0]))
    share = weights / (1.0 + 0.25 * residual**2)
    root = tf.math.rsqrt(now.precision)
    terms = natural.terms(
      now.natural.exponents,
      natural.pick(states, now.natural.drivers, 0.0),
    )
    moved = tf.zeros_like(explained)
    for term in tf.unstack(terms, axis=-1):
      along = term[:, tf.newaxis] * states
      top = self._sums(along, share * root * residual) ** 2
      bottom = 1e-12 + self._sums(along**2, share * root**2)
      moved += tf.reduce_sum(
        tf.linalg.set_diag(top / bottom, tf.zeros_like(moved)), axis=-1
      )
    places = tf.math.top_k(moved, min(_NUM_TRIED, moved.shape[0])).indices
    of_scale = tf.gather(sign, scales.indices)
    return (
      tf.concat([scales.indices, scales.indices, places], axis=0),
      tf.concat([of_scale, 2.0 * of_scale, tf.zeros_like(of_scale)], axis=0),
    )

  def _sums(self, left, right):
    """Returns sums over pairs with zeros on the diagonal, [d, d]."""
    sums = tf.matmul(left, right, transpose_a=True)
    return tf.linalg.set_diag(sums, tf.zeros_like(sums[0]))

  def _losses(self, residuals):
    residuals -= tf.linalg.matvec(residuals, self._fitted, transpose_a=True)
    return tf.reduce_sum(natural_fit.robust(residuals), axis=-1)

  def _sheared_losses(self, rows, scores, driver):
    """Returns the losses where the others may follow a driver on a line."""
    fitted = self._fitted
    along = tf.gather(rows, driver, axis=-1)
    along -= tf.reduce_sum(fitted * along)
    residuals = rows + scores
    slope = tf.linalg.matvec(residuals, fitted * along, transpose_a=True)
    slope /= tf.reduce_sum(fitted * along**2)
    is_here = tf.range(rows.shape[-1]) == driver
    slope = tf.where(~is_here, slope, 0.0)
    pull = tf.gather(scores, driver, axis=-1)
    pull += tf.linalg.matvec(scores, slope)
    own = natural_fit.standardize(
      along[:, tf.newaxis], pull[:, tf.newaxis], fitted
    )
    residuals -= along[:, tf.newaxis] * slope
    return self._losses(
      tf.where(is_here, own.states + own.scores, residuals)
    )


def _standard(rows, weights):
  rows -= tf.reduce_sum(weights * rows, axis=0)
  return rows * tf.math.rsqrt(tf.reduce_sum(weights * rows**2, axis=0) + 1e-12)


def _normalized(weights):
  tiny = tf.constant(1e-30, weights.dtype)
  return weights / tf.maximum(tf.reduce_sum(weights), tiny)
