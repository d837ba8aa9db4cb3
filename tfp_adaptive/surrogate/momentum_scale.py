"""Fits the factor C of a structure to draws and to scores at the draws.

  C C^T = M^-1,   M = (Cov^-1 + E[score score^T]) / 2

Without scores M = Cov^-1. C is found by natural gradient steps, C <- C (I + E)
with E = (I - C^T M C) / 2, projected on the structure.
"""

import tensorflow as tf

from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import control_flow
from tfp_adaptive.core import scale_factor
from tfp_adaptive.surrogate import weighted_points

_NUM_STEPS = 60  # A step changes a direction by at most a factor of two.


def fit(preconditioner, params, points, weights, scores=None):
  """Returns params of C, or the given ones if the fit is not finite.

  `points` are draws, [n, d], and `weights`, [n], sum to one.
  """
  draws = (points, weights) if scores is None else (points, weights, scores)
  sharpness = control_flow.in_stage(_sharpness, *draws)

  def step(count, params):
    operator = preconditioner.operator(params)
    rows = tf.linalg.matrix_transpose(sharpness)
    pulled = scale_factor.apply(operator, rows, adjoint=True)
    outer = preconditioner.outer(
      params, pulled, pulled, lambda: scale_factor.apply(operator, pulled)
    )
    tangent = tf.nest.map_structure(
      lambda identity, product: 0.5 * (identity - product),
      preconditioner.log_det_gradient(params),
      outer,
    )
    return count + 1, preconditioner.move(params, tangent)

  # Some structures raise an error if a number is not finite.
  is_known = adaptation_base.is_finite(sharpness)
  _, fitted = tf.while_loop(
    lambda count, _: (count < _NUM_STEPS) & is_known,
    step,
    (tf.constant(0), params),
  )
  # All params are replaced or none.
  return adaptation_base.choose(
    adaptation_base.is_finite(fitted), fitted, params
  )


def _sharpness(points, weights, scores=None):
  """Returns a factor A of M = A A^T, [d, d], in the dtype of the points."""
  dtype = points.dtype
  points, weights = tf.cast(points, tf.float64), tf.cast(weights, tf.float64)
  _, covariance = weighted_points.moments(points, weights)
  if scores is None:
    matrix = weighted_points.precision(covariance)
  else:
    scores = tf.cast(scores, tf.float64)
    matrix = weighted_points.sharpness(covariance, scores, weights)
  return tf.cast(tf.linalg.cholesky(matrix), dtype)
