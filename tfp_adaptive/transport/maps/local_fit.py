"""Local scales from pairs of a state and a score: drivers, exponents, fits.

Where D_j(u) scales x_j, density and D have one derivative, but for priors:

  d log pi / d u_i ~ prior'(u_i) + (d log D_j / d u_i) (x_j g_j + f_j x_j^2)

so that the scores of a log scale are explained by x_j g_j and x_j^2 of the one
coordinate it scales, whose score is not explained as well by the scale. That
finds who drives whom, and least squares find the exponents, with little noise
and from chains that have not seen the whole of the posterior. A shared log
scale has the sum over j on the right. Given D, row j of

  g_j = b_j + p_j D_j - (r_j + a_j D_j^2) x_j

is a regression, too. Exponents are rounded to halves, which those of scales,
variances and precisions are.
"""

import collections

import tensorflow as tf

from tfp_adaptive.core import history
from tfp_adaptive.transport.maps import pairs as pairs_lib

__all__ = [
  'NO_CEILING',
  'Scales',
  'find_drivers',
  'find_scales',
  'log_scales',
  'regress',
]

NO_CEILING = 20.0  # In logs: a level that nothing reaches.
_LEAST_EXPLAINED = 0.2  # Of the variance of a driver's score, and of noise:
_LEAST_OF_NOISE = 20.0  # that many over the number of pairs.
_LEVELS = tuple(0.5 * k for k in range(-8, 9))  # Around the largest scale.
_LEAST_GAIN = 0.1  # Of the squares left, for a ceiling.
_MIDDLE_EXPONENT = 1.25  # Of scales, from 1/4 to 9/4: those are halves to 2.
_NUM_ROUNDS = 4  # Of reweighting.
_RIDGE = 1e-6  # Of normal equations with a unit diagonal.
_FLOOR = 1e-6  # Of a precision, in units of the pairs.
_MOST_LOG = 15.0

Scales = collections.namedtuple(
  'Scales', ['drivers', 'shared', 'own', 'rise', 'cap', 'ceiling']
)
Scales.__doc__ = """log D of rows of deviations from a center.

Attributes:
  drivers: Of each coordinate, [d] int32; -1: none.
  shared: Drivers of all of these, [k] int32; -1: none in this place.
  own: Exponents of the coordinates' drivers, [d].
  rise: Exponents of the shared ones, [k].
  cap: The same of the level that D does not exceed, [k].
  ceiling: Its log where all drivers are at their centers, [d].
"""


def log_scales(scales, rows):
  """Returns log D, and its share that the own driver has, [n, d] each."""
  own = tf.gather(rows, tf.maximum(scales.drivers, 0), axis=-1)
  shared = pairs_lib.pick(rows, scales.shared, 0.0)
  rise = scales.own * own + tf.linalg.matvec(shared, scales.rise)[..., None]
  cap = scales.ceiling + tf.linalg.matvec(shared, scales.cap)[..., None]
  logs = rise - 0.5 * tf.math.softplus(2.0 * (rise - cap))
  share = tf.math.sigmoid(2.0 * (cap - rise))
  return tf.clip_by_value(logs, -_MOST_LOG, _MOST_LOG), share


def find_drivers(states, scores, weights, num_shared):
  """Returns drivers [d] and the shared ones [k], int32; -1: none.

  Args:
    states: [n, d].
    scores: Gradients of the log density there, [n, d].
    weights: [n], summing to one.
    num_shared: The most that are shared by all, k.
  """
  explained = _explained(states, scores, weights)
  size = states.shape[-1]
  noise = _LEAST_OF_NOISE / history.effective_size(weights)
  # Of a driver (row) its coordinate, and the other way round: both the best.
  of_driver = tf.argmax(explained, axis=1, output_type=tf.int32)
  drivers = tf.argmax(explained, axis=0, output_type=tf.int32)
  index = tf.range(size)
  found = tf.reduce_max(explained, axis=0)
  is_driven = tf.gather(of_driver, drivers) == index
  is_driven &= found > tf.maximum(tf.cast(_LEAST_EXPLAINED, noise.dtype), noise)
  back = tf.gather_nd(explained, tf.stack([index, drivers], axis=1))
  is_driven &= found > back
  # What drives another is not driven, the map is of one step: of two links that
  # meet the stronger one stays.
  found = tf.where(is_driven, found, 0.0)
  after = tf.where(drivers == index[:, tf.newaxis], found, 0.0)
  is_driven &= found > tf.gather(found, drivers)
  is_driven &= found > tf.reduce_max(after, axis=1)
  drivers = tf.where(is_driven, drivers, -1)
  is_driver = tf.reduce_any(drivers == index[:, tf.newaxis], axis=1)
  is_left = ~(is_driven | is_driver)
  total = tf.linalg.matvec(explained, tf.cast(is_driven, explained.dtype))
  total, shared = tf.math.top_k(
    tf.where(is_left, total, -1.0), min(num_shared, size - 1)
  )
  return drivers, tf.where(total > 0.0, shared, -1)


def _explained(states, scores, weights):
  """Returns R^2 of g_i on x_j g_j and x_j^2, [d, d]; zero for i = j.

  And zero where the coefficient of x_j g_j, the exponent, is none of a scale.
  """
  column = weights[:, tf.newaxis]

  def standard(rows):
    rows -= tf.reduce_sum(column * rows, axis=0)
    size = tf.sqrt(tf.reduce_sum(column * rows**2, axis=0) + 1e-30)
    return rows / size, size

  product, of_product = standard(states * scores)
  square, _ = standard(states**2)
  score, of_score = standard(scores)
  by_product = tf.matmul(column * score, product, transpose_a=True)
  by_square = tf.matmul(column * score, square, transpose_a=True)
  both = tf.reduce_sum(column * product * square, axis=0)
  rest = 1.0 - both**2 + 1e-3
  found = by_product**2 + by_square**2 - 2.0 * by_product * by_square * both
  exponent = (by_product - by_square * both) / rest
  exponent *= of_score[:, tf.newaxis] / of_product
  is_scale = (
    tf.abs(tf.abs(exponent) - _MIDDLE_EXPONENT) < _MIDDLE_EXPONENT - 0.25
  )
  found = tf.where(is_scale, found / rest, 0.0)
  return tf.linalg.set_diag(found, tf.zeros_like(found[0]))


def find_scales(states, scores, weights, drivers, shared, center):
  """Returns the `Scales` of drivers, in units of the states.

  Args:
    states: [n, d].
    scores: [n, d].
    weights: [n], summing to one.
    drivers: [d] int32; -1: none.
    shared: [k] int32; -1: none.
    center: Of the drivers, [d].
  """
  search = _Search(states, scores, weights, drivers, shared, center)
  coefficients, _ = search.of_drivers(tf.ones_like(states))
  product, square = coefficients[:, -2], coefficients[:, -1]
  own = _halves(_median(product, search.is_driven))
  share = tf.clip_by_value(
    product / tf.where(own == 0.0, tf.ones_like(own), own), 0.0, 1.0
  )
  spare = tf.math.divide_no_nan(square, product)
  pull = states * scores + spare * states**2
  rise, cap = search.of_shared(pull, tf.ones_like(states) * share)
  levels, losses = search.levels(own, rise, cap)
  best = tf.argmin(losses)
  is_capped = losses[best] < (1.0 - _LEAST_GAIN) * losses[-1]
  level = tf.where(is_capped, levels[best], levels[-1])
  found = search.scales(own, rise, cap, level)
  # Once more, with the shares of the ceiling.
  _, share = log_scales(found, states - center)
  refined = search.of_shared(pull, tf.where(is_capped, share, 1.0))
  found = search.scales(own, *refined, level)
  return found._replace(cap=tf.where(is_capped, found.cap, 0.0))


class _Search:
  """Regressions of the drivers' scores."""

  def __init__(self, states, scores, weights, drivers, shared, center):
    self._states, self._scores, self._weights = states, scores, weights
    self._drivers, self._shared, self._center = drivers, shared, center
    self.is_driven = drivers >= 0
    # Exponents are of a unit of the drivers: a wrong one would be no scale.
    self._keep = tf.cast(self.is_driven, states.dtype)
    self._u = pairs_lib.pick(states - center, drivers, 0.0)
    self._u_scores = pairs_lib.pick(scores, drivers, 0.0)

  def of_drivers(self, share):
    """Returns coefficients [d, F], the last of x g and x^2, and squares left.

    Args:
      share: [n, d], that the drivers have of their scales.
    """
    product = share * self._states * self._scores
    features = self._prior(self._u) + [product, share * self._states**2]
    return self._regress(features, self._u_scores, product)

  def of_shared(self, pull, share):
    """Returns exponents of the shared drivers, of rise and of cap, [k]."""
    parts = [self._keep * share * pull, self._keep * (1.0 - share) * pull]
    sums = [tf.reduce_sum(part, axis=-1, keepdims=True) for part in parts]
    u = pairs_lib.pick(self._states - self._center, self._shared, 0.0)
    scores = pairs_lib.pick(self._scores, self._shared, 0.0)
    sums = [total * tf.ones_like(u) for total in sums]
    found, _ = self._regress([*self._prior(u), *sums], scores, tf.add(*sums))
    is_there = self._shared >= 0
    return tuple(
      tf.where(is_there, _halves(found[:, place]), 0.0) for place in (-2, -1)
    )

  def _prior(self, u):
    """Returns features of the derivative of a log prior of u [n, m]."""
    spread = tf.reduce_sum(self._weights[:, tf.newaxis] * u**2, axis=0)
    bend = tf.tanh(u * tf.math.rsqrt(spread + 1e-30))
    return [tf.ones_like(u), u, bend, bend**2]

  def _regress(self, features, values, far):
    """Returns coefficients [m, F] and mean squares left, [m]."""
    size = tf.reduce_sum(self._weights[:, tf.newaxis] * tf.abs(far), axis=0)
    weights = self._weights[:, tf.newaxis] / (
      1.0 + tf.abs(far) / (size + 1e-30)
    )
    features = tf.stack(features, axis=-1)
    found = _least_squares(features, values, weights)
    left = values - tf.einsum('nmf,mf->nm', features, found)
    return found, tf.reduce_sum(weights * left**2, axis=0)

  def levels(self, own, rise, cap):
    """Returns levels of the ceiling, the last of which is none, and losses."""
    largest = self._largest(own, rise)
    levels = largest + tf.constant([*_LEVELS, NO_CEILING], largest.dtype)

    def loss(level):
      scales = self.scales(own, rise, cap, level)
      _, share = log_scales(scales, self._states - self._center)
      _, left = self.of_drivers(share)
      return tf.reduce_sum(self._keep * left)

    return levels, tf.map_fn(loss, levels)

  def _largest(self, own, rise):
    means = self._means(own, rise)
    return tf.reduce_max(tf.where(self.is_driven, means, -float('inf')))

  def _means(self, own, rise):
    """Returns log D without a ceiling at the center, [d]."""
    shared = pairs_lib.pick(self._center, self._shared, 0.0)
    at = pairs_lib.pick(self._center, self._drivers, 0.0)
    return own * at + tf.reduce_sum(rise * shared)

  def scales(self, own, rise, cap, level):
    """Returns `Scales`; level is the log of the ceiling at the center."""
    ceiling = tf.where(
      self.is_driven, level - self._means(own, rise), NO_CEILING
    )
    return Scales(
      self._drivers,
      self._shared,
      own * self._keep,
      rise,
      cap,
      tf.clip_by_value(ceiling, -NO_CEILING, NO_CEILING),
    )


def regress(states, scores, weights, scales, deviations):
  """Returns slack [2, d] and pull [2, d]: r, a and b, p.

  Args:
    states: [n, d], those that are driven around zero.
    scores: [n, d].
    weights: [n], summing to one.
    scales: `Scales`.
    deviations: Of the drivers, [n, d].
  """
  is_driven = tf.cast(scales.drivers >= 0, states.dtype)
  scale = tf.exp(log_scales(scales, deviations)[0])
  features = tf.stack(
    [tf.ones_like(scale), scale, -states, -(scale**2) * states], axis=-1
  )
  weights = weights[:, tf.newaxis] * tf.ones_like(scale)

  def turn(count, found, free, share):
    del found
    found = free * _least_squares(features * free, scores, weights * share)
    # Precisions that come out negative are left out.
    free *= tf.concat(
      [tf.ones_like(free[:, :2]), tf.cast(found[:, 2:] > 0.0, free.dtype)], 1
    )
    precision = tf.maximum(
      found[:, 2] + found[:, 3] * scale**2, tf.cast(_FLOOR, scale.dtype)
    )
    left = scores - tf.reduce_sum(features * found, axis=-1)
    return count + 1, found, free, 1.0 / (precision + 0.25 * left**2)

  # A loop, which compiles once.
  ones = tf.ones_like(features[0])
  found = tf.while_loop(
    lambda count, *_: count < _NUM_ROUNDS,
    turn,
    (tf.constant(0), ones, ones, tf.ones_like(scale)),
    maximum_iterations=_NUM_ROUNDS,
  )[1]
  slack = tf.maximum(found[:, 2:], tf.constant([_FLOOR, 0.0], found.dtype))
  ones = tf.stack([tf.ones_like(slack[:, 0]), tf.zeros_like(slack[:, 0])], 1)
  slack = tf.where(is_driven[:, tf.newaxis] > 0.0, slack, ones)
  pull = is_driven[:, tf.newaxis] * found[:, :2]
  return tf.transpose(slack), tf.transpose(pull)


def _least_squares(features, values, weights):
  """Returns coefficients [m, F] of features [n, m, F], values [n, m]."""
  weighted = weights[..., tf.newaxis] * features
  gram = tf.einsum('nmf,nmg->mfg', weighted, features)
  right = tf.einsum('nmf,nm->mf', weighted, values)
  size = tf.linalg.diag_part(gram)
  is_there = size > 0.0
  unit = tf.where(is_there, tf.math.rsqrt(tf.where(is_there, size, 1.0)), 0.0)
  gram *= unit[:, :, tf.newaxis] * unit[:, tf.newaxis]
  gram = tf.linalg.set_diag(gram, tf.ones_like(unit) * (1.0 + _RIDGE))
  solved = tf.linalg.cholesky_solve(
    tf.linalg.cholesky(gram), (unit * right)[..., tf.newaxis]
  )
  return unit * solved[..., 0]


def _halves(values):
  return tf.clip_by_value(tf.round(2.0 * values) / 2.0, -2.0, 2.0)


def _median(values, is_used):
  """Returns the lower median of some values [d]; zero of none."""
  count = tf.reduce_sum(tf.cast(is_used, tf.int32))
  ordered = tf.sort(tf.where(is_used, values, float('inf')))
  middle = ordered[tf.maximum(count - 1, 0) // 2]
  return tf.where(count > 0, middle, tf.zeros_like(middle))
