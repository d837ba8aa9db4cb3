"""Paths over days, [chains..., num_days], in operations that compile well.

XLA's products are vectorized on CPU; its sums are not, nor are those in the
gradient of a broadcast. Sums over days, and copies of one number for all days,
are therefore products with ones here. Everything can be differentiated twice
under `jit_compile`.
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

  One loop over the days, and one backwards for the gradient: a fifth of the
  time of products with blocks of powers of the persistence, at 2516 days.

  Args:
    innovations: e, [chains..., num_days].
    persistence: [chains..., 1].
  """
  path = _autoregress(innovations, persistence, is_backward=False)
  return tf.ensure_shape(path, innovations.shape)


def _autoregress(innovations, persistence, is_backward):
  @tf.custom_gradient
  def solve(innovations, persistence):
    recursion = _recursion
    if not tf.executing_eagerly():
      # Compiled on its own where the caller is not: a loop in a plain graph
      # takes a thousand times as long.
      recursion = tf.function(_recursion, jit_compile=True, autograph=False)
    path = recursion(innovations, persistence, is_backward)

    def backward(cotangent):
      # The adjoint is the same recursion, the other way in time.
      adjoint = _autoregress(cotangent, persistence, not is_backward)
      return adjoint, _lagged_product(
        innovations, persistence, path, adjoint, is_backward
      )

    return path, backward

  return solve(innovations, persistence)


def _lagged_product(innovations, persistence, path, adjoint, is_backward):
  """Returns sum_t a_{t-1} b_t, [chains..., 1], by the path a already there.

  For second derivatives a is again the recursion's solution: else a tape
  would go through the loop, which takes a hundred times as long.
  """
  step = -1 if is_backward else 1

  @tf.custom_gradient
  def product(innovations, persistence, adjoint):
    value = sum_days(_shifted(path, step) * adjoint)[..., tf.newaxis]

    def backward(cotangent):
      pulled = _autoregress(
        cotangent * _shifted(adjoint, -step), persistence, not is_backward
      )
      by_persistence = _lagged_product(
        innovations, persistence, path, pulled, is_backward
      )
      return pulled, by_persistence, cotangent * _shifted(path, step)

    return value, backward

  return product(innovations, persistence, adjoint)


def _shifted(x, step):
  """Returns x a day later (step 1) or earlier (-1), zero at the border."""
  no_padding = [[0, 0]] * (x.shape.rank - 1)
  if step == 1:
    return tf.pad(x[..., :-1], [*no_padding, [1, 0]])
  return tf.pad(x[..., 1:], [*no_padding, [0, 1]])


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
