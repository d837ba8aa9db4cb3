"""The scale factor C as a function of its params or of a tangent at them."""

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core.custom_gradient import custom_gradient
from tfp_adaptive.core.state_parts import as_rows
from tfp_adaptive.core.tfp_private import prefer_static as ps

_LEAST = 1e-15  # The square of its inverse is finite in float32.


def apply(operator, rows, adjoint=False):
  """Multiplies every row of `rows` ([chains..., d]) by the operator."""
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
  columns = operator.matmul(as_rows(rows), adjoint=adjoint, adjoint_arg=True)
  return tf.reshape(tf.linalg.matrix_transpose(columns), ps.shape(rows))


def _apply_dense(matrix, rows, adjoint):
  """Returns rows M^T, or rows M if `adjoint`, without a copy of the rows."""
  product = tf.matmul(as_rows(rows), matrix, transpose_b=not adjoint)
  return tf.reshape(product, ps.shape(rows))


def unapply(operator, rows, adjoint=False):
  """Multiplies every row of `rows`, [n, d], by the inverse of the operator."""
  return tf.linalg.matrix_transpose(
    operator.solve(rows, adjoint=adjoint, adjoint_arg=True)
  )


def positive(scales, min_scale):
  """Returns scales [d] made positive after a step that may change signs.

  If `min_scale` is 0, it returns absolute values of at least `_LEAST`, because
  -c and c are the same scale.
  """
  if min_scale > 0.0:
    return tf.maximum(scales, tf.cast(min_scale, scales.dtype))
  return tf.maximum(tf.abs(scales), tf.cast(_LEAST, scales.dtype))


def check_moves(preconditioner, learner):
  """Refuses a structure that only a fit to pairs can learn."""
  is_part = isinstance(preconditioner, interfaces.Preconditioner)
  if is_part and preconditioner.move is None:
    raise ValueError(
      f'{learner} moves the params of the factor at every step, and '
      f'`{preconditioner.name}` is only fitted to pairs of a state and its '
      'gradient. Build the kernel with `tfpa.fisher_divergence_hamiltonian` or '
      '`tfpa.fisher_divergence_langevin`, or write '
      '`preconditioner=tfpa.preconditioners.diagonal()`.'
    )


def at(preconditioner, params):
  """Returns C as a function of its raw params, without a tangent."""
  operator = preconditioner.operator(params)
  return interfaces.ScaleFactor(
    apply=lambda v: apply(operator, v),
    apply_adjoint=lambda g: apply(operator, g, adjoint=True),
    log_abs_det=operator.log_abs_determinant(),
    centered_stretch=lambda e, v: tf.zeros_like(e[..., 0]),
    params=params,
  )


def around(preconditioner, params, tangent):
  """Returns C(params) (I + E), differentiable in the tangent E at zero.

  E must be zero, because no product with E is computed. The gradients in E are
  outer products of rows that are computed anyway. These are expressions in rows
  c, e, g and v, each with its gradient:

    c^T C (I + E) v:        (C^T c) v^T
    c^T (I + E)^T C^T g:    (C^T g) c^T
    e^T E v:                e v^T
  """
  operator = preconditioner.operator(params)
  flat_tangent = tf.nest.flatten(tangent)

  def outer(left, right, push):
    return tf.nest.flatten(
      preconditioner.outer(params, as_rows(left), as_rows(right), push)
    )

  @custom_gradient
  def push(rows, *_):
    pushed = apply(operator, rows)

    def backward(cotangent):
      pulled = apply(operator, cotangent, adjoint=True)
      return pulled, *outer(pulled, rows, lambda: as_rows(pushed))

    return pushed, backward

  @custom_gradient
  def pull(rows, *_):
    pulled = apply(operator, rows, adjoint=True)

    def backward(cotangent):
      pushed = apply(operator, cotangent)
      return pushed, *outer(pulled, cotangent, lambda: as_rows(pushed))

    return pulled, backward

  @custom_gradient
  def stretch(left, right, *_):
    def backward(cotangent):
      weighted = cotangent[..., tf.newaxis] * left
      return (
        tf.zeros_like(left),
        tf.zeros_like(right),
        *outer(weighted, right, lambda: as_rows(apply(operator, right))),
      )

    return tf.zeros_like(left[..., 0]), backward

  @custom_gradient
  def log_abs_det(*_):
    grads = tf.nest.flatten(preconditioner.log_det_gradient(params))
    return tf.zeros([], grads[0].dtype), lambda cotangent: [
      cotangent * g for g in grads
    ]

  entropy = log_abs_det(*flat_tangent)
  return interfaces.ScaleFactor(
    apply=lambda v: push(v, *flat_tangent),
    apply_adjoint=lambda g: pull(g, *flat_tangent),
    log_abs_det=entropy,
    centered_stretch=lambda e, v: stretch(e, v, *flat_tangent) - entropy,
  )


def scaled(factor, step_size):
  """Returns step_size * C, with the log determinant of C without step size."""
  return factor._replace(
    apply=lambda v: step_size * factor.apply(v),
    apply_adjoint=lambda g: step_size * factor.apply_adjoint(g),
  )


def zero_tangent(params):
  """Returns the tangent E = 0 at `params`."""
  return tf.nest.map_structure(tf.zeros_like, params)
