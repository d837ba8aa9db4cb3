"""A surrogate from basis functions psi_j.

  f(x) = sum_j c_j psi_j(B z) - z^T P z / 2,   z = C^-1 (x - center)

The kernel's metric and bandwidth give B, `surrogate_frame` gives C, and a fit
gives c. P is the precision of the Gaussian base times its weight, which may be
zero. Fits always run in float64, because their matrices are nearly singular.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import control_flow
from tfp_adaptive.surrogate.models import score_matching
from tfp_adaptive.surrogate.models import surrogate_frame

FIRST_CHOICE = score_matching.Choice(
  bandwidth=16.0, regularization=1e-3, base_weight=1.0, metric=0.0
)


class Params(NamedTuple):
  """Params of a kernel surrogate."""

  frame: surrogate_frame.Frame
  map: tf.Tensor  # B, [d, d].
  precision: tf.Tensor  # P times the weight of the base, [d, d].
  coefficients: tf.Tensor  # c, [m].
  data: Any  # Data of the basis functions, in coordinates v = B z.
  choice: score_matching.Choice  # [] each, from which the next fit starts.
  # `score_matching.Sums`, always float64, if draws can be added; else empty.
  sums: Any = ()


def build(name, num_points, basis, choice=FIRST_CHOICE, online=False):
  """Returns an `interfaces.Surrogate` that is fitted to `num_points` draws.

  `choice`, of floats, is the center of the first search. With `online`, params
  have the sums that `update` needs.
  """

  def init(event_size, dtype, seed):
    data = basis.init(event_size, dtype, seed)
    return Params(
      frame=surrogate_frame.start(event_size, dtype),
      map=tf.linalg.eye(event_size, dtype=dtype),
      precision=tf.zeros([event_size, event_size], dtype),
      coefficients=tf.zeros([basis.size(data)], dtype),
      data=data,
      choice=score_matching.Choice(*[tf.constant(v, dtype) for v in choice]),
      sums=_no_sums(basis.size(data)) if online else (),
    )

  return interfaces.Surrogate(
    name=name,
    num_points=num_points,
    init=init,
    fit=lambda params, points, weights, seed: _fit(
      basis, params, points, weights, online
    ),
    log_prob=lambda params, x: _log_prob(basis, params, x),
    score=lambda params, x: _score(basis, params, x),
    is_inside=lambda params, x: surrogate_frame.is_inside(params.frame, x),
    update=(lambda params, rows: _update(basis, params, rows))
    if online
    else None,
  )


def _no_sums(size):
  """Returns `Sums` of zeros, for use before the first fit."""
  return score_matching.Sums(
    tf.zeros([size, size], tf.float64), tf.zeros([size], tf.float64)
  )


def _update(basis, params, rows):
  """Returns params with draws added, unchanged before the first fit."""
  wide, rows = _cast((params, rows), tf.float64)
  z = control_flow.in_stage(
    lambda x, frame: surrogate_frame.whiten(frame, x), rows, wide.frame
  )
  coefficients, sums = control_flow.in_stage(
    lambda z, params: score_matching.add(basis, params, z), z, wide
  )
  new = params._replace(
    coefficients=tf.cast(coefficients, params.coefficients.dtype), sums=sums
  )
  is_fitted = params.sums.factor[0, 0] > 0.0
  return tf.nest.map_structure(
    lambda one, other: tf.where(is_fitted, one, other), new, params
  )


def _fit(basis, params, points, weights, online):
  """Returns params fitted to the draws."""
  dtype = points.dtype
  params = params._replace(sums=())
  params, points, weights = _cast((params, points, weights), tf.float64)
  weights /= tf.reduce_sum(weights)  # The sum is then one in float64 too.
  scores = control_flow.in_stage(
    lambda x, params: _score(basis, params, x), points, params
  )
  frame, base, metrics = control_flow.in_stage(
    surrogate_frame.from_draws, points, weights, scores
  )
  z = control_flow.in_stage(
    lambda x, frame: surrogate_frame.whiten(frame, x), points, frame
  )
  draws = score_matching.Draws(z, weights)
  data = basis.refresh(params.data, draws)
  fitted = score_matching.choose(
    basis, data, draws, base, metrics, params.choice
  )
  params = _cast(
    Params(
      frame=frame,
      map=fitted.map,
      precision=fitted.choice.base_weight * base,
      coefficients=fitted.coefficients,
      data=basis.at(data, fitted.map),
      choice=fitted.choice,
    ),
    dtype,
  )
  return params._replace(sums=fitted.sums if online else ())


def _log_prob(basis, params, x):
  """Returns f(x), [...]."""
  z = surrogate_frame.whiten(params.frame, x)
  v = surrogate_frame.multiply(z, params.map, transpose=True)
  quadratic = tf.reduce_sum(
    z * surrogate_frame.multiply(z, params.precision), axis=-1
  )
  return basis.value(params.data, params.coefficients, v) - 0.5 * quadratic


def _score(basis, params, x):
  """Returns the gradient of f, reduced outside of the draws, [..., d]."""
  z = surrogate_frame.whiten(params.frame, x)
  v = surrogate_frame.multiply(z, params.map, transpose=True)
  gradient = basis.gradient(params.data, params.coefficients, v)
  gradient = surrogate_frame.multiply(gradient, params.map)
  gradient -= surrogate_frame.multiply(z, params.precision)
  gradient = surrogate_frame.multiply(gradient, params.frame.inverse_factor)
  return gradient * surrogate_frame.fade(params.frame, x)


def _cast(structure, dtype):
  return tf.nest.map_structure(lambda t: tf.cast(t, dtype), structure)
