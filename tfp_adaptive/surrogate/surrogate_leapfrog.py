"""Leapfrog steps along a surrogate, and the fit of their step size.

A trajectory takes L times the step

  v <- v + (h / 2) C^T grad f(x)
  x <- x + h C v
  v <- v + (h / 2) C^T grad f(x).

The error of these steps in the energy -f + |v|^2 / 2 needs no target. h is
therefore fitted to the surrogate and to past states before a step is taken.
"""

import tensorflow as tf

from tfp_adaptive.core import random

_MOST_STEPS = 64  # Most steps of a trajectory.
_LARGEST = 1.2  # Largest step size that is tried, in units of C.
_SHRINKAGE = 0.7  # Factor between two trials.
_MOST_TRIALS = 14  # The last trial has about a hundredth of `_LARGEST`.


class FollowsSurrogate:
  """Mixin of proposals with a factor C that follow a surrogate."""

  @property
  def trajectory_length(self):
    """Longest trajectory, in units of C; `None` if L is given instead."""
    return self._parameters['trajectory_length']

  @property
  def walk_share(self):
    return self._parameters['walk_share']

  @property
  def walk_preconditioner(self):
    return self._parameters['walk_preconditioner'] or self.preconditioner


def follow(score, factor, x, velocity, step_size, num_steps):
  """Returns the end of a trajectory of `num_steps` and the velocity there.

  `score` is grad f. Rows are [chains..., d], and h is [] or [chains..., 1].
  """

  def kick(x):
    return step_size * factor.apply_adjoint(score(x))

  def step(done, x, velocity):
    x = x + step_size * factor.apply(velocity)
    is_last = tf.equal(done + 1, num_steps)
    share = tf.where(is_last, tf.constant(0.5, x.dtype), 1.0)
    return done + 1, x, velocity + share * kick(x)

  _, x, velocity = tf.while_loop(
    lambda done, *_: done < num_steps,
    step,
    (tf.constant(0), x, velocity + 0.5 * kick(x)),
  )
  return x, velocity


def steps_of_length(length, step_size):
  """Returns L = length / mean h, rounded, from 1 to 64, [] int32."""
  ratio = length / tf.reduce_mean(step_size)
  return tf.cast(tf.round(tf.clip_by_value(ratio, 1.0, _MOST_STEPS)), tf.int32)


def fit_step_size(
  surrogate, params, factor, points, noise, length, accept_prob
):
  """Returns the largest trial h with which trajectories would be accepted.

  h is the first trial for which the mean of min(1, exp(r)) reaches
  `accept_prob`, or the last trial. r is the log ratio if the surrogate were the
  target. Trajectories start at `points` with velocities `noise`, [n, d].
  """
  start = surrogate.log_prob(params, points)

  def accepted(step_size):
    end, velocity = follow(
      lambda x: surrogate.score(params, x),
      factor,
      points,
      noise,
      step_size,
      steps_of_length(length, step_size),
    )
    ratio = surrogate.log_prob(params, end) - start
    ratio += 0.5 * tf.reduce_sum(noise**2 - velocity**2, axis=-1)
    ratio = tf.where(tf.math.is_nan(ratio), ratio.dtype.min, ratio)
    return tf.reduce_mean(tf.exp(tf.minimum(ratio, 0.0)))

  def shorten(trial, step_size, _):
    shorter = _SHRINKAGE * step_size
    return trial + 1, shorter, accepted(shorter)

  largest = tf.constant(_LARGEST / _SHRINKAGE, points.dtype)
  _, step_size, _ = tf.while_loop(
    lambda trial, _, rate: (trial < _MOST_TRIALS) & (rate < accept_prob),
    shorten,
    (tf.constant(0), largest, tf.zeros([], points.dtype)),
  )
  return step_size


def draw_num_steps(bounds, seed):
  """Draws L uniformly from lowest, ..., highest, [] int32."""
  lowest, highest = bounds
  if lowest == highest:
    return tf.constant(lowest)
  # Uniforms are in (0, 1].
  unit = random.uniform([], tf.float64, seed)
  return (
    lowest - 1 + tf.cast(tf.math.ceil(unit * (highest - lowest + 1)), tf.int32)
  )


def check_jitter(given):
  """Returns (low, high); refuses a value that is no range of factors."""
  if not (
    isinstance(given, (tuple, list))
    and len(given) == 2
    and 0.0 < given[0] <= given[1]
  ):
    raise ValueError(
      '`step_size_jitter` must be a pair 0 < low <= high, but got '
      f'{given!r}. Write for example `step_size_jitter=(0.5, 1.0)`.'
    )
  return tuple(float(g) for g in given)
