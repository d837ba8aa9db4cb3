"""The scale factor C as a function of its params or of a tangent at them."""

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.internal.tfp_private import prefer_static as ps

__all__ = ['apply', 'at', 'around', 'zero_tangent']


def apply(operator, rows, adjoint=False):
  """Multiplies every row of `rows` ([chains..., d]) by the operator.

  All chains go through one matrix product, whatever their number of
  dimensions.
  """
  if isinstance(operator, tf.linalg.LinearOperatorDiag):
    return operator.diag * rows
  if isinstance(
    operator,
    (
      tf.linalg.LinearOperatorLowerTriangular,
      tf.linalg.LinearOperatorFullMatrix,
    ),
  ):
    return _apply_dense(operator.to_dense(), rows, adjoint)
  shape = ps.shape(rows)
  columns = operator.matmul(
    tf.reshape(rows, ps.stack([-1, shape[-1]])),
    adjoint=adjoint,
    adjoint_arg=True,
  )
  return tf.reshape(tf.linalg.matrix_transpose(columns), shape)


def _apply_dense(matrix, rows, adjoint):
  """Multiplies rows from the right: no transpose of the chains."""
  shape = ps.shape(rows)
  product = tf.matmul(
    tf.reshape(rows, ps.stack([-1, shape[-1]])), matrix, transpose_b=not adjoint
  )
  return tf.reshape(product, shape)


def at(preconditioner, params):
  """Returns C(params); `log_abs_det` is a Tensor function of `params`."""
  operator = preconditioner.operator(params)
  return interfaces.ScaleFactor(
    apply=lambda v: apply(operator, v),
    apply_adjoint=lambda g: apply(operator, g, adjoint=True),
    log_abs_det=operator.log_abs_determinant(),
  )


def around(preconditioner, params, tangent):
  """Returns C(params) (I + E) to first order in the tangent E at zero."""
  operator = preconditioner.operator(params)
  step = preconditioner.tangent_operator(tangent)

  def apply_adjoint(g):
    whitened = apply(operator, g, adjoint=True)
    return whitened + apply(step, whitened, adjoint=True)

  return interfaces.ScaleFactor(
    apply=lambda v: apply(operator, v + apply(step, v)),
    apply_adjoint=apply_adjoint,
    log_abs_det=step.trace(),
  )


def zero_tangent(params):
  """Returns the tangent E = 0 at `params`."""
  return tf.nest.map_structure(tf.zeros_like, params)
