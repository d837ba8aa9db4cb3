"""Digests of programs: equal for the same computation, and only for it."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.driver import program_digest

_X = np.arange(6.0).reshape(3, 2)


def _program(function, **options):
  traced = tf.function(function, autograph=False)
  concrete = traced.get_concrete_function(tf.TensorSpec([3, 2], tf.float64))
  return program_digest.describe(concrete, **options)


def _looped(x, num_steps=5, factor=0.5):
  return tf.while_loop(
    lambda i, _: i < num_steps,
    lambda i, y: (i + 1, factor * tf.sin(y)),
    (0, x),
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
  'a number in one of many branches': (
    _switched,
    lambda x: _switched(x, 4.0),
  ),
  'a slice': (_sliced, lambda x: _sliced(x, 1)),
  'a datum': (
    lambda x: x + _X,
    lambda x: x + np.where(_X == 3.0, 3.5, _X),
  ),
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
    child = subprocess.run(
      [sys.executable, '-c', _CHILD],
      env=dict(
        os.environ,
        PYTHONPATH=str(pathlib.Path(__file__).parents[2]),
        PYTHONHASHSEED=hash_seed,
      ),
      capture_output=True,
      text=True,
      check=True,
    )
    assert child.stdout.split() == expected
