"""Learning rates of the covariance that need no tuning.

  rho_t = min(1/2, k / (t + 2 k (1 + p / d) / B))

with the gain k, by default 4, p params, d coordinates and B chains. rho_t falls
as 1 / t, which averages Newton steps. Within p / (d B) steps, the chains
compute as many entries of gradients as there are params.
"""

import tensorflow as tf

_GAIN = 4.0
_GRADIENTS_PER_PARAM = 2.0
_MAX_RATE = 0.5
_MAX_PERIOD = 16.0


def covariance_rate(num_updates, problem, gain=_GAIN):
  """Returns rho_t, [], after `num_updates` ([] float) moves."""
  delay = gain * _GRADIENTS_PER_PARAM * (1.0 + _params_per_coordinate(problem))
  delay /= tf.cast(problem.num_chains, problem.dtype)
  return tf.minimum(gain / (num_updates + delay), _MAX_RATE)


def smoothing_weight(num_updates, problem, is_searching):
  """Returns the weight of a new value in a running mean, [].

  The mean moves five times faster than the covariance, and at least as fast as
  a plain mean. While the first scale is searched, a new value has weight 1/2.
  """
  rate = 5.0 * covariance_rate(num_updates, problem)
  weight = tf.clip_by_value(rate, 1.0 / (num_updates + 1.0), 1.0)
  return tf.where(is_searching, tf.cast(0.5, problem.dtype), weight)


def update_period(problem):
  """Returns how many gradients are summed before the factor moves, [] float.

  A move of a dense factor costs d^3, and a step of B chains a few times B d^2.
  With few chains, moves are relatively expensive, but rates are small. The
  rates of p / (d B) steps sum to at most 1/2.
  """
  num_chains = tf.cast(problem.num_chains, problem.dtype)
  period = tf.floor(_params_per_coordinate(problem) / num_chains)
  return tf.clip_by_value(period, 1.0, _MAX_PERIOD)


def _params_per_coordinate(problem):
  num_params = tf.cast(problem.num_params, problem.dtype)
  return num_params / tf.cast(problem.event_size, problem.dtype)
