"""Digests of programs: equal for the same computation, and only for it."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tests.contracts import targets
from tests.driver import child
from tfp_adaptive import _version
from tfp_adaptive.driver import known_programs
from tfp_adaptive.driver import program_digest
from tfp_adaptive.driver import run_identity

_X = np.arange(6.0).reshape(3, 2)


def _program(function, **options):
  traced = tf.function(function, autograph=False)
  concrete = traced.get_concrete_function(tf.TensorSpec([3, 2], tf.float64))
  return program_digest.describe(concrete, **options)


def _looped(x, num_steps=5, factor=0.5):
  return tf.while_loop(
    lambda i, _: i < num_steps, lambda i, y: (i + 1, factor * tf.sin(y)), (0, x)
  )[1]


def _branched(x, rest=2.0):
  return tf.cond(tf.reduce_sum(x) > 0.0, lambda: x + 1.0, lambda: x * rest)


def _switched(x, last=3.0):
  branches = [lambda: x + 1.0, lambda: x * 2.0, lambda: x * last]
  return tf.switch_case(tf.cast(x[0, 0], tf.int32), branches)


def _sliced(x, begin=0):
  return x[begin : begin + 1]


CHANGES = {
  'an op': (lambda x: tf.sin(x), lambda x: tf.cos(x)),
  'a number': (lambda x: x + 1.0, lambda x: x + (1.0 + 1e-15)),
  'a number in a loop': (_looped, lambda x: _looped(x, factor=0.25)),
  'the length of a loop': (_looped, lambda x: _looped(x, 6)),
  'a number in a branch': (_branched, lambda x: _branched(x, 3.0)),
  'a number in one of many branches': (_switched, lambda x: _switched(x, 4.0)),
  'a slice': (_sliced, lambda x: _sliced(x, 1)),
  'a datum': (lambda x: x + _X, lambda x: x + np.where(_X == 3.0, 3.5, _X)),
  'the order of a difference': (lambda x: x - _X, lambda x: _X - x),
  'an axis': (lambda x: tf.cumsum(x, 0), lambda x: tf.cumsum(x, 1)),
  'a dtype': (
    lambda x: tf.cast(tf.cast(x, tf.float32), tf.float64),
    lambda x: tf.cast(tf.cast(x, tf.float16), tf.float64),
  ),
  'the seed of an op': (
    lambda x: x + tf.random.normal([], seed=1, dtype=x.dtype),
    lambda x: x + tf.random.normal([], seed=2, dtype=x.dtype),
  ),
}


@pytest.mark.parametrize('name', CHANGES)
def test_another_computation_has_another_digest(name):
  one, two = (_program(function) for function in CHANGES[name])
  assert one.digest != two.digest
  assert one.digest == _program(CHANGES[name][0]).digest


def test_captured_tensors_and_variables_count_by_content():
  def adding(value):
    return _program(lambda x: x + value).digest

  assert adding(tf.constant(_X)) == adding(tf.constant(_X.copy()))
  assert adding(tf.constant(_X)) != adding(tf.constant(_X + 1e-12))
  assert adding(tf.Variable(_X)) == adding(tf.Variable(_X.copy()))
  assert adding(tf.Variable(_X)) != adding(tf.Variable(_X + 1e-12))


def test_names_order_and_what_no_output_needs_do_not_count():
  def one(x):
    a = tf.sin(x, name='first')
    return a + tf.cos(x)

  def two(x):
    b = tf.cos(x, name='a_name')
    tf.exp(x)
    with tf.device('CPU:0'):
      return tf.sin(x) + b

  assert _program(one).digest == _program(two).digest


def test_what_holds_results_may_be_of_any_length():
  def held(size):
    def function(x):
      array = tf.TensorArray(x.dtype, size=size, element_shape=x.shape)
      _, array = tf.while_loop(
        lambda i, _: i < 2, lambda i, a: (i + 1, a.write(i, x)), (0, array)
      )
      return array.stack()

    return function

  ops = ('TensorListReserve', 'TensorListStack')
  one, two = (_program(held(n), ignored_ops=ops).digest for n in (4, 7))
  assert one == two
  assert _program(held(4)).digest != _program(held(7)).digest


def test_the_order_of_side_effects_does_not_count():
  def one(x):
    doubled = tf.py_function(lambda v: 2.0 * v, [x], x.dtype)
    return tf.py_function(lambda v: v + 1.0, [tf.sin(x)], x.dtype) + doubled

  # TensorFlow keeps them in a set, whose order differs from trace to trace.
  assert len({_program(one).digest for _ in range(8)}) == 1


def test_python_in_a_program_is_reported():
  plain = _program(lambda x: tf.sin(x))
  python = _program(lambda x: tf.py_function(lambda v: v, [x], x.dtype))
  assert python.calls_python and not plain.calls_python


_CHILD = """
import tensorflow as tf
from tests.driver import test_program_digest as here
import tfp_adaptive as tfpa

tf.exp(tf.constant(1.0))
print(here._program(here._looped).digest)
print(here._program(here.gradient_of_many_terms).digest)
"""


def gradient_of_many_terms(x):
  """A gradient that the tape sums from many terms."""
  with tf.GradientTape() as tape:
    tape.watch(x)
    terms = [tf.reduce_sum(f(x)) for f in (tf.sin, tf.cos, tf.exp, tf.tanh)]
    terms += [tf.reduce_sum(_looped(x)), tf.reduce_sum(_branched(x))]
    total = tf.add_n(terms) ** 2
  return tape.gradient(total, x)


@pytest.mark.full
def test_another_process_computes_the_same_digests():
  expected = [
    _program(function).digest for function in (_looped, gradient_of_many_terms)
  ]
  for hash_seed in ('1', '2'):
    found = child.run('-c', _CHILD, PYTHONHASHSEED=hash_seed)
    assert found.split() == expected


# What must agree for a run to be continued.


_Plan = collections.namedtuple('Plan', ['num_results'])


def _described():
  kernel = tfp.mcmc.RandomWalkMetropolis(targets.standard_normal)
  state = tf.zeros([3, 2])
  program = program_digest.Program('12', {}, False)
  return run_identity.describe(
    kernel, _Plan(5), (1, 2), False, state, state, None, program
  )


@pytest.mark.parametrize('package', [tf, tfp, np, _version])
def test_other_versions_are_another_run(monkeypatch, package):
  saved = _described()
  assert run_identity.differences(saved, _described()) == []
  monkeypatch.setattr(package, '__version__', '0.0')
  (words,) = run_identity.differences(saved, _described())
  assert words.startswith('versions (saved ')


# What is known again runs without a compilation; what differs never does.


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
