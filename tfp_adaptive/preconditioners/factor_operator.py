"""A scale factor C as a `tf.linalg.LinearOperator`, given by its products."""

import tensorflow as tf

from tfp_adaptive.core import state_parts
from tfp_adaptive.core.tfp_private import prefer_static as ps


class FactorOperator(tf.linalg.LinearOperator):
  """An invertible C that is given by functions of rows, [n, d].

  `apply`(rows, adjoint) returns C r for every row, or C^T r. `unapply` returns
  C^-1 r, or C^-T r. `log_abs_det`() returns log |det C|, [].

  Tensors that the functions capture are computed when the operator is built.
  Build the operator outside of a loop to compute them once.
  """

  def __init__(self, event_size, dtype, apply, unapply, log_abs_det, name):
    self._event_size = event_size
    self._apply = apply
    self._unapply = unapply
    self._log_abs_det = log_abs_det
    super().__init__(
      dtype=dtype,
      is_non_singular=True,
      is_square=True,
      name=name,
      parameters=dict(
        event_size=event_size,
        dtype=dtype,
        apply=apply,
        unapply=unapply,
        log_abs_det=log_abs_det,
        name=name,
      ),
    )

  def _shape(self):
    size = tf.get_static_value(self._event_size)
    size = None if size is None else int(size)
    return tf.TensorShape([size, size])

  def _shape_tensor(self):
    return tf.stack([self._event_size, self._event_size])

  def _matmul(self, x, adjoint=False, adjoint_arg=False):
    return _on_rows(self._apply, x, adjoint, adjoint_arg)

  def _solve(self, rhs, adjoint=False, adjoint_arg=False):
    return _on_rows(self._unapply, rhs, adjoint, adjoint_arg)

  def _log_abs_determinant(self):
    return self._log_abs_det()


def _on_rows(function, matrix, adjoint, adjoint_arg):
  """Applies a function of rows to the columns of [..., d, n]."""
  rows = matrix if adjoint_arg else tf.linalg.matrix_transpose(matrix)
  result = function(state_parts.as_rows(rows), adjoint)
  return tf.linalg.matrix_transpose(tf.reshape(result, ps.shape(rows)))
