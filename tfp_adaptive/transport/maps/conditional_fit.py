"""Conditional scales from pairs of a state and a score, by least squares.

Works on standardized pairs, x at mean 0 and x and g of one spread, so that no
number has the units of the state. `conditional_scale` has the formulas.
"""

import tensorflow as tf

from tfp_adaptive.core import history
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.transport.maps import conditional
from tfp_adaptive.transport.maps import pairs as pairs_lib

__all__ = ['fit', 'fit_with']

_NUM_ITERATIONS = 12  # Of the damped least squares.
_NUM_QUICK_ITERATIONS = 4  # Of those of the search.
_MOST_SEARCHED = 500  # Pairs that the search looks at.
_FEWEST_PAIRS = 100.0  # Below it no driver is looked for.
_FIRST_DAMPING = 1e-2
_RIDGE = 1e-6  # Of the normal equations, whose entries are of order one.
_MOST_CANDIDATES = 8
_NUM_BLOCKS = 8  # Of pairs, in turn to fit and to hold out.
# What a driver must earn on pairs held out: noise, and what is worth a slot.
_STANDARD_ERRORS = 4.0
_LEAST_GAIN = 0.05
_LOG_CHI_SQUARE = 1.27  # -E log of a chi-square of one degree.


def fit(states, scores, weights, num_drivers):
  """Returns the best `Conditional` of at most `num_drivers`, found.

  Drivers are added one by one, each the one on which the scale of the others
  depends most: whose slopes lower the loss of pairs held out the most, as long
  as they do so beyond noise. Of many coordinates those are tried that tell the
  most of others' squared scores. What only moves the place of others is none.

  Args:
    states: [n, d], neighbours in a chain next to each other.
    scores: Gradients of the log density there, [n, d].
    weights: [n], summing to one; zero for rows that hold no pair.
    num_drivers: k, int; fewer than d.
  """
  count = min(states.shape[0], _MOST_SEARCHED)
  num_pairs = history.effective_size(weights)
  pairs, equal = pairs_lib.thinned(states, scores, weights, count)
  # Pairs that stand in for others are no further evidence.
  noise = _STANDARD_ERRORS * tf.sqrt(tf.maximum(count / num_pairs, 1.0))
  is_held_out = tf.cast(
    tf.range(count) * _NUM_BLOCKS // count % 2, states.dtype
  )
  parts = [
    pairs_lib.normalized(1.0 - is_held_out),
    pairs_lib.normalized(is_held_out),
  ]
  candidates = _candidates(pairs, equal)

  def add(place, goes_on, drivers):
    found, gain = _best_driver(pairs, *parts, drivers, place, candidates, noise)
    goes_on &= gain > 0.0
    is_here = tf.range(num_drivers) == place
    return place + 1, goes_on, tf.where(goes_on & is_here, found, drivers)

  *_, drivers = tf.while_loop(
    lambda place, goes_on, _: goes_on & (place < num_drivers),
    add,
    (tf.constant(0), num_pairs >= _FEWEST_PAIRS, tf.fill([num_drivers], -1)),
    maximum_iterations=num_drivers,
  )
  return fit_with(states, scores, weights, drivers)


def fit_with(states, scores, weights, drivers):
  """Returns the best `Conditional` with these drivers, [k] int32, -1: none."""
  pairs = pairs_lib.standardize(states, scores, weights)
  found = _fit_standard(pairs, weights, drivers)
  of_drivers = pairs_lib.pick(pairs.scale, drivers, 1.0)
  return conditional.Conditional(
    mean=pairs.mean + pairs.scale * found.mean,
    log_scale=found.log_scale + tf.math.log(pairs.scale),
    drivers=drivers,
    shift=pairs.scale[:, tf.newaxis] * found.shift / of_drivers,
    slope=found.slope / of_drivers,
  )


def _fit_standard(pairs, weights, drivers, has_slope=None):
  """Returns the `Conditional` of standardized pairs.

  `has_slope`, [k] bool, asks for a quick fit, without the slopes of others.
  """
  distances = pairs_lib.pick(pairs.states, drivers, 0.0)
  problem = _LeastSquares(pairs, weights, distances, has_slope)
  if has_slope is None:
    rows = _best_rows(*map(problem.solve, problem.starts()))
  else:
    rows, _ = problem.solve(problem.starts()[1], _NUM_QUICK_ITERATIONS)
  num_drivers = drivers.shape[0]
  is_driver = tf.reduce_any(
    tf.range(ps.shape(pairs.states)[-1])[:, tf.newaxis] == drivers, axis=-1
  )
  keep = tf.cast(~is_driver, weights.dtype)
  found = conditional.Conditional(
    mean=keep * rows[:, 0],
    log_scale=keep * rows[:, 1 + num_drivers],
    drivers=drivers,
    shift=keep[:, tf.newaxis] * rows[:, 1 : 1 + num_drivers],
    slope=keep[:, tf.newaxis] * rows[:, 2 + num_drivers :],
  )
  # A driver's scale and center are those of its marginal.
  scores = conditional.effective_scores(found, pairs.states, pairs.scores)
  scale = pairs_lib.standardize(pairs.states, scores, weights).scale
  pull = tf.linalg.matvec(scores, weights, transpose_a=True)
  mean = tf.where(is_driver, scale**2 * pull, 0.0)
  moved = pairs_lib.pick(mean, drivers, 0.0)
  return found._replace(
    mean=found.mean + mean + tf.linalg.matvec(found.shift, moved),
    log_scale=tf.where(is_driver, tf.math.log(scale), found.log_scale)
    + tf.linalg.matvec(found.slope, moved),
  )


class _LeastSquares:
  """The problems of all coordinates, each with params (m, c, l, b) [2 + 2 k].

  Solved by damped Gauss-Newton steps on a loss that grows like a logarithm far
  out, the same number for all; each has its own damping.
  """

  def __init__(self, pairs, weights, distances, has_slope=None):
    self._pairs = pairs
    self._weights = weights
    self._inputs = tf.concat([tf.ones_like(distances[:, :1]), distances], -1)
    self._size = self._inputs.shape[-1]
    products = self._inputs[:, :, tf.newaxis] * self._inputs[:, tf.newaxis, :]
    self._products = tf.reshape(products, [-1, self._size**2])
    free = tf.ones([2 * self._size], distances.dtype)
    if has_slope is not None:
      slopes = tf.cast(has_slope, free.dtype)
      free = tf.concat([free[: self._size + 1], slopes], axis=0)
    self._is_free = free

  def starts(self):
    """Returns no dependence, and the regression of log g^2 on the drivers."""
    weighted = self._weights[:, tf.newaxis] * self._inputs
    gram = tf.matmul(self._inputs, weighted, transpose_a=True)
    gram += 1e-6 * tf.eye(self._size, dtype=gram.dtype)
    logs = _log_squares(self._pairs.scores)
    slopes = tf.linalg.cholesky_solve(
      tf.linalg.cholesky(gram), tf.matmul(weighted, logs, transpose_a=True)
    )
    slopes = tf.transpose(slopes)
    zeros = tf.zeros_like(slopes)
    shift = tf.one_hot(0, self._size, dtype=gram.dtype) * _LOG_CHI_SQUARE
    return (
      tf.concat([zeros, zeros], axis=-1),
      tf.concat([zeros, -0.5 * (slopes + shift)], axis=-1) * self._is_free,
    )

  def solve(self, start, num_iterations=_NUM_ITERATIONS):
    """Returns the params [d, 2 + 2 k] and their loss [d]."""

    def turn(count, rows, loss, damping):
      tried = rows - self._step(rows, damping)
      new_loss = self._loss(tried)
      is_better = new_loss < loss
      return (
        count + 1,
        tf.where(is_better[:, tf.newaxis], tried, rows),
        tf.where(is_better, new_loss, loss),
        damping * tf.where(is_better, tf.constant(0.2, loss.dtype), 5.0),
      )

    loss = self._loss(start)
    damping = _FIRST_DAMPING * tf.ones_like(loss)
    _, rows, loss, _ = tf.while_loop(
      lambda count, *_: count < num_iterations,
      turn,
      (tf.constant(0), start, loss, damping),
      maximum_iterations=num_iterations,
    )
    return rows, loss

  def _terms(self, rows):
    """Returns e, the slope of r in log e, and r, [n, d] each."""
    place, log_scale = (
      tf.matmul(self._inputs, part, transpose_b=True)
      for part in tf.split(rows, 2, axis=-1)
    )
    scale = tf.exp(conditional.bounded(log_scale))
    whitened = (self._pairs.states - place) / scale
    score = scale * self._pairs.scores
    return scale, score - whitened, whitened + score

  def _step(self, rows, damping):
    scale, stretch, residual = self._terms(rows)
    share = self._weights[:, tf.newaxis] / (1.0 + 0.25 * residual**2)

    def gram(values):
      flat = tf.matmul(share * values, self._products, transpose_a=True)
      return tf.reshape(flat, [-1, self._size, self._size])

    cross = -gram(stretch / scale)
    normal = tf.concat(
      [
        tf.concat([gram(scale**-2), cross], axis=-1),
        tf.concat([cross, gram(stretch**2)], axis=-1),
      ],
      axis=-2,
    )
    # What is not free has a row and a column of its own, and no slope.
    normal *= self._is_free * self._is_free[:, tf.newaxis]
    diagonal = tf.linalg.diag_part(normal) + 1.0 - self._is_free
    normal = tf.linalg.set_diag(
      normal, diagonal * (1.0 + damping[:, tf.newaxis]) + _RIDGE
    )
    slope = tf.concat(
      [
        tf.matmul(share * residual * of, self._inputs, transpose_a=True)
        for of in (-1.0 / scale, stretch)
      ],
      axis=-1,
    )
    return tf.linalg.cholesky_solve(
      tf.linalg.cholesky(normal), (self._is_free * slope)[..., tf.newaxis]
    )[..., 0]

  def _loss(self, rows):
    """Returns the mean of 2 log(1 + r^2 / 4), about r^2 / 2, by coordinate."""
    loss = tf.linalg.matvec(
      pairs_lib.robust(self._terms(rows)[2]), self._weights, transpose_a=True
    )
    return tf.where(tf.math.is_finite(loss), loss, float('inf'))


def _best_rows(one, other):
  """Returns the params of less loss, by coordinate."""
  (rows, loss), (other_rows, other_loss) = one, other
  return tf.where((other_loss < loss)[:, tf.newaxis], other_rows, rows)


def _log_squares(scores):
  return tf.math.log(scores**2 + 1e-12)


def _candidates(pairs, weights):
  """Returns the coordinates that tell the most of others' log g^2, [K]."""
  size = pairs.states.shape[-1]
  if size <= _MOST_CANDIDATES:
    return tf.range(size)

  def standard(rows):
    rows -= tf.linalg.matvec(rows, weights, transpose_a=True)
    square = tf.linalg.matvec(rows**2, weights, transpose_a=True)
    return rows * tf.math.rsqrt(square + 1e-12)

  logs = standard(_log_squares(pairs.scores))
  correlation = tf.matmul(
    weights[:, tf.newaxis] * standard(pairs.states), logs, transpose_a=True
  )
  correlation = tf.linalg.set_diag(correlation, tf.zeros_like(correlation[0]))
  score = tf.reduce_sum(correlation**2, axis=-1)
  return tf.math.top_k(score, _MOST_CANDIDATES).indices


def _best_driver(pairs, fitted, held_out, drivers, place, candidates, noise):
  """Returns the best candidate for a place, and its gain less its noise."""
  places = tf.range(drivers.shape[0])

  def losses(tried, has_slope):
    found = _fit_standard(pairs, fitted, tried, has_slope)
    return tf.reduce_sum(
      pairs_lib.robust(
        conditional.residuals(found, pairs.states, pairs.scores)
      ),
      axis=-1,
    )

  def gain(candidate):
    tried = tf.where(places == place, candidate, drivers)
    # A place that moves alone is what C is for.
    gains = losses(tried, places < place) - losses(tried, places <= place)
    mean = tf.reduce_sum(held_out * gains)
    variance = tf.reduce_sum((held_out * (gains - mean)) ** 2)
    is_new = tf.reduce_all(drivers != candidate)
    worth = mean - noise * tf.sqrt(variance) - _LEAST_GAIN
    is_usable = is_new & tf.math.is_finite(worth)
    return tf.where(is_usable, tf.stack([mean, worth]), -float('inf'))

  gains = tf.map_fn(
    gain, candidates, fn_output_signature=tf.TensorSpec([2], fitted.dtype)
  )
  best = tf.argmax(gains[:, 0])
  return tf.gather(candidates, best), tf.gather(gains[:, 1], best)
