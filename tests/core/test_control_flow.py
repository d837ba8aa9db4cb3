"""Control flow: what is computed in a stage of its own is computed always."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import control_flow
from tfp_adaptive.core import vectorized_loops


@pytest.mark.parametrize('mode', ['eager', 'graph', 'xla'])
@pytest.mark.parametrize('first', [1.0, -2.0, 0.0, np.inf, -np.inf, np.nan])
def test_a_stage_is_never_left_out(first, mode):
  def double(x):
    return control_flow.in_stage(lambda x: 2.0 * x, x)

  if mode != 'eager':
    double = tf.function(double, autograph=False, jit_compile=mode == 'xla')
  values = np.array([first, 3.0])
  np.testing.assert_array_equal(double(tf.constant(values)), 2.0 * values)


def test_counts_do_not_overflow():
  count = tf.constant(0)
  for _ in range(5):
    count = adaptation_base.counted(count, tf.constant(2**30 - 1))
  assert 2**30 <= count


# Loops in vectorized functions: the same values, and XLA compiles them.


_ROWS = np.random.default_rng(0).uniform(0.5, 1.5, size=(3, 2))


def _curve(row):
  """A scan from a constant, as of an ordinary differential equation."""
  return tf.scan(
    lambda now, time: now + 0.1 * row[0] * tf.sin(now + time) * row[1],
    tf.constant([0.1, 0.2, 0.3, 0.4], row.dtype),
    initializer=tf.constant(0.5, row.dtype),
  )


def _along_the_row(row):
  return tf.scan(lambda now, x: now * x + 1.0, row)


def _two_deep(row):
  def turn(now, _):
    inner = tf.scan(lambda x, y: x * y, tf.stack([now, row[1]]))
    return 0.5 * inner[-1] + row[0]

  return tf.scan(turn, tf.zeros([3], row.dtype), initializer=row[0])


def _mapped(row):
  return tf.map_fn(lambda x: tf.exp(x) * row[1], row)


def _late(row):
  """A value that depends on the row from the second turn on alone."""

  def turn(count, first, second):
    return count + 1, second, second * row[0] + 1.0

  one = tf.ones([], row.dtype)
  return tf.while_loop(
    lambda count, *_: count < 3,
    turn,
    (tf.constant(0), one, one),
    maximum_iterations=3,
  )[1]


# XLA has no gradient of two loops, one in the other.
_CASES = [
  (f, x) for f in (_curve, _along_the_row, _mapped, _late) for x in (None, True)
]
_CASES.append((_two_deep, None))


def _by_row(row):
  """Elements leave this loop at different turns."""
  return tf.while_loop(lambda x: x < 3.0, lambda x: [x * 1.5], [row[0]])[0]


def _values_and_gradients(function, with_xla):
  def values(rows):
    with vectorized_loops.in_step():
      return tf.vectorized_map(function, rows)

  run = tf.function(
    lambda rows: tfp.math.value_and_gradient(values, rows),
    autograph=False,
    jit_compile=with_xla,
  )
  return [x.numpy() for x in run(tf.constant(_ROWS))]


def _one_by_one(function):
  rows = map(tf.constant, _ROWS)
  found = [tfp.math.value_and_gradient(function, row) for row in rows]
  return map(np.stack, zip(*found))


@pytest.mark.parametrize('function, with_xla', _CASES)
def test_a_loop_of_as_many_turns_for_all_is_a_plain_one(function, with_xla):
  found = _values_and_gradients(function, with_xla)
  for values, expected in zip(found, _one_by_one(function), strict=True):
    np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_a_loop_of_different_turns_is_converted_as_before():
  found = _values_and_gradients(_by_row, with_xla=None)
  for values, expected in zip(found, _one_by_one(_by_row), strict=True):
    np.testing.assert_allclose(values, expected, rtol=1e-12)
