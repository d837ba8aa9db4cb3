"""Fits the factor of least Fisher divergence to given pairs.

A pair is a state x and the gradient g of the log target there. With
z = C^-1 (x - mean x) and s = C^T (g - mean g), the divergence is E |z + s|^2.
This equals E (|z|^2 + |s|^2) up to a constant. See `linear.fisher_divergence`.

`states` are around any mean, and have the shape of `gradients`, [n, d].
`weights` are those of the pairs, [n], with sum one.
"""

import tensorflow as tf

from tfp_adaptive.core import control_flow
from tfp_adaptive.core import history
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core.tfp_private import prefer_static as ps

_NUM_MOVES = 30  # Moves of a fit, for structures without another fit.
# With fewer states for each dimension than the first number, correlations are
# dropped. With more, they are shrunk by at most the second number.
_FEWEST_STATES, _SHRINKAGE = 0.5, 0.1
# From one fit to the next, time grows by 10 % in 25 dimensions or fewer, by
# 26 % in 100 and by 130 % in 1000.
_GROWTH, _FEW_DIMENSIONS = 0.1, 25.0
_LAST_FIT = 0.6  # The last fit, as a share of the adaptation; see `next_time`.


def fit(preconditioner, params, states, gradients, weights):
  """Returns params of the least Fisher divergence on pairs.

  Without `fisher_fit` and `fisher_factor`, moves start at `params`. With a
  `fisher_fit`, `params` only serve to find outlying pairs.
  """
  states, gradients = _centred(states, gradients, weights)
  if preconditioner.fisher_fit is not None:
    weights = _without_far(preconditioner, params, states, gradients, weights)
    states, gradients = _centred(states, gradients, weights)
    return preconditioner.fisher_fit(states, gradients, weights)
  num_states = history.effective_size(weights)
  weights = weights[:, tf.newaxis]
  if preconditioner.fisher_factor is None:
    return tf.while_loop(
      lambda count, _: count < _NUM_MOVES,
      lambda count, params: (
        count + 1,
        moved(preconditioner, params, states, gradients, weights, 1.0),
      ),
      (tf.constant(0), params),
      maximum_iterations=_NUM_MOVES,
    )[1]
  spreads = (
    tf.matmul(weights * rows, rows, transpose_a=True)
    for rows in (states, gradients)
  )
  return factor(preconditioner, *spreads, num_states)


def factor(preconditioner, covariance, precision, num_states):
  """Returns the closed form, [d, d]. Few states shrink the correlations.

  `covariance` is that of the states, and `precision` that of the gradients,
  [d, d]. `num_states`, [], counts the states seen.
  """
  # The diagonal fit is C_ii = (var x_i / var g_i)^(1/4).
  diagonals = (tf.linalg.diag_part(t) for t in (covariance, precision))
  scales = tf.math.divide(*diagonals) ** 0.25
  # A coordinate that never moved has no scale.
  scales = tf.where(scales > 0.0, scales, float('nan'))
  share = correlation_share(num_states, ps.shape(covariance)[-1])
  return control_flow.apply_if(
    share > 0.0,
    lambda _: [
      preconditioner.fisher_factor(
        shrunk(covariance, share), shrunk(precision, share)
      )
    ],
    tf.linalg.diag(scales),
  )[0]


def next_time(time, event_size, num_adaptation_steps):
  """Returns the step of the closed-form fit that follows a fit at `time`, [].

  Each time is a multiple of the one before. A fit costs about d^3, and a step
  about d^2 for each chain. In many dimensions fits are therefore few, and a
  last fit is added at a fixed share of the adaptation.
  """
  size = tf.cast(event_size, time.dtype) / _FEW_DIMENSIONS
  growth = 1.0 + _GROWTH * tf.maximum(size, 1.0) ** 0.7
  following = tf.maximum(time + 1.0, growth * time)
  last = tf.cast(int(_LAST_FIT * num_adaptation_steps), time.dtype)
  is_last = (size > 1.0) & (time < last) & (following > last)
  return tf.where(is_last, last, following)


def time_after_failure(time):
  """Returns the step of the fit that follows a failed fit at `time`.

  The interval is a tenth of the steps so far, in any number of dimensions, so
  that failed fits are few, too.
  """
  return time + tf.maximum(tf.floor(time / 10.0), 1.0)


def fit_and_gain(preconditioner, params, states, gradients, weights):
  """Returns the fit to half of the pairs, and its gain on the other half.

  The gain is the decrease of `loss` from the given params. On the pairs that
  were fitted, any fit would gain.
  """
  halves = [(states[k::2], gradients[k::2], weights[k::2]) for k in range(2)]
  fitted_half, other_half = (
    (*rows, share / tf.reduce_sum(share)) for *rows, share in halves
  )
  fitted = fit(preconditioner, params, *fitted_half)
  now, then = (
    loss(preconditioner, some, *other_half) for some in (params, fitted)
  )
  return fitted, now - then


def loss(preconditioner, params, states, gradients, weights):
  """Returns the mean of log (1 + (|z|^2 + |s|^2) / (2 d)), [].

  For a Gaussian at its best C, this mean is about log 2. The logarithm keeps a
  few pairs in narrow regions from outweighing all others.
  """
  rows = _centred(states, gradients, weights)
  *_, size = _behind(preconditioner.operator(params), *rows)
  return tf.reduce_sum(weights * tf.math.log1p(size))


def _behind(operator, states, gradients):
  """Returns z and s, [n, d], and (|z|^2 + |s|^2) / (2 d) of each pair, [n]."""
  scores = scale_factor.apply(operator, gradients, adjoint=True)
  whitened = scale_factor.unapply(operator, states)
  size = 0.5 * tf.reduce_mean(whitened**2 + scores**2, axis=-1)
  return whitened, scores, size


def _without_far(preconditioner, params, states, gradients, weights):
  """Returns weights [n] in which outlying pairs count less.

  For a normal target at its best C, the size (|z|^2 + |s|^2) / (2 d) of a pair
  is about 1. At other params sizes are larger, and are divided by their usual
  value.
  """
  *_, size = _behind(preconditioner.operator(params), states, gradients)
  usual = tf.math.expm1(tf.reduce_sum(weights * tf.math.log1p(size)))
  weights /= 1.0 + size / tf.maximum(usual, 1.0)
  return weights / tf.reduce_sum(weights)


def _centred(states, gradients, weights):
  weights = weights[:, tf.newaxis]
  return (
    rows - tf.reduce_sum(weights * rows, axis=0) for rows in (states, gradients)
  )


def moved(preconditioner, params, states, gradients, shares, rate):
  """Returns the params after one step towards the least divergence.

  `states` and `gradients` are centered. `shares` are the weights of the pairs,
  [n, 1] or [], and `rate` is the share of a Newton step, [].
  """
  operator = preconditioner.operator(params)
  whitened, scores, size = _behind(operator, states, gradients)
  weights = 2.0 / (1.0 + size[:, tf.newaxis]) * (0.25 * rate * shares)
  # Minus the gradient of mean w (|z|^2 + |s|^2) / 2 in the tangent E. `outer`
  # sums the gradients of a^T C (I + E) b, here for (a, b) = (C^-T z, z) and for
  # (a, b) = (-g, s).
  tangent = preconditioner.outer(
    params,
    tf.concat([weights * whitened, -weights * scores], axis=0),
    tf.concat([whitened, scores], axis=0),
    lambda: tf.concat([states, scale_factor.apply(operator, scores)], axis=0),
  )
  return preconditioner.move(params, tangent)


def correlation_share(num_states, event_size):
  """Returns the factor in [0, 1] for correlations estimated from few states."""
  ratio = num_states / tf.cast(event_size, num_states.dtype)
  share = 1.0 - _SHRINKAGE / (1.0 + ratio**4)
  return tf.where(ratio < _FEWEST_STATES, tf.zeros_like(share), share)


def shrunk(matrix, share):
  """Returns the matrix with its correlations multiplied by the share."""
  return tf.linalg.set_diag(share * matrix, tf.linalg.diag_part(matrix))
