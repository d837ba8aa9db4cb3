"""Conditional scales from pairs of a state and a score, by least squares.

Works on standardized pairs, x at mean 0 and x and g of one spread, so that no
number has the units of the state. `conditional_scale` has the formulas.
"""

import collections

import tensorflow as tf

from tfp_adaptive.core.tfp_private import prefer_static as ps

__all__ = ['Conditional', 'effective_scores', 'fit', 'fit_with', 'residuals']

_NUM_ITERATIONS = 12  # Of the damped least squares.
_NUM_QUICK_ITERATIONS = 4  # Of those of the search.
_MOST_SEARCHED = 500  # Pairs that the search looks at.
_FIRST_DAMPING = 1e-2
_MOST_CANDIDATES = 8
_NUM_BLOCKS = 8  # Of pairs, in turn to fit and to hold out.
_STANDARD_ERRORS = 4.0  # That a driver must earn on pairs held out.
_LOG_CHI_SQUARE = 1.27  # -E log of a chi-square of one degree.
_MOST_LOG_SCALE = 40.0


class Conditional(
  collections.namedtuple(
    'Conditional', ['mean', 'log_scale', 'drivers', 'shift', 'slope']
  )
):
  """Means m [d], log scales l [d], drivers [k], c [d, k] and b [d, k]."""

  __slots__ = ()


def fit(states, scores, weights, num_drivers):
  """Returns the best `Conditional` of at most `num_drivers`, found.

  Drivers are added one by one, each the one that lowers the loss of pairs held
  out the most, as long as it does so beyond noise.

  Args:
    states: [n, d], neighbours in a chain next to each other.
    scores: Gradients of the log density there, [n, d].
    weights: [n], summing to one; zero for rows that hold no pair.
    num_drivers: k, int; fewer than d.
  """
  searched = _thinned(states, scores, weights)
  pairs = _standardize(*searched)
  index = tf.range(ps.shape(pairs.states)[0])
  is_held_out = tf.cast(
    index * _NUM_BLOCKS // ps.shape(pairs.states)[0] % 2, states.dtype
  )
  parts = [
    _normalized(searched[-1] * share)
    for share in (1.0 - is_held_out, is_held_out)
  ]
  candidates = _candidates(pairs, searched[-1])

  def add(place, goes_on, drivers):
    found, gain = _best_driver(pairs, *parts, drivers, place, candidates)
    goes_on &= gain > 0.0
    is_here = tf.range(num_drivers) == place
    return place + 1, goes_on, tf.where(goes_on & is_here, found, drivers)

  *_, drivers = tf.while_loop(
    lambda place, goes_on, _: goes_on & (place < num_drivers),
    add,
    (tf.constant(0), tf.constant(True), tf.fill([num_drivers], -1)),
    maximum_iterations=num_drivers,
  )
  return fit_with(states, scores, weights, drivers)


def fit_with(states, scores, weights, drivers):
  """Returns the best `Conditional` with these drivers, [k] int32, -1: none."""
  pairs = _standardize(states, scores, weights)
  found = _fit_standard(pairs, weights, drivers)
  of_drivers = _pick(pairs.scale, drivers, 1.0)
  return Conditional(
    mean=pairs.mean + pairs.scale * found.mean,
    log_scale=found.log_scale + tf.math.log(pairs.scale),
    drivers=drivers,
    shift=pairs.scale[:, tf.newaxis] * found.shift / of_drivers,
    slope=found.slope / of_drivers,
  )


def forward(conditional, whitened):
  """Returns x of z, rows [..., d]."""
  scale = tf.exp(conditional.log_scale)
  place, log_scale = _place_and_scale(conditional, scale * whitened)
  return conditional.mean + place + tf.exp(log_scale) * whitened


def inverse(conditional, states):
  """Returns z of x, rows [..., d]."""
  deviations = states - conditional.mean
  place, log_scale = _place_and_scale(conditional, deviations)
  return (deviations - place) * tf.exp(-log_scale)


def log_det(conditional, whitened):
  """Returns log |det| of the derivative of x in z, [...]."""
  scale = tf.exp(conditional.log_scale)
  _, log_scale = _place_and_scale(conditional, scale * whitened)
  return tf.reduce_sum(log_scale, axis=-1)


def whitened(conditional, states, scores):
  """Returns z and the gradients of its log density, [n, d] each."""
  deviations = states - conditional.mean
  place, log_scale = _place_and_scale(conditional, deviations)
  scale = tf.exp(log_scale)
  scores = effective_scores(conditional, states, scores)
  return (deviations - place) / scale, scale * scores


def residuals(conditional, states, scores):
  """Returns z plus the gradient of its log density, [n, d]."""
  return tf.add(*whitened(conditional, states, scores))


def effective_scores(conditional, states, scores):
  """Returns gradients of the log density of (u, z), z's divided by e, [n, d].

  With the Jacobian of the map. All but the drivers' are those of x.
  """
  deviations = states - conditional.mean
  place, _ = _place_and_scale(conditional, deviations)
  pulls = scores * (deviations - place) + 1.0
  of_drivers = tf.matmul(scores, conditional.shift) + tf.matmul(
    pulls, conditional.slope
  )
  hot = tf.one_hot(
    conditional.drivers, ps.shape(states)[-1], dtype=states.dtype
  )
  return scores + tf.matmul(of_drivers, hot)


def _place_and_scale(conditional, deviations):
  """Returns c.u and l + b.u, [..., d], of x - m, or the drivers' part of it."""
  distances = _pick(deviations, conditional.drivers, 0.0)
  log_scales = conditional.log_scale + _times(distances, conditional.slope)
  return (
    _times(distances, conditional.shift),
    tf.clip_by_value(log_scales, -_MOST_LOG_SCALE, _MOST_LOG_SCALE),
  )


def _times(distances, coefficients):
  """Returns sum_k u_k c_jk, [..., d]."""
  return tf.linalg.matvec(coefficients, distances)


def _thinned(states, scores, weights):
  """Returns at most `_MOST_SEARCHED` of the pairs, at equal steps."""
  step = -(-states.shape[0] // _MOST_SEARCHED)
  return states[::step], scores[::step], _normalized(weights[::step])


_Pairs = collections.namedtuple('_Pairs', ['states', 'scores', 'mean', 'scale'])


def _standardize(states, scores, weights):
  def moments(rows):
    mean = tf.linalg.matvec(rows, weights, transpose_a=True)
    return mean, tf.linalg.matvec((rows - mean) ** 2, weights, transpose_a=True)

  tiny = tf.constant(1e-30, states.dtype)
  mean, variance = moments(states)
  _, score_variance = moments(scores)
  scale = ((variance + tiny) / (score_variance + tiny)) ** 0.25
  return _Pairs((states - mean) / scale, scores * scale, mean, scale)


def _fit_standard(pairs, weights, drivers, is_quick=False):
  """Returns the `Conditional` of standardized pairs."""
  rows = _fit_rows(pairs, weights, _pick(pairs.states, drivers, 0.0), is_quick)
  num_drivers = drivers.shape[0]
  is_driver = tf.reduce_any(
    tf.range(ps.shape(pairs.states)[-1])[:, tf.newaxis] == drivers, axis=-1
  )
  keep = tf.cast(~is_driver, weights.dtype)
  found = Conditional(
    mean=keep * rows[:, 0],
    log_scale=keep * rows[:, 1 + num_drivers],
    drivers=drivers,
    shift=keep[:, tf.newaxis] * rows[:, 1 : 1 + num_drivers],
    slope=keep[:, tf.newaxis] * rows[:, 2 + num_drivers :],
  )
  # A driver's scale and center are those of its marginal.
  scores = effective_scores(found, pairs.states, pairs.scores)
  scale = _standardize(pairs.states, scores, weights).scale
  pull = tf.linalg.matvec(scores, weights, transpose_a=True)
  mean = tf.where(is_driver, scale**2 * pull, 0.0)
  moved = _pick(mean, drivers, 0.0)
  return found._replace(
    mean=found.mean + mean + tf.linalg.matvec(found.shift, moved),
    log_scale=tf.where(is_driver, tf.math.log(scale), found.log_scale)
    + tf.linalg.matvec(found.slope, moved),
  )


def _fit_rows(pairs, weights, distances, is_quick):
  """Returns (m, c, l, b) of every coordinate by itself, [d, 2 + 2 k]."""
  ones = tf.ones_like(distances[:, :1])
  inputs = tf.concat([ones, distances], axis=-1)
  num_inputs = inputs.shape[-1]
  products = inputs[:, :, tf.newaxis] * inputs[:, tf.newaxis, :]
  products = tf.reshape(products, [-1, num_inputs**2])
  starts = _starts(pairs, weights, inputs)
  if is_quick:
    starts = starts[-1:]
  states, scores = (
    tf.tile(rows, [1, len(starts)]) for rows in (pairs.states, pairs.scores)
  )

  def terms(rows):
    place, log_scale = (
      tf.matmul(inputs, part, transpose_b=True)
      for part in tf.split(rows, 2, axis=-1)
    )
    log_scale = tf.clip_by_value(log_scale, -_MOST_LOG_SCALE, _MOST_LOG_SCALE)
    scale = tf.exp(log_scale)
    whitened, score = (states - place) / scale, scale * scores
    return scale, score - whitened, whitened + score

  def turn(count, rows, loss, damping):
    scale, stretch, residual = terms(rows)
    share = weights[:, tf.newaxis] / (1.0 + 0.25 * residual**2)

    def gram(values):
      flat = tf.matmul(share * values, products, transpose_a=True)
      return tf.reshape(flat, [-1, num_inputs, num_inputs])

    cross = -gram(stretch / scale)
    normal = tf.concat(
      [
        tf.concat([gram(scale**-2), cross], axis=-1),
        tf.concat([cross, gram(stretch**2)], axis=-1),
      ],
      axis=-2,
    )
    slope = tf.concat(
      [
        -tf.matmul(share * residual / scale, inputs, transpose_a=True),
        tf.matmul(share * residual * stretch, inputs, transpose_a=True),
      ],
      axis=-1,
    )
    diagonal = tf.linalg.diag_part(normal)
    damped = tf.linalg.set_diag(
      normal, diagonal * (1.0 + damping[:, tf.newaxis]) + 1e-6
    )
    step = tf.linalg.cholesky_solve(
      tf.linalg.cholesky(damped), slope[..., tf.newaxis]
    )[..., 0]
    tried = rows - step
    new_loss = _loss(terms(tried)[2], weights)
    is_better = new_loss < loss
    return (
      count + 1,
      tf.where(is_better[:, tf.newaxis], tried, rows),
      tf.where(is_better, new_loss, loss),
      damping * tf.where(is_better, tf.constant(0.2, loss.dtype), 5.0),
    )

  start = tf.concat(starts, axis=0)
  loss = _loss(terms(start)[2], weights)
  damping = tf.fill(tf.shape(loss), tf.constant(_FIRST_DAMPING, loss.dtype))
  num_turns = _NUM_QUICK_ITERATIONS if is_quick else _NUM_ITERATIONS
  _, rows, loss, _ = tf.while_loop(
    lambda count, *_: count < num_turns,
    turn,
    (tf.constant(0), start, loss, damping),
    maximum_iterations=num_turns,
  )
  if is_quick:
    return rows
  first, second = tf.split(rows, 2)
  loss, other_loss = tf.split(loss, 2)
  return tf.where((other_loss < loss)[:, tf.newaxis], second, first)


def _starts(pairs, weights, inputs):
  """Returns no dependence, and the regression of log g^2 on the drivers."""
  num_inputs = inputs.shape[-1]
  weighted = weights[:, tf.newaxis] * inputs
  gram = tf.matmul(inputs, weighted, transpose_a=True)
  gram += 1e-6 * tf.eye(num_inputs, dtype=gram.dtype)
  logs = _log_squares(pairs.scores)
  slopes = tf.linalg.cholesky_solve(
    tf.linalg.cholesky(gram), tf.matmul(weighted, logs, transpose_a=True)
  )
  slopes = tf.transpose(slopes)
  zeros = tf.zeros_like(slopes)
  shift = tf.one_hot(0, num_inputs, dtype=gram.dtype) * _LOG_CHI_SQUARE
  return (
    tf.concat([zeros, zeros], axis=-1),
    tf.concat([zeros, -0.5 * (slopes + shift)], axis=-1),
  )


def _log_squares(scores):
  return tf.math.log(scores**2 + 1e-12)


def _loss(residual, weights):
  """Returns the mean of 2 log(1 + r^2 / 4), about r^2 / 2, by coordinate."""
  loss = tf.linalg.matvec(_robust(residual), weights, transpose_a=True)
  return tf.where(tf.math.is_finite(loss), loss, float('inf'))


def _robust(residual):
  return 2.0 * tf.math.log1p(0.25 * residual**2)


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


def _best_driver(pairs, fitted, held_out, drivers, place, candidates):
  """Returns the best candidate for a place, and its gain less its noise."""

  def losses(tried):
    found = _fit_standard(pairs, fitted, tried, is_quick=True)
    return tf.reduce_sum(
      _robust(residuals(found, pairs.states, pairs.scores)), axis=-1
    )

  before = losses(drivers)

  def gain(candidate):
    tried = tf.where(tf.range(drivers.shape[0]) == place, candidate, drivers)
    gains = before - losses(tried)
    mean = tf.reduce_sum(held_out * gains)
    variance = tf.reduce_sum((held_out * (gains - mean)) ** 2)
    is_new = tf.reduce_all(drivers != candidate)
    worth = mean - _STANDARD_ERRORS * tf.sqrt(variance)
    is_usable = is_new & tf.math.is_finite(worth)
    return tf.where(is_usable, tf.stack([mean, worth]), -float('inf'))

  gains = tf.map_fn(
    gain, candidates, fn_output_signature=tf.TensorSpec([2], before.dtype)
  )
  best = tf.argmax(gains[:, 0])
  return tf.gather(candidates, best), tf.gather(gains[:, 1], best)


def _pick(rows, drivers, default):
  """Returns the drivers' entries along the last axis, a default for none."""
  picked = tf.gather(rows, tf.maximum(drivers, 0), axis=-1)
  return tf.where(drivers >= 0, picked, tf.cast(default, rows.dtype))


def _normalized(weights):
  tiny = tf.constant(1e-30, weights.dtype)
  return weights / tf.maximum(tf.reduce_sum(weights), tiny)
