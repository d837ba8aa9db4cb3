"""The map of `conditional_gaussian` without C, as functions of rows.

The params are a `fits.natural.Natural` of Tensors, with int32 `drivers`.
"""

import tensorflow as tf

from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.fits.natural import Natural
from tfp_adaptive.linalg import markov_factor

_MOST_LOG_TERM = 30.0


def of_scale(size, drivers, scale, is_path, is_bent=False):
  """Returns the `Natural` of `scale`, [], times the identity."""
  count = len(drivers)
  num_inputs = count + is_bent * count * (count + 1) // 2
  zeros = tf.zeros([1 + count, size], scale.dtype)
  return Natural(
    mean=zeros[0],
    log_scale=zeros[0] + tf.math.log(scale),
    drivers=tf.constant(drivers, tf.int32),
    exponents=tf.zeros([1 + count, count], scale.dtype),
    offset=zeros,
    slope=tf.zeros([1 + count, size, num_inputs], scale.dtype),
    slack=zeros + tf.one_hot(0, 1 + count, dtype=zeros.dtype)[:, tf.newaxis],
    edge=zeros if is_path else zeros[:, :0],
  )


def forward(natural, rows):
  """Returns x of y, rows [n, d], and log |det dx / dy|, [n]."""
  given = _factor(natural, _drivers(rows, natural))
  return _from_normal(natural, given, rows)


def inverse(natural, states):
  """Returns y of x, rows [n, d]."""
  deviations = _deviations(natural, states)
  given = _factor(natural, _drivers(deviations, natural))
  return _to_normal(natural, given, deviations)


def _deviations(natural, states):
  return (states - natural.mean) * tf.exp(-natural.log_scale)


def _from_normal(natural, given, rows):
  """Returns x of y and log |det dx / dy|, given L(u) and L(u)^-1 h(u)."""
  lower, pull = given
  if not natural.edge.shape[-1]:
    deviations, diagonal = (rows + pull) / lower, lower
  else:
    deviations = markov_factor.solve_adjoint(lower, rows + pull)
    diagonal = lower[0]
  log_det = tf.reduce_sum(natural.log_scale - tf.math.log(diagonal), axis=-1)
  return natural.mean + tf.exp(natural.log_scale) * deviations, log_det


def _to_normal(natural, given, deviations):
  """Returns y of w, given L(u) and L(u)^-1 h(u)."""
  lower, pull = given
  if not natural.edge.shape[-1]:
    return lower * deviations - pull
  diagonal, below = lower
  after = tf.concat([deviations[:, 1:], tf.zeros_like(below[:, :1])], axis=-1)
  return diagonal * deviations + below * after - pull


def _drivers(rows, natural):
  """Returns u, the drivers' entries, [n, k]; zero without a driver."""
  picked = tf.gather(rows, tf.maximum(natural.drivers, 0), axis=-1)
  return tf.where(natural.drivers >= 0, picked, tf.zeros([], rows.dtype))


def _terms(exponents, distances):
  """Returns exp(b.u), [n, T]."""
  logs = tf.matmul(distances, exponents, transpose_b=True)
  return tf.exp(tf.clip_by_value(logs, -_MOST_LOG_TERM, _MOST_LOG_TERM))


def _inputs(distances, slope):
  """Returns 1, u, and products of u if the slope has them, [n, M]."""
  parts = [tf.ones_like(distances[..., :1]), distances]
  count = distances.shape[-1]
  if slope.shape[-1] > count:
    for k in range(count):
      parts.append(distances[..., k : k + 1] * distances[..., k:])
  return tf.concat(parts, axis=-1)


def _factor(natural, distances):
  """Returns L of the precision P(u), and L^-1 h(u), [n, d]."""
  # h(u) = sum_t exp(b_t.u) (h_t + H_t inputs), as one matrix product.
  weights = _terms(natural.exponents, distances)
  places = tf.concat([natural.offset[..., tf.newaxis], natural.slope], axis=-1)
  products = (
    weights[:, :, tf.newaxis] * _inputs(distances, natural.slope)[:, tf.newaxis]
  )
  size = ps.shape(products)[1] * ps.shape(products)[2]
  pull = tf.matmul(
    tf.reshape(products, [-1, size]),
    tf.reshape(tf.transpose(places, [0, 2, 1]), [size, -1]),
  )
  slack = tf.matmul(weights, natural.slack)
  if not natural.edge.shape[-1]:
    return tf.sqrt(slack), pull * tf.math.rsqrt(slack)
  edge = tf.matmul(weights, natural.edge)
  size = tf.abs(edge)
  # If edges of both signs cancel in part, this part is added to the diagonal.
  spare = tf.matmul(weights, tf.abs(natural.edge)) - size
  spare = tf.maximum(spare, 0.0)
  before = tf.concat([tf.zeros_like(spare[:, :1]), spare[:, :-1]], axis=-1)
  lower = markov_factor.factor(slack + spare + before, size, tf.sign(edge))
  return lower, markov_factor.solve(lower, pull)
