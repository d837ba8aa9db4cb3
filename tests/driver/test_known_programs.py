"""What is known again runs without a compilation; what differs never does."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.driver import known_programs

_FIRST = tf.constant([1.0, 2.0])


def _traced(function, argument=_FIRST):
  return tf.function(function, autograph=False).get_concrete_function(argument)


def _scaled(scale):
  return _traced(lambda x: scale * tf.exp(x))


@pytest.fixture
def known():
  return known_programs.Known()


def test_an_equal_program_is_known_and_another_constant_is_not(known):
  first = _scaled(2.0)
  assert known.same(first, True) is first
  again, other = _scaled(2.0), _scaled(3.0)
  assert known.same(again, True) is first
  assert known.same(other, True) is other
  assert known.same(_scaled(2.0), False) is not first  # Without XLA.
  values = known.same(other, True)(_FIRST)
  np.testing.assert_allclose(values, 3.0 * np.exp(_FIRST), rtol=1e-6)


def test_captured_data_count_by_content(known):
  def of(data):
    captured = tf.constant(data)
    return _traced(lambda x: x + captured)

  first, again, other = of([1.0, 2.0]), of([1.0, 2.0]), of([1.0, 3.0])
  assert known.same(first, True) is first
  assert known.same(again, True) is first
  assert known.same(other, True) is other


@pytest.mark.parametrize(
  'argument', [tf.ones([3]), {'x': _FIRST}, {'y': _FIRST}]
)
def test_shapes_and_names_of_arguments_count(known, argument):
  def doubled(argument):
    (x,) = tf.nest.flatten(argument)
    return 2.0 * x

  for before in (_FIRST, {'z': _FIRST}):
    known.same(_traced(doubled, before), True)
  other = _traced(doubled, argument)
  assert known.same(other, True) is other
  assert known.same(_traced(doubled, argument), True) is other


def test_what_may_change_without_its_program_is_never_shared(known):
  variable = tf.Variable(1.0)
  table = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer([0], [1.0]), 0.0
  )
  functions = (
    lambda x: x * variable,
    lambda x: x * tf.numpy_function(lambda: np.float32(2.0), [], tf.float32),
    lambda x: x * table.lookup(tf.constant(0)),
  )
  for function in functions:
    first, again = _traced(function), _traced(function)
    assert known.same(first, False) is first
    assert known.same(again, False) is again


def test_few_are_kept_and_none_that_is_large(known, monkeypatch):
  first = _scaled(0.0)
  known.same(first, True)
  for scale in range(1, known_programs._MOST + 1):
    known.same(_scaled(float(scale)), True)
  again = _scaled(0.0)
  assert known.same(again, True) is again
  monkeypatch.setattr(known_programs, '_LARGEST', 100)
  once_more = _scaled(0.0)
  assert known.same(once_more, True) is once_more


@pytest.fixture
def reused(monkeypatch):
  """Returns a list that says of each program whether it was known."""
  found = []
  same = known_programs.Known.same

  def spy(self, concrete, jit_compile):
    function = same(self, concrete, jit_compile)
    found.append(function is not concrete)
    return function

  monkeypatch.setattr(known_programs.Known, 'same', spy)
  return found


@pytest.mark.full
def test_a_kernel_built_anew_is_known_unless_its_data_changed(reused):
  data = [0.7]

  def draws():
    kernel = tfpa.gradient_adaptive_random_walk(
      lambda x: -0.5 * tf.reduce_sum((x - data[0]) ** 2, axis=-1), 5
    )
    start = tf.zeros([2, 3])
    return tfpa.sample(kernel, start, 50, seed=1, progress=False).states

  first, again = draws(), draws()
  assert reused == [False, True]
  np.testing.assert_array_equal(first, again)
  data[0] = 5.7
  moved = draws()
  assert reused == [False, True, False]
  assert np.mean(moved) > np.mean(first) + 1.0
