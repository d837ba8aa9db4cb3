"""Products of the Hessian of -log pi with rows, exact or by differences."""

import tensorflow as tf

from tfp_adaptive.core import state_parts
from tfp_adaptive.core import xla_gradients
from tfp_adaptive.core.custom_gradient import custom_gradient

METHODS = ('autodiff', 'finite_difference')


def hessian_product(
  target_log_prob_fn, state, flat_point, flat_gradient, num_chain_dims, method
):
  """Returns the function w -> -(Hessian of log pi at the point) w.

  It takes rows w and `sizes`, and returns [chains..., d], with zeros for chains
  whose product is not finite. `sizes`, [chains..., 1], are the lengths of w in
  units of the target's scale, and set the width of a finite difference.

  `state` is any state of the chains, for structure and shapes. `flat_gradient`
  is the gradient of log pi at the point, for `'finite_difference'` only. The
  method `'autodiff'` is exact and costs about three gradients (reverse over
  reverse). `'finite_difference'` costs one gradient, and is right to about a
  third of the digits of the dtype.
  """

  def gradient(flat):
    parts = state_parts.unflatten_like(flat, state, num_chain_dims)
    _, grads = state_parts.value_and_gradient(target_log_prob_fn, parts)
    return state_parts.flatten(grads, num_chain_dims)

  def by_autodiff(rows, sizes):
    del sizes
    xla_gradients.register()
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(flat_point)
      slope = tf.reduce_sum(gradient(flat_point) * rows)
    return -tape.gradient(
      slope, flat_point, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )

  def by_finite_difference(rows, sizes):
    # The truncation error of this one-sided difference is about the width.
    epsilon = 2.0**-52 if rows.dtype == tf.float64 else 2.0**-23
    width = epsilon ** (1.0 / 3.0) / tf.where(sizes > 0.0, sizes, 1.0)
    return (flat_gradient - gradient(flat_point + width * rows)) / width

  product = by_autodiff if method == 'autodiff' else by_finite_difference
  return lambda rows, sizes: _zero_unless_finite(product(rows, sizes))


def live_gradient(target_log_prob_fn, state, gradient, displacement):
  """Returns the gradient at a state as a function of the displacement there.

  The value is `gradient`, a constant, [chains..., d]. Its derivative in the
  displacement, [chains..., d], is the Hessian of log pi, and costs one Hessian
  product.
  """
  num_chain_dims = displacement.shape.rank - 1
  flat = state_parts.flatten(state, num_chain_dims)
  product = hessian_product(
    target_log_prob_fn, state, flat, gradient, num_chain_dims, 'autodiff'
  )

  @custom_gradient
  def live(moved):
    del moved
    return tf.identity(gradient), lambda cotangent: -product(cotangent, None)

  return live(displacement)


def _zero_unless_finite(rows):
  is_finite = tf.reduce_all(tf.math.is_finite(rows), axis=-1, keepdims=True)
  return tf.where(is_finite, rows, 0.0)
