"""Banded solves and products: against dense algebra, in every mode."""

import functools

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

from tests.contracts import targets
from tfp_adaptive.linalg import banded

each_order = pytest.mark.parametrize('order', [0, 1, 3])
each_side = pytest.mark.parametrize('adjoint', [False, True])


def _bands(size, order, seed=0, dtype=np.float64):
  rng = np.random.default_rng(seed)
  diag = rng.uniform(0.5, 2.0, size=size)
  rest = [0.5 * rng.normal(size=size - k) for k in range(1, order + 1)]
  return tuple(tf.constant(band.astype(dtype)) for band in (diag, *rest))


def _dense(bands):
  return sum(np.diag(band, k) for k, band in enumerate(bands))


def _in_mode(function, mode):
  if mode == 'eager':
    return function
  return tf.function(function, jit_compile=mode == 'xla', autograph=False)


@pytest.mark.parametrize('mode', targets.MODES)
@each_side
@each_order
def test_solves_and_products_are_those_of_the_dense_matrix(
  order, adjoint, mode
):
  bands = _bands(7, order)
  matrix = _dense(bands).T if adjoint else _dense(bands)
  rows = np.random.default_rng(1).normal(size=(3, 7))
  solved, product = _in_mode(
    lambda bands, rows: (
      banded.solve(bands, rows, adjoint),
      banded.multiply(bands, rows, adjoint),
    ),
    mode,
  )(bands, tf.constant(rows))
  np.testing.assert_allclose(
    solved, np.linalg.solve(matrix, rows.T).T, rtol=1e-10
  )
  np.testing.assert_allclose(product, rows @ matrix.T, rtol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize('mode', ['eager', 'xla'])
@each_side
def test_gradients_of_a_solve_are_finite_differences_twice(adjoint, mode):
  rows = tf.constant(np.random.default_rng(1).normal(size=(2, 5)))
  point = [rows, *_bands(5, 2)]

  def value(rows, *bands):
    return tf.reduce_sum(tf.sin(banded.solve(bands, rows, adjoint)))

  def gradients(function, *point):
    with tf.GradientTape() as tape:
      tape.watch(point)
      result = function(*point)
    return tape.gradient(result, point)

  def slope(*point):
    found = gradients(value, *point)
    return tf.add_n([tf.reduce_sum(tf.cos(g)) for g in found])

  for function in (value, slope):
    found = _in_mode(functools.partial(gradients, function), mode)(*point)
    _, expected = tf.test.compute_gradient(function, point, delta=1e-5)
    for one, other in zip(found, expected):
      np.testing.assert_allclose(np.ravel(one), other[0], rtol=1e-6, atol=1e-7)


@pytest.mark.full
@pytest.mark.parametrize('parallel', [False, True])
@pytest.mark.parametrize('mode', targets.MODES)
def test_long_paths_that_decay_or_grow_are_as_stable_as_substitution(
  mode, parallel
):
  size = 400
  rows = np.random.default_rng(1).normal(size=(2, size)).astype(np.float32)
  for coupling in (-0.999, 1e-20, 1.1):
    bands = (tf.ones([size]), tf.fill([size - 1], tf.constant(coupling)))
    solve = functools.partial(banded.solve, parallel=parallel)
    solved = _in_mode(solve, mode)(bands, tf.constant(rows))
    compact = np.stack([np.pad(bands[1], (1, 0)), bands[0]])
    expected = scipy.linalg.solve_banded(
      (0, 1), compact.astype(np.float64), rows.T.astype(np.float64)
    ).T
    np.testing.assert_allclose(
      solved, expected, rtol=1e-3, atol=1e-5 * np.max(np.abs(expected))
    )


def test_outer_products_are_the_bands_of_the_dense_one():
  rng = np.random.default_rng(3)
  left, right = rng.normal(size=(2, 4, 6))
  full = left.T @ right
  for k, band in enumerate(
    banded.outer(tf.constant(left), tf.constant(right), 3)
  ):
    np.testing.assert_allclose(band, np.diag(full, k), rtol=1e-12)
