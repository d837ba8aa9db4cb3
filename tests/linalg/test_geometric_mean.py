"""The geometric mean against its equation and closed forms."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import targets
from tfp_adaptive.linalg import geometric_mean
from tfp_adaptive.linalg.symmetric import symmetric_part

_SIZE = 5


@functools.cache
def _compiled(jit_compile):
  return tf.function(
    geometric_mean.factor_of_mean, autograph=False, jit_compile=jit_compile
  )


def _mean(covariance, precision, dtype=np.float64, jit_compile=False):
  factor = _compiled(jit_compile)(
    tf.constant(covariance, dtype), tf.constant(precision, dtype)
  ).numpy()
  np.testing.assert_array_equal(factor, np.tril(factor))
  return factor @ factor.T


def _matrices(condition):
  one = targets.correlated_factor(_SIZE, condition, seed=1)
  other = targets.correlated_factor(_SIZE, condition, seed=2)
  return one @ one.T, other @ other.T


@pytest.mark.full
@pytest.mark.parametrize('jit_compile', [False, True])
@pytest.mark.parametrize('condition', [10.0, 1e5])
def test_it_solves_its_equation(condition, jit_compile):
  covariance, precision = _matrices(condition)
  mean = _mean(covariance, precision, jit_compile=jit_compile)
  np.testing.assert_allclose(
    mean @ precision @ mean, covariance, rtol=1e-6, atol=1e-9
  )
  # Power: neither of the two between which it lies does.
  inverse = np.linalg.inv(precision)
  for other in (covariance, inverse):
    assert np.max(np.abs(other @ precision @ other - covariance)) > 0.1


@pytest.mark.parametrize('seed', range(8))
@pytest.mark.parametrize('condition, tolerance', [(1e6, 1e-6), (1e10, 1e-2)])
def test_short_directions_are_as_right_as_long_ones(condition, tolerance, seed):
  # Two matrices with nothing in common: X Y has the square of their condition.
  rng = np.random.default_rng(seed)
  matrices = []
  for _ in range(2):
    axes, _ = np.linalg.qr(rng.normal(size=[_SIZE, _SIZE]))
    matrix = (axes * np.geomspace(1.0, condition, _SIZE)) @ axes.T
    matrices.append(0.5 * (matrix + matrix.T))
  mean = _mean(*matrices)
  root = np.linalg.cholesky(matrices[0])
  solved = np.linalg.solve(root, mean @ matrices[1] @ mean)
  np.testing.assert_allclose(
    np.linalg.solve(root, solved.T), np.eye(_SIZE), atol=tolerance
  )


def test_where_both_commute_it_is_the_root_of_the_ratio():
  mean = _mean(np.diag([1.0, 4.0, 9.0]), np.diag([1.0, 1.0, 1e-12]))
  np.testing.assert_allclose(mean, np.diag([1.0, 2.0, 3e6]), rtol=1e-9)


def test_coordinates_may_have_any_units():
  covariance, precision = _matrices(100.0)
  units = np.geomspace(1e-8, 1e8, _SIZE)
  scaled = _mean(
    units[:, np.newaxis] * covariance * units,
    precision / units / units[:, np.newaxis],
  )
  np.testing.assert_allclose(
    scaled / units / units[:, np.newaxis],
    _mean(covariance, precision),
    rtol=1e-8,
    atol=1e-10,
  )


@pytest.mark.parametrize('is_first', [True, False])
def test_what_is_not_positive_definite_gives_nan(is_first):
  good, _ = _matrices(10.0)
  bad = good - 2.0 * np.linalg.eigvalsh(good)[0] * np.eye(_SIZE)
  pair = (bad, good) if is_first else (good, bad)
  factor = _compiled(False)(*(tf.constant(m) for m in pair)).numpy()
  assert np.any(np.isnan(factor))


# (A + A^T) / 2, where TensorFlow's own graph optimizer gets it wrong.


def _in_a_loop(function, value):
  @tf.function(autograph=False)
  def run(value):
    return tf.while_loop(
      lambda i, x: i < 3, lambda i, x: (i + 1, function(x)), (0, value)
    )[1]

  return run(tf.constant(value)).numpy()


@pytest.mark.full
@pytest.mark.parametrize('shape', [(1, 1), (3, 1, 1), (2, 2), (3, 4, 4)])
def test_it_is_half_the_sum_in_a_loop_without_xla(shape):
  matrix = np.random.default_rng(0).normal(size=shape)
  expected = (matrix + np.swapaxes(matrix, -1, -2)) / 2
  np.testing.assert_allclose(symmetric_part(matrix), expected)
  np.testing.assert_allclose(_in_a_loop(symmetric_part, matrix), expected)
