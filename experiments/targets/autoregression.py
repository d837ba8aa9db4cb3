"""Paths over days, [chains..., num_days], in operations that compile well.

On a CPU, XLA vectorizes products, but neither sums nor the gradient of a
broadcast. Sums over days, and copies of one number for all days, are therefore
products with ones.
"""

import tensorflow as tf


def sum_days(x):
  """Returns the sums over the last dimension."""
  return tf.tensordot(x, tf.ones([x.shape[-1]], x.dtype), 1)


def over_days(x, num_days):
  """Returns [..., num_days] copies of [..., 1]."""
  return tf.tensordot(x, tf.ones([1, num_days], x.dtype), 1)


def autoregress(innovations, persistence):
  """Returns a with a_0 = e_0, a_t = persistence a_{t-1} + e_t.

  One loop runs over the days, and one loop runs backwards for the gradient. At
  2516 days this takes a fifth of the time of products with blocks of powers of
  the persistence. The function has no second derivatives.

  Args:
    innovations: e, [chains..., num_days].
    persistence: [chains..., 1].
  """

  @tf.custom_gradient
  def solve(innovations, persistence):
    path = _solved(innovations, persistence, is_backward=False)

    def backward(cotangent):
      # The adjoint is the same recursion backwards in time.
      adjoint = _solved(cotangent, persistence, is_backward=True)
      before = tf.concat([tf.zeros_like(path[..., :1]), path[..., :-1]], -1)
      return adjoint, sum_days(before * adjoint)[..., tf.newaxis]

    return path, backward

  return tf.ensure_shape(solve(innovations, persistence), innovations.shape)


def _solved(innovations, persistence, is_backward):
  recursion = _recursion
  if not tf.executing_eagerly():
    # XLA compiles the loop even if it does not compile the caller, because a
    # loop in a plain graph takes a thousand times as long.
    recursion = tf.function(_recursion, jit_compile=True, autograph=False)
  return recursion(innovations, persistence, is_backward)


def _recursion(innovations, persistence, is_backward):
  num_days = innovations.shape[-1]
  weight = persistence[..., 0]
  by_day = tf.einsum('...t->t...', innovations)
  written = tf.TensorArray(
    innovations.dtype, size=num_days, element_shape=weight.shape
  )

  def turn(count, last, written):
    day = num_days - 1 - count if is_backward else count
    last = by_day[day] + weight * last
    return count + 1, last, written.write(day, last)

  _, _, written = tf.while_loop(
    lambda count, *_: count < num_days,
    turn,
    (0, tf.zeros_like(weight), written),
    maximum_iterations=num_days,
  )
  return tf.einsum('t...->...t', written.stack())
