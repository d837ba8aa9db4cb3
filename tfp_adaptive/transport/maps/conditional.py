"""The conditional scale as functions of rows: both ways, and of scores."""

import collections

import tensorflow as tf

from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.transport.maps import pairs

__all__ = [
  'Conditional',
  'bounded',
  'effective_scores',
  'forward',
  'inverse',
  'log_det',
  'residuals',
  'whitened',
]

_MOST_LOG_SCALE = 40.0


class Conditional(
  collections.namedtuple(
    'Conditional', ['mean', 'log_scale', 'drivers', 'shift', 'slope']
  )
):
  """Means m [d], log scales l [d], drivers [k], c [d, k] and b [d, k]."""

  __slots__ = ()


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
  distances = pairs.pick(deviations, conditional.drivers, 0.0)
  log_scales = conditional.log_scale + _times(distances, conditional.slope)
  return (
    _times(distances, conditional.shift),
    bounded(log_scales),
  )


def _times(distances, coefficients):
  """Returns sum_k u_k c_jk, [..., d]."""
  return tf.linalg.matvec(coefficients, distances)


def bounded(log_scale):
  """Returns log scales whose exponential is finite, in single precision."""
  return tf.clip_by_value(log_scale, -_MOST_LOG_SCALE, _MOST_LOG_SCALE)
