"""States of any structure become one matrix, and come back."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.core import state_parts

Pair = collections.namedtuple('Pair', ['first', 'second'])


def _range(shape, start=0):
  size = int(np.prod(shape))
  return tf.constant(np.arange(start, start + size).reshape(shape) * 1.0)


STATES = {
  'tensor': (1, _range([4, 3])),
  'scalar per chain': (1, _range([4])),
  'no chains': (0, _range([3])),
  'scalar, no chains': (0, _range([])),
  'matrix': (1, _range([4, 2, 3])),
  'list': (1, [_range([4]), _range([4, 2], 10), _range([4, 1, 2], 30)]),
  'dict': (2, {'b': _range([2, 3]), 'a': _range([2, 3, 2], 10)}),
  'namedtuple': (1, Pair(_range([4]), _range([4, 2], 10))),
}


@pytest.mark.parametrize('name', STATES)
def test_flatten_and_unflatten_are_inverse(name):
  num_chain_dims, state = STATES[name]
  flat = state_parts.flatten(state, num_chain_dims)
  assert flat.shape.rank == num_chain_dims + 1
  back = state_parts.unflatten_like(flat, state, num_chain_dims)
  tf.nest.assert_same_structure(state, back)
  for one, two in zip(tf.nest.flatten(state), tf.nest.flatten(back)):
    assert one.shape == two.shape
    np.testing.assert_array_equal(one, two)


def test_parts_are_concatenated_in_the_order_of_nest():
  _, state = STATES['dict']  # Sorted keys: `a` comes first.
  flat = state_parts.flatten(state, 2)
  np.testing.assert_array_equal(flat[..., :2], state['a'])
  np.testing.assert_array_equal(flat[..., 2], state['b'])


def test_a_part_without_gradient_is_named():
  with pytest.raises(ValueError, match=r'no gradient .* part\(s\) \[1\]'):
    state_parts.value_and_gradient(
      lambda x, y: -(x**2) - tf.stop_gradient(y), [tf.ones([]), tf.ones([])]
    )


def test_two_dtypes_are_refused_by_name():
  with pytest.raises(TypeError, match='float32.*float64'):
    state_parts.flatten([tf.ones([2]), tf.ones([2], tf.float64)], 1)
