"""The registered gradient of a slice's reverse rule under XLA."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from tfp_adaptive.core import xla_gradients

_OP = 'XlaDynamicUpdateSlice'


def _second_derivative_of_a_slice(x):
  """d/dx of |d/dx sum(x[1:3]^3)|^2: 36 x^3 in the slice, 0 outside."""
  with tf.GradientTape() as outer:
    outer.watch(x)
    with tf.GradientTape() as inner:
      inner.watch(x)
      value = tf.reduce_sum(tf.slice(x, [1], [2]) ** 3)
    square = tf.reduce_sum(inner.gradient(value, x) ** 2)
  return outer.gradient(square, x)


def test_a_slice_has_second_derivatives_under_xla():
  xla_gradients.register()
  x = tf.constant([1.0, 2.0, -3.0, 4.0], tf.float64)
  compiled = tf.function(
    _second_derivative_of_a_slice, jit_compile=True, autograph=False
  )
  np.testing.assert_allclose(compiled(x), [0.0, 36 * 8.0, -36 * 27.0, 0.0])


def test_without_the_registration_it_has_none(monkeypatch):
  # The negative control. Fails once TF has the gradient itself: then this
  # module can go.
  ops = pytest.importorskip(
    'tensorflow.python.framework.ops', reason='TensorFlow moved its registry'
  )
  xla_gradients.register()
  monkeypatch.delitem(ops.gradient_registry._registry, _OP)
  compiled = tf.function(
    _second_derivative_of_a_slice, jit_compile=True, autograph=False
  )
  with pytest.raises(LookupError, match=_OP):
    compiled(tf.ones([4], tf.float64))


def test_the_rule_is_that_of_an_update():
  # out = x with y written at [1, 2]: each entry of x or y goes to one of out.
  xla_gradients.register()
  weights = np.random.default_rng(0).normal(size=(4, 5))

  @tf.function(jit_compile=True, autograph=False)
  def gradients(x, y):
    with tf.GradientTape() as tape:
      tape.watch([x, y])
      updated = gen_xla_ops.xla_dynamic_update_slice(x, y, tf.constant([1, 2]))
      value = tf.reduce_sum(updated * weights)
    return tape.gradient(value, [x, y])

  grad_x, grad_y = gradients(
    tf.ones([4, 5], tf.float64), tf.ones([2, 3], tf.float64)
  )
  outside = weights.copy()
  outside[1:3, 2:5] = 0.0
  np.testing.assert_array_equal(grad_x, outside)
  np.testing.assert_array_equal(grad_y, weights[1:3, 2:5])
