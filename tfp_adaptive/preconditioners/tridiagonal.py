"""Markov path: C = B^-1 with B upper bidiagonal, precision tridiagonal."""

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linalg import banded
from tfp_adaptive.preconditioners import markov_path
from tfp_adaptive.preconditioners import row_step
from tfp_adaptive.preconditioners.factor_operator import FactorOperator

__all__ = ['tridiagonal']


def tridiagonal(init_scale=None, min_scale=0.0, max_scale=1e6):
  """Builds the factor of a Markov path, params (b, u) of sizes d and d - 1.

  Learns the scale of every coordinate and the coupling of neighbours: exactly
  the covariances whose inverse B^T B is tridiagonal. Costs O(d) in time and
  memory. The order of the coordinates matters.

    C = B^-1,   B = diag(b) + superdiag(u),   log |det C| = -sum log b_i.

  A tangent is a change of (b, u). A move is a step of natural gradient, which
  takes the variances v of C C^T from b_i^2 v_i = 1 + u_i^2 v_{i+1}.

  Args:
    init_scale: First scale of all coordinates, in units of the state: a
      positive float, a function of the event size, or `None`: found by the
      adaptation.
    min_scale: Smallest 1 / b_i, the scale of a coordinate given its next
      neighbour, after a step of an optimizer that works on raw params
      (`rmsprop`, `adam`); relative gradients keep b positive.
    max_scale: Largest 1 / b_i after such a step.

  Returns:
    An `interfaces.Preconditioner`.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(100))
    kernel = tfpa.gradient_adaptive_langevin(
      target.log_prob, 1000, tfpa.preconditioners.tridiagonal()
    )
  """

  def project(params):
    diag = markov_path.clip_diagonal(params[0], min_scale, max_scale)
    return diag, params[1]

  return interfaces.Preconditioner(
    name='tridiagonal',
    init=markov_path.initial,
    operator=_operator,
    outer=lambda params, left, right, push: tuple(
      -g for g in banded.outer(left, push(), 2)
    ),
    log_det_gradient=lambda params: (
      -1.0 / params[0],
      tf.zeros_like(params[1]),
    ),
    slope=markov_path.slope,
    move=_move,
    rescale=lambda params, by: (params[0] / by, params[1] / by),
    project=project,
    init_scale=init_scale,
  )


def _operator(params):
  return FactorOperator(
    ps.shape(params[0])[0],
    params[0].dtype,
    apply=lambda rows, adjoint: banded.solve(params, rows, adjoint),
    unapply=lambda rows, adjoint: banded.multiply(params, rows, adjoint),
    log_abs_det=lambda: -tf.reduce_sum(tf.math.log(params[0])),
    name='tridiagonal',
  )


def _move(params, tangent):
  diag, upper = params
  diag_tangent, upper_tangent = tangent
  stretch = diag * diag_tangent + tf.pad(upper * upper_tangent, [[0, 1]])
  variances = markov_path.variances(params)[1:]
  shear = 2.0 * upper_tangent / variances
  shrink = row_step.row_shrink(stretch, tf.pad(shear**2 * variances, [[0, 1]]))
  stretch, shear = shrink * stretch, shrink[:-1] * shear
  change = (diag * stretch, upper * stretch[:-1] + shear)
  shrink = row_step.global_shrink(
    lambda rows: banded.multiply(change, banded.solve(params, rows)),
    lambda rows: banded.solve(
      params, banded.multiply(change, rows, adjoint=True), adjoint=True
    ),
    ps.shape(diag)[0],
    diag.dtype,
  )
  growth = tf.exp(shrink * stretch)
  return diag * growth, upper * growth[:-1] + shrink * shear
