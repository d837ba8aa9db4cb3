"""Dense scale factor: C = L, lower triangular with a positive diagonal."""

import tensorflow as tf

from tfp_adaptive import interfaces

__all__ = ['cholesky']


def cholesky(init_scale=None, min_scale=0.0):
  """Builds a dense scale factor, params L of shape [event_size, event_size].

  Learns every correlation. A step costs O(d^2) for each chain, and while
  adapting one product of two d x d matrices; memory is O(d^2). Beyond a few
  thousand dimensions take a structured factor.

    C = L,   L <- L (I + tril E)   for the tangent E.

  Args:
    init_scale: First scale of all coordinates, in units of the state: a
      positive float, a function of the event size, or `None`: found by the
      adaptation.
    min_scale: Smallest diagonal entry after a step of an optimizer that works
      on raw params (`rmsprop`, `adam`); the relative gradient's steps are
      bounded so that the diagonal stays positive.

  Returns:
    An `interfaces.Preconditioner`.
  """

  def project(factor):
    lower = tf.linalg.band_part(factor, -1, 0)
    diag = tf.maximum(
      tf.linalg.diag_part(lower), tf.cast(min_scale, factor.dtype)
    )
    return tf.linalg.set_diag(lower, diag)

  return interfaces.Preconditioner(
    name='cholesky',
    init=lambda event_size, dtype, scale: (
      tf.cast(scale, dtype) * tf.eye(event_size, dtype=dtype)
    ),
    operator=lambda factor: _LowerTriangularFactor(
      factor, is_non_singular=True
    ),
    tangent_operator=tf.linalg.LinearOperatorLowerTriangular,
    move=lambda factor, tangent: (
      factor + tf.matmul(factor, tf.linalg.band_part(tangent, -1, 0))
    ),
    project=project,
    init_scale=init_scale,
  )


class _LowerTriangularFactor(tf.linalg.LinearOperatorLowerTriangular):
  """A triangular operator over entries that are zero above the diagonal.

  TF's own masks the upper triangle again before every product; the params here
  never have one.
  """

  def _get_tril(self):
    return self.tril
