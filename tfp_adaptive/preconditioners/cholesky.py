"""Dense scale factor: C = L, lower triangular with a positive diagonal."""

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import shown
from tfp_adaptive.core.custom_gradient import custom_gradient
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linalg import geometric_mean
from tfp_adaptive.linalg.symmetric import symmetric_part

_LARGEST_EVENT = 20_000  # A factor then takes 1.6 GB, and a run holds several.
_NUM_ITERATIONS = 3  # Power iterations, for a lower bound of the norm.


@shown.remembers_call
def cholesky(init_scale=None, min_scale=0.0):
  """Builds a dense scale factor, params L of shape [event_size, event_size].

  It learns every correlation. A step costs O(d^2) for each chain, and an
  adapting step adds one product of two d x d matrices. Memory is O(d^2). Beyond
  a few thousand dimensions use a structured factor.

  The noise is isotropic, so that the proposal depends on L L^T only. A move
  uses only the symmetric part S of a tangent, which halves the noise of a
  gradient. If the spectral norm of S exceeds 1/2, S is scaled to norm 1/2. The
  new factor is triangular, with the covariance of L (I + S) to first order:

    L <- L (I + 2 tril S - diag S),   L L^T <- L (I + 2 S) L^T.

  Args:
    init_scale: First scale of all coordinates, in units of the state: a
      positive float or a function of the event size. By default the adaptation
      finds this scale.
    min_scale: Smallest diagonal entry after a step of an optimizer that works
      on raw params (`rmsprop`, `adam`). With 0, columns with a negative
      diagonal entry change sign, which leaves L L^T unchanged. With
      `relative_gradient` the diagonal stays positive anyway.

  Returns:
    An `interfaces.Preconditioner`.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(
      target.log_prob, 1000, preconditioner=tfpa.preconditioners.cholesky()
    )
  """

  def project(factor):
    lower = tf.linalg.band_part(factor, -1, 0)
    diag = tf.linalg.diag_part(lower)
    if min_scale == 0.0:  # L L^T does not depend on the signs of columns.
      lower *= tf.where(diag < 0.0, -tf.ones_like(diag), tf.ones_like(diag))
    diag = scale_factor.positive(diag, min_scale)
    return tf.linalg.set_diag(lower, diag)

  return interfaces.Preconditioner(
    name='cholesky',
    init=_init,
    operator=_operator,
    outer=lambda factor, left, right, push: tf.matmul(
      left, right, transpose_a=True
    ),
    log_det_gradient=lambda factor: tf.eye(
      ps.shape(factor)[-1], dtype=factor.dtype
    ),
    slope=lambda factor, grads: tf.linalg.trace(grads),
    move=_move,
    rescale=lambda factor, by: by * factor,
    project=project,
    init_scale=init_scale,
    fisher_factor=geometric_mean.factor_of_mean,
  )


def _init(event_size, dtype, scale):
  size = tf.get_static_value(event_size)
  if size is not None and size > _LARGEST_EVENT:
    raise ValueError(
      f'A dense factor of {size} coordinates has {size}^2 entries, more than a '
      'run can hold. Write `preconditioner=tfpa.preconditioners.diagonal()`, '
      'or `preconditioner=tfpa.preconditioners.low_rank(20)` if the sampler '
      'learns by Fisher divergence.'
    )
  return tf.cast(scale, dtype) * tf.eye(event_size, dtype=dtype)


@custom_gradient
def _lower(factor):
  # The entries above the diagonal are constants, so their gradients are zero.
  return tf.identity(factor), lambda grad: tf.linalg.band_part(grad, -1, 0)


def _operator(factor):
  return _LowerTriangularFactor(_lower(factor), is_non_singular=True)


def _symmetric(tangent):
  return tf.linalg.LinearOperatorFullMatrix(symmetric_part(tangent))


def _move(factor, tangent):
  operator = _symmetric(tangent)
  norm = tf.maximum(
    _spectral_norm(operator, ps.shape(factor)[-1]),
    tf.reduce_max(tf.abs(operator.diag_part())),
  )
  bound = 0.5 / tf.maximum(norm, 0.5)
  moved = factor + tf.matmul(factor, bound * _lower_root(operator.to_dense()))
  return tf.where(tf.math.is_finite(norm), moved, factor)


def _spectral_norm(operator, event_size):
  """Estimates the largest absolute eigenvalue by power iteration, []."""
  # The start must not be orthogonal to the leading direction.
  row = tf.cast(1 + tf.range(event_size) % 7, operator.dtype)
  tiny = tf.constant(1e-30, operator.dtype)
  for _ in range(_NUM_ITERATIONS):
    row /= tf.maximum(tf.norm(row), tiny)
    row = scale_factor.apply(operator, scale_factor.apply(operator, row))
  return tf.sqrt(tf.norm(row))


def _lower_root(tangent):
  """Returns the lower triangular F with F + F^T = 2 E for a symmetric E."""
  lower = tf.linalg.band_part(tangent, -1, 0)
  return 2.0 * lower - tf.linalg.band_part(tangent, 0, 0)


class _LowerTriangularFactor(tf.linalg.LinearOperatorLowerTriangular):
  """A triangular operator whose matrix is zero above the diagonal.

  TF's operator masks the upper triangle before every product. Here this is not
  needed.
  """

  def _get_tril(self):
    return self.tril
