"""What counts as a namedtuple."""

import collections

import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import structures

_Pair = collections.namedtuple('_Pair', ['a', 'b'])


def _struct_tuple():
  root = tfp.distributions.JointDistributionCoroutine.Root

  def model():
    yield root(tfp.distributions.Normal(0.0, 1.0, name='a'))

  return tfp.distributions.JointDistributionCoroutine(model).event_shape


@pytest.mark.parametrize('make', [lambda: _Pair(1, 2), _struct_tuple])
def test_a_namedtuple_has_names_whoever_made_it(make):
  value = make()
  assert structures.is_namedtuple(value)
  assert not structures.is_sequence(value)
  assert list(structures.as_dict(value)) == list(structures.fields(value))


@pytest.mark.parametrize('value', [(1, 2), [1], {'a': 1}, None, tf.zeros([2])])
def test_other_values_have_no_names(value):
  assert not structures.is_namedtuple(value)
  assert structures.is_sequence(value) == isinstance(value, (list, tuple))
  assert structures.as_dict(value) is value
  assert structures.fields(value) == ()
