"""log det(I + D) of a Hamiltonian proposal in z, for a map q = f(z).

  D = -kappa s^2 K,   K the Hessian at z of U~(z) = U(f(z)) - log |det Df(z)|
  K = Df^T H Df + Hessian of phi,   phi(z) = -g . f(z) - log |det Df(z)|

Here kappa = (L^2 - 1) / 6. g is the gradient of log pi and H the Hessian of U
at a constant q = f(z). If f changes, g and H stay the same, and z moves. All
rows are [chains..., d].

Source: Hirt, Titsias and Dellaportas (2021), Appendix C,
https://arxiv.org/abs/2110.14625.
"""

import collections
from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive.linear import log_det

# s as a scale factor, with the functions that the estimator uses.
_Scaling = collections.namedtuple('_Scaling', ['apply', 'apply_adjoint'])


class Point(NamedTuple):
  """A position and the gradient of log pi there, constants."""

  position: tf.Tensor  # q, [chains..., d].
  gradient: tf.Tensor  # [chains..., d].


def estimate(
  bijector_fn, hessian_product, point, kappa, step_size, probe, *drawn
):
  """Returns a `log_det.LogDetEstimate` of log det(I + D) at a `Point`.

  Its `hessian_*` fields are two products of a row, joined to [chains..., 2 d]:
  with K and with H Df. `bijector_fn` builds a new bijector f at every call.
  `hessian_product` is (w, sizes) -> H w, and `step_size` is s, [] or
  [chains..., 1]. `drawn` are N and its series.
  """
  event_size = probe.shape[-1]
  z = bijector_fn().inverse(point.position)
  factor = _Scaling(
    apply=lambda rows: step_size * rows,
    apply_adjoint=lambda rows: step_size * rows[..., :event_size],
  )
  return log_det.estimate(
    factor,
    lambda rows, sizes: tf.concat(
      product(bijector_fn, hessian_product, z, point.gradient, rows, sizes),
      axis=-1,
    ),
    kappa,
    probe,
    *drawn,
  )


def keep(is_finite, estimated):
  """Returns the estimate with zeros for the chains that diverged."""
  rows = {
    name: tf.where(is_finite[..., tf.newaxis], value, 0.0)
    for name, value in estimated._asdict().items()
    if name not in ('value', 'num_terms')
  }
  return estimated._replace(
    value=tf.where(is_finite, estimated.value, 0.0), **rows
  )


def log_jacobian(bijector_fn, point, estimated, kappa, step_size):
  """Returns log det(I + D) and an eigenvalue mu of D, both [chains...].

  mu has the largest absolute value. The values are those of the estimate, with
  probe e, weighted y and eigenvector u. The gradients are those of y^T D e and
  u^T D u, where D depends on f.
  """
  event_size = estimated.probe.shape[-1]
  left = step_size * tf.stack([estimated.weighted, estimated.eigenvector])
  right = step_size * tf.stack([estimated.probe, estimated.eigenvector])
  pushed_left, pushed_right = (
    tf.stack([first, second])[..., event_size:]
    for first, second in (
      (estimated.hessian_weighted, estimated.hessian_eigenvector),
      (estimated.hessian_probe, estimated.hessian_eigenvector),
    )
  )
  forms = -kappa * bilinear(
    bijector_fn,
    Point(*(tf.stack([rows, rows]) for rows in point)),
    left,
    right,
    pushed_left,
    pushed_right,
  )
  trace, quadratic = tf.unstack(forms - tf.stop_gradient(forms))
  eigenvalue = -kappa * tf.reduce_sum(
    step_size
    * estimated.eigenvector
    * estimated.hessian_eigenvector[..., :event_size],
    axis=-1,
  )
  return estimated.value + trace, eigenvalue + quadratic


def product(bijector_fn, hessian_product, z, gradient, rows, sizes):
  """Returns the products of rows with K and with H Df, for constant f."""
  # Df^T row is linear in the row, and its derivative gives the product with Df.
  any_row = tf.zeros_like(rows)
  with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
    tape.watch([z, any_row])
    position, slope, pulled = _slopes(bijector_fn, z, gradient, any_row)
  pushed = hessian_product(
    tape.gradient(pulled, any_row, output_gradients=rows), sizes
  )
  turned = tape.gradient([slope, position], z, output_gradients=[rows, pushed])
  return turned, pushed


def bilinear(bijector_fn, point, left, right, pushed_left, pushed_right):
  """Returns numbers whose derivative in f is that of left^T K right.

  q, g and H are constant, and z = f^-1(q) moves with f. `pushed_left` is
  H Df left, and `pushed_right` is H Df right. The numbers are [chains...].
  """
  z = bijector_fn().inverse(point.position)
  with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(z)
    position, slope, pulled = _slopes(
      bijector_fn, z, point.gradient, pushed_left
    )
  along_left = tape.gradient(
    [slope, position], z, output_gradients=[right, pushed_right]
  )
  return tf.reduce_sum(along_left * left + pulled * right, axis=-1)


def _slopes(bijector_fn, z, gradient, row):
  """Returns f(z), the gradient of phi at z, and Df^T row."""
  bijector = bijector_fn()
  with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
    tape.watch(z)
    rows = tf.identity(z)  # The bijector has cached nothing for a new Tensor.
    position = bijector.forward(rows)
    phi = -tf.reduce_sum(gradient * position, axis=-1)
    phi -= bijector.forward_log_det_jacobian(rows, event_ndims=1)
  return (
    position,
    tape.gradient(phi, z),
    tape.gradient(position, z, output_gradients=row),
  )
