"""Draws are the same in every mode, independent, and of the right law."""

import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tfp_adaptive.core import random

_SEED = (17, 4)
_SIZE = 200_000


each_dtype = pytest.mark.parametrize('dtype', [tf.float32, tf.float64])


def _in_modes(function):
  return [
    np.asarray(run())
    for run in (
      function,
      tf.function(function, autograph=False),
      tf.function(function, autograph=False, jit_compile=True),
    )
  ]


@each_dtype
def test_uniforms_have_the_same_bits_eager_in_a_graph_and_under_xla(dtype):
  eager, graph, xla = _in_modes(
    lambda: random.uniform([1001], dtype, tf.constant(_SEED))
  )
  np.testing.assert_array_equal(eager, graph)
  np.testing.assert_array_equal(eager, xla)


@each_dtype
def test_normals_agree_to_rounding_in_every_mode(dtype):
  eager, graph, xla = _in_modes(
    lambda: random.normal([1001], dtype, tf.constant(_SEED))
  )
  # A few roundings of values up to 5.
  atol = 32 * np.finfo(eager.dtype).eps
  np.testing.assert_allclose(graph, eager, rtol=0.0, atol=atol)
  np.testing.assert_allclose(xla, eager, rtol=0.0, atol=atol)


def test_seeds_have_the_same_bits_in_every_mode():
  def seeds():
    seed = random.sanitize(tf.constant(_SEED))
    return tf.stack([*random.split(seed, 3), random.fold_in(seed, 5)])

  eager, graph, xla = _in_modes(seeds)
  np.testing.assert_array_equal(eager, graph)
  np.testing.assert_array_equal(eager, xla)
  assert np.all(eager >= 0)


@each_dtype
def test_uniforms_are_uniform_and_never_zero(dtype):
  draws = random.uniform([_SIZE], dtype, tf.constant(_SEED)).numpy()
  assert draws.min() > 0.0 and draws.max() <= 1.0
  assert stats.kstest(draws.astype(np.float64), 'uniform').pvalue > 1e-3


@each_dtype
def test_normals_are_normal_in_moments_law_and_tails(dtype):
  draws = random.normal([_SIZE], dtype, tf.constant(_SEED)).numpy()
  draws = draws.astype(np.float64)
  # Moments 1 ... 4 of N(0, 1) and the variances of their estimates, times n.
  for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
    standard_error = math.sqrt(variance / _SIZE)
    assert abs(np.mean(draws**power) - mean) < 4 * standard_error
  assert stats.kstest(draws, 'norm').pvalue > 1e-3
  for threshold in (3.0, 4.0):
    for tail in (np.mean(draws > threshold), np.mean(draws < -threshold)):
      prob = stats.norm.sf(threshold)
      standard_error = math.sqrt(prob / _SIZE)
      assert abs(tail - prob) < 4 * standard_error


def test_the_law_tests_notice_a_wrong_law():
  # The negative control: a normal with a standard deviation of 1.01.
  draws = 1.01 * random.normal([_SIZE], tf.float64, tf.constant(_SEED)).numpy()
  standard_error = math.sqrt(2.0 / _SIZE)
  assert abs(np.mean(draws**2) - 1.0) > 4 * standard_error


def test_fold_in_never_collides_over_ten_thousand_steps():
  seed = tf.constant(_SEED)

  @tf.function(autograph=False, jit_compile=True)
  def all_seeds():
    array = tf.TensorArray(tf.int32, 10_001, element_shape=[2])
    _, array = tf.while_loop(
      lambda i, _: i <= 10_000,
      lambda i, a: (i + 1, a.write(i, random.fold_in(seed, i))),
      (0, array),
    )
    return array.stack()

  words = all_seeds().numpy()
  assert len(np.unique(words, axis=0)) == len(words)
  np.testing.assert_array_equal(words[7], random.fold_in(seed, 7))


def test_split_seeds_draw_independently():
  one, two, three = random.split(tf.constant(_SEED), 3)
  draws = [random.normal([_SIZE], tf.float64, s).numpy() for s in (one, two)]
  # Correlation of independent normals: standard error 1 / sqrt(n).
  assert abs(np.mean(draws[0] * draws[1])) < 4 / math.sqrt(_SIZE)
  again = random.normal([_SIZE], tf.float64, three).numpy()
  assert np.any(again != draws[0])


def test_consecutive_fold_ins_draw_independently():
  seed = tf.constant(_SEED)
  draws = np.array(
    [
      random.normal([2000], tf.float64, random.fold_in(seed, t))
      for t in range(20)
    ]
  )
  lagged = np.mean(draws[1:] * draws[:-1])
  assert abs(lagged) < 4 / math.sqrt(19 * 2000)


@pytest.mark.parametrize(
  'pair', [(1, 2), [1, 2], np.array([1, 2], np.int32)], ids=str
)
def test_pairs_of_any_kind_are_the_same_seed(pair):
  np.testing.assert_array_equal(random.sanitize(pair), [1, 2])
