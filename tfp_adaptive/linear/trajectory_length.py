"""Learns lengths of trajectories by effective draws per gradient.

A step draws its number of leapfrog steps l from a, ..., b. Adapting steps try
longer trajectories too, and the mean jumps are kept for each l:

    1 - r_i(l) = E alpha (f_i(y) - f_i(x))^2 / (2 Var f_i)

Here x and y are the ends of a trajectory, alpha is its acceptance probability,
and f_i is a function of one coordinate. r_i(l) is the correlation of f_i before
and after a step. A chain of steps of random length has

    e_i(a, b) = (1 - r_i) / (1 + r_i) / ((a + b) / 2),  r_i = mean_{a..b} r_i(l)

effective draws per gradient, exactly so for a Gaussian. The chosen a and b
maximize the power mean of order -16 of all e_i. This mean is nearly the least
e_i, so that a slow function counts more than many fast functions. Learning
costs no gradient.

The functions f_i are every coordinate and its bounded square around the mean.
With the coordinates alone, the best trajectory would be half a period, which
never changes the energy. A range starts at a = 1, or at the first number above
b / 2. For b > 2 a range has several lengths, because one length would hit the
period of some direction. The range 2, ..., 2 is allowed. If two steps are half
a period, this range has a low score because of the squares.

For a proposal with a map f, x stands for z = f^-1(q), where the trajectories
run. There the distribution is nearly normal and has light tails.

Sources: Pasarica and Gelman (2010), https://www.jstor.org/stable/24308995, for
expected squared jumps; Hoffman, Radul and Sountsov (2021),
https://proceedings.mlr.press/v130/hoffman21a.html, for jumps across chains, of
squares and per gradient.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import control_flow
from tfp_adaptive.core import merging
from tfp_adaptive.linear import running_moments

GAIN = 2.0  # How fast the past is forgotten; 1 would weigh all steps equally.
LARGEST_SQUARE = 9.0  # Bound of the squares, in variances.
ORDER, COARSE_ORDER = 16, 4
PRIOR_PAIRS = 10.0  # Weight of the mean over coordinates in a mean jump.
FIRST_REVIEW, GROWTH = 20.0, 1.1  # Step of the first review, and growth.
# Every other step draws its length from 1 to max(2 b, 6), where b is the
# longest length of the best range.
EXPLORED, LEAST_EXPLORED = 2, 6
LAST_REVIEW = 0.8  # Share of the adaptation after which the range is final.


class Lengths(NamedTuple):
  """Statistics of trajectories of each length up to the bound n."""

  num_leapfrog_steps: tf.Tensor  # The best range (fewest, most), [2] int32.
  num_steps: tf.Tensor  # Adapting steps, including the scale search, [] int32.
  num_taken: tf.Tensor  # Leapfrog steps of the adapting steps, [] int32.
  time: tf.Tensor  # Steps learned from, [].
  next_review: tf.Tensor  # `time` at which the range is chosen next, [].
  moments: running_moments.Moments  # Moments of states.
  means: tf.Tensor  # Means of the functions of the states, [2, d].
  squares: tf.Tensor  # Means of the squared functions, [2, d].
  # Sum of the weights of the trajectories of each length, [n].
  weights: tf.Tensor
  # Weighted sums of half the mean squared jumps, [n, 2, d].
  jumps: tf.Tensor

  merge_rules = dict(time=merging.largest, next_review=merging.largest)


def start(num_leapfrog_steps, most, rows, is_finite):
  """Returns empty `Lengths` with a first range, [2] int32, and the bound n.

  `rows` are states in the coordinates of the trajectories, [num_chains, d].
  """
  rows, is_finite = _masked(rows, is_finite)
  zeros = tf.zeros_like(rows[:1])
  none = tf.concat([zeros] * 2, axis=0)
  zero = tf.zeros([], rows.dtype)
  return Lengths(
    num_leapfrog_steps=num_leapfrog_steps,
    num_steps=tf.zeros([], tf.int32),
    num_taken=tf.zeros([], tf.int32),
    time=zero,
    next_review=tf.constant(FIRST_REVIEW, rows.dtype),
    moments=running_moments.start(rows, is_finite),
    means=none,
    squares=none,
    weights=tf.zeros([most], rows.dtype),
    jumps=tf.tile(none[tf.newaxis], [most, 1, 1]),
  )


def restart(lengths, rows, is_finite):
  """Returns `Lengths` for new coordinates, which keep the range and the counts.

  `rows` are the states of the chains in the new coordinates, [num_chains, d].
  """
  most = lengths.weights.shape[0]
  return start(lengths.num_leapfrog_steps, most, rows, is_finite)._replace(
    num_steps=lengths.num_steps, num_taken=lengths.num_taken
  )


def add(lengths, num_steps, places, accept_prob, is_finite, is_searching):
  """Returns `Lengths` after a step of `num_steps` leapfrog steps.

  `places` are the starts and ends of the trajectories, and the present states,
  all in the coordinates of the trajectories, [num_chains, d] each.
  `accept_prob` is min(1, exp(r)), [num_chains], and 0 where the end is not
  finite. Jumps are not learned during the search for a first scale.
  """
  rows, is_finite = _masked(places[-1], is_finite)
  time = lengths.time + tf.cast(~is_searching, rows.dtype)
  weight = GAIN / (time + GAIN)
  moments = running_moments.add(lengths.moments, rows, is_finite, weight)
  before, after, now = (
    _functions(moments, states) for states in (*places[:2], rows)
  )
  jumps = accept_prob[:, tf.newaxis] * (after - before) ** 2
  jumps = tf.where(tf.math.is_finite(jumps), jumps, 0.0)
  # A proposal that failed is a jump of 0. A chain whose present state is not
  # finite, or which can never move, is left out of the moments and the jumps.
  now = tf.where(is_finite, now, 0.0)
  share = tf.reduce_mean(tf.cast(is_finite, rows.dtype))
  mean, square = (
    tf.math.divide_no_nan(tf.reduce_mean(values, axis=1), share)
    for values in (now, now**2)
  )
  jump = adaptation_base.mean_of_alive(is_finite, jumps, axis=1)
  weight *= tf.cast(share > 0.0, rows.dtype)
  # Later steps count more, so that the first steps are forgotten.
  age = time * tf.one_hot(
    num_steps - 1, lengths.weights.shape[0], dtype=rows.dtype
  )
  age *= tf.reduce_sum(tf.cast(is_finite, rows.dtype))
  return lengths._replace(
    num_steps=lengths.num_steps + 1,
    num_taken=lengths.num_taken + num_steps,
    time=time,
    moments=moments,
    means=lengths.means + weight * (mean - lengths.means),
    squares=lengths.squares + weight * (square - lengths.squares),
    weights=lengths.weights + age,
    jumps=lengths.jumps + age[:, tf.newaxis, tf.newaxis] * 0.5 * jump,
  )


def choose(lengths, event_sum, step, num_adaptation_steps, settled):
  """Returns `Lengths` with the best range, and the range for the next step.

  `settled` is a function from the best range to the final range, which may
  append numbers. Until the range is final, the appended numbers are 0.
  `event_sum` sums over the last axis, across shards too.
  """
  is_open = num_steps_settled(step, num_adaptation_steps) < 0
  is_due = is_open & (lengths.time >= lengths.next_review)

  def review(best, next_review):
    found, is_good = _best(lengths, event_sum)
    return tf.where(is_good, found, best), GROWTH * next_review

  best, next_review = control_flow.apply_if(
    is_due, review, lengths.num_leapfrog_steps, lengths.next_review
  )
  longest = tf.minimum(
    tf.maximum(EXPLORED * best[1], LEAST_EXPLORED), lengths.weights.shape[0]
  )
  explores = is_open & tf.equal(step % 2, 0)
  drawn = adaptation_base.choose(explores, tf.stack([1, longest]), best)
  settled = settled(best)
  nothing = tf.zeros_like(settled[2:])
  drawn = tf.where(is_open, tf.concat([drawn, nothing], axis=0), settled)
  return lengths._replace(
    num_leapfrog_steps=best, next_review=next_review
  ), drawn


def num_steps_settled(step, num_adaptation_steps):
  """Returns the number of steps since the range became final; else negative."""
  return step - int(LAST_REVIEW * num_adaptation_steps)


def rates(correlations, fewest, most):
  """Returns effective draws per gradient, e_i, of ranges, [num_ranges, ...].

  `correlations` are 1 - r_i(l) for l = 1, ..., n, [n, ...]. `fewest` and `most`
  are a and b, ints [num_ranges].
  """
  weights = shares(fewest, most, correlations.shape[0])
  weights = tf.constant(weights, correlations.dtype)
  change = tf.tensordot(weights, correlations, axes=1)
  shape = [-1] + [1] * (correlations.shape.rank - 1)
  cost = np.reshape((most + fewest) / 2.0, shape)
  # Noise must not give a correlation of 1 or -1.
  change = tf.clip_by_value(change, 1e-4, 1.99)
  return change / (2.0 - change) / cost


def _best(lengths, event_sum):
  """Returns the best range, [2] int32, and whether any range has a score."""
  num_lengths = lengths.weights.shape[0]
  fewest, most = ranges(num_lengths)
  variance = lengths.squares - lengths.means**2
  # Coordinates that never move are left out.
  is_alive = variance > 0.0
  weights = lengths.weights[:, tf.newaxis, tf.newaxis]
  jumps = tf.where(
    is_alive & (weights > 0.0), lengths.jumps / (weights * variance), 0.0
  )
  # Jumps from few pairs are shrunk to the mean jump over coordinates for this
  # length, times the level of the coordinate over all lengths.
  coordinates = event_sum(tf.cast(is_alive, jumps.dtype))[..., tf.newaxis]
  mean = event_sum(jumps)[..., tf.newaxis] / tf.maximum(coordinates, 1.0)
  pairs = (lengths.weights / lengths.time)[:, tf.newaxis, tf.newaxis]
  total = tf.reduce_sum(pairs * mean, axis=0)
  level = tf.reduce_sum(pairs * jumps, axis=0) / tf.where(
    total > 0.0, total, 1.0
  )
  jumps = (pairs * jumps + PRIOR_PAIRS * level * mean) / (pairs + PRIOR_PAIRS)
  scores = _scores(rates(jumps, fewest, most), is_alive, event_sum)
  # Every length of a range must have been tried.
  is_tried = tf.cast(lengths.weights > 0.0, jumps.dtype)
  means = tf.constant(shares(fewest, most, num_lengths), jumps.dtype)
  is_known = tf.linalg.matvec(means, is_tried) > 1.0 - 0.5 / num_lengths
  scores = tf.where(
    is_known & tf.math.is_finite(scores), scores, scores.dtype.max
  )
  # `argmin` would take XLA as long to compile as all lines above.
  least = tf.reduce_min(scores)
  both = tf.stack([fewest, most], axis=-1)
  best = tf.reduce_max(
    tf.where(scores[:, tf.newaxis] <= least, both, 0), axis=0
  )
  is_good = (least < scores.dtype.max) & (coordinates[0, 0] > 0.0)
  return best, is_good


def _scores(rates_of_ranges, is_alive, event_sum):
  """Returns the inverse power mean of e_i up to a constant, [num_ranges].

  Its order is -16. The e_i are first divided by their power mean of order -4,
  so that no power overflows.
  """
  inverse = tf.where(is_alive, 1.0 / rates_of_ranges, 0.0)
  unit = event_sum(tf.reduce_sum(inverse**COARSE_ORDER, axis=1))
  unit = tf.maximum(unit, 1.0) ** (1.0 / COARSE_ORDER)
  powers = (inverse / unit[:, tf.newaxis, tf.newaxis]) ** ORDER
  return unit * event_sum(tf.reduce_sum(powers, axis=1)) ** (1.0 / ORDER)


def ranges(most):
  """Returns a and b of all ranges to choose from, two int32 arrays."""
  ends = np.arange(1, most + 1, dtype=np.int32)
  return (
    np.concatenate([np.ones_like(ends), ends[1:] // 2 + 1]),
    np.concatenate([ends, ends[1:]]),
  )


def shares(fewest, most, num_lengths):
  """Returns the weights of the mean over each range, [num_ranges, n]."""
  ends = np.arange(1, num_lengths + 1)
  fewest, most = fewest[:, np.newaxis], most[:, np.newaxis]
  is_inside = (fewest <= ends) & (ends <= most)
  return is_inside / (most - fewest + 1.0)


def _masked(rows, is_finite):
  """Returns rows, zero where not finite, and whether each is finite, [n, 1]."""
  is_finite &= tf.reduce_all(tf.math.is_finite(rows), axis=-1, keepdims=True)
  return tf.where(is_finite, rows, 0.0), is_finite


def _functions(moments, rows):
  """Returns the functions f_i of all chains, [2, num_chains, d]."""
  is_alive = moments.spread > 0.0
  scale = tf.math.rsqrt(tf.where(is_alive, moments.spread, 1.0))
  z = (rows - moments.mean) * scale
  return tf.stack([z, tf.minimum(z**2, LARGEST_SQUARE)])
