"""Control variates of MALA's gradient: their closed forms and exact means.

All rows are whitened: a and b the gradients at both ends, e the noise.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import registry
from tfp_adaptive.core import scale_factor
from tfp_adaptive.linear import control_variates

_EVENT_SIZE = 3
_IDENTITY = np.eye(_EVENT_SIZE)


def _event_sum(rows):
  return tf.reduce_sum(rows, axis=-1)


def _rows(num_rows, seed=0):
  """Returns a, b, e [num_rows, d], of no particular law but e ~ N(0, I)."""
  rng = np.random.default_rng(seed)
  a, b, e = rng.normal(size=(3, num_rows, _EVENT_SIZE))
  return 2.0 * a + 1.0, b - 0.5, e


def _gradient(function, a, b):
  """Returns the gradient of the sum with respect to E at C = I, [d, d]."""
  params = tf.constant(_IDENTITY)
  tangent = tf.zeros_like(params)
  with tf.GradientTape() as tape:
    tape.watch(tangent)
    factor = scale_factor.around(registry.fixed(_IDENTITY), params, tangent)
    value = function(factor, *map(factor.apply_adjoint, (a, b)))
  np.testing.assert_array_equal(value, 0.0)
  return tape.gradient(value, tangent).numpy()


def _center(a, b, e, slope=0.7):
  return _gradient(
    lambda factor, *_: control_variates.center(slope, factor, a, e),
    a,
    b,
  )


def _balance(ratio, a, b, e):
  return _gradient(
    lambda _, pull_x, pull_y: control_variates.direction_balance(
      tf.constant(ratio, tf.float64), pull_x - pull_y, a, e, _event_sum
    ),
    a,
    b,
  )


def test_the_centering_gradient_is_its_closed_form():
  a, b, e = _rows(5)
  expected = 0.7 * (e.T @ (e + 0.5 * a) - 5 * np.eye(_EVENT_SIZE))
  np.testing.assert_allclose(_center(a, b, e), expected, rtol=1e-12)


@pytest.mark.parametrize('stretch, is_zero', [(1.0, True), (1.03, False)])
def test_the_centering_has_mean_zero_wherever_the_chain_is(stretch, is_zero):
  # One x for all; noise of another variance is the negative control.
  num_rows = 20_000
  a, b, e = _rows(num_rows)
  a, e = np.tile(a[:1], (num_rows, 1)), stretch * e
  mean = _center(a, b, e, slope=1.0) / num_rows
  each = np.einsum('ni,nj->nij', e, e + 0.5 * a)
  z_scores = mean / (each.std(axis=0) / num_rows**0.5)
  largest = np.abs(z_scores).max()
  assert largest < 4.5 if is_zero else largest > 4.5  # 9 numbers, N(0, 1).


@pytest.mark.parametrize('ratio', [-3.0, -0.4, 0.4, 3.0])
def test_the_balance_is_half_the_sum_of_both_ways(ratio):
  # The way back starts with gradient b and draws -(e + h).
  a, b, e = _rows(1)

  def fast(a, b, e):
    return -0.5 * (a - b).T @ (e + 0.5 * (a - b))

  back = fast(b, a, -(e + 0.5 * (a + b)))
  weight = np.sign(ratio) / (1.0 + np.exp(-ratio)) / (1.0 + ratio**2 / 9.0)
  np.testing.assert_allclose(
    _balance([ratio], a, b, e), 0.5 * weight * (fast(a, b, e) + back)
  )


@pytest.mark.parametrize('ratio', [-3.0, -0.4, 0.4, 3.0])
def test_the_balance_of_a_move_and_of_its_way_back_cancel(ratio):
  # The way back is exp(r) times as frequent: the stationary mean is zero.
  a, b, e = _rows(1)
  out = _balance([ratio], a, b, e)
  back = _balance([-ratio], b, a, -(e + 0.5 * (a + b)))
  np.testing.assert_allclose(out, -np.exp(ratio) * back, rtol=1e-12)
  assert np.abs(out).max() > 1e-2


@pytest.mark.parametrize('ratio', [-30.0, 0.0, 30.0])
def test_the_balance_leaves_chains_alone_that_are_far_out(ratio):
  np.testing.assert_array_equal(_balance([ratio], *_rows(1)), 0.0)


def test_the_mean_slope_follows_its_closed_form_and_outlives_overflow():
  a, b, e = _rows(4)
  ratio = np.array([-1.0, 1.0, -2.0, -0.1])
  fast = 0.5 * np.sum((a - b) * (e + 0.5 * (a - b)), axis=1) / _EVENT_SIZE
  weight = (ratio < 0.0) / (1.0 + ratio**2 / 9.0)
  expected = np.clip(np.mean(fast * weight), 0.0, 2.0)
  mean = tf.constant(0.0, tf.float64)
  for _ in range(200):
    mean = control_variates.mean_slope(mean, tf.constant(ratio), a, b, e)
  np.testing.assert_allclose(mean, expected, rtol=1e-6)
  assert 0.1 < expected
  a[0, 0] = np.inf
  kept = control_variates.mean_slope(mean, tf.constant(ratio), a, b, e)
  np.testing.assert_allclose(kept, mean)
