"""Factors of every size are numpy's, compiled or not."""

import numpy as np
import pytest
import tensorflow as tf

from experiments.targets.blocked_cholesky import cholesky_with_inverse


def _positive_definite(shape, size):
  rows = np.random.default_rng(size).normal(size=(*shape, size, size))
  return rows @ np.swapaxes(rows, -1, -2) + 0.1 * np.eye(size)


# Below, at and above a block; above two loops.
@pytest.mark.parametrize('size', [3, 16, 37, 131])
def test_factor_and_inverse_are_those_of_numpy(size):
  matrix = _positive_definite((2,), size)
  factor, inverse = cholesky_with_inverse(tf.constant(matrix))
  expected = np.linalg.cholesky(matrix)
  np.testing.assert_allclose(factor, expected, atol=1e-10 * size)
  np.testing.assert_allclose(inverse, np.linalg.inv(expected), atol=1e-8)


@pytest.mark.full
def test_compiled_factors_are_the_eager_ones():
  matrix = tf.constant(_positive_definite((), 37), tf.float32)
  compiled = tf.function(
    cholesky_with_inverse, jit_compile=True, autograph=False
  )
  for actual, expected in zip(
    compiled(matrix), cholesky_with_inverse(matrix), strict=True
  ):
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)


def test_an_indefinite_matrix_gives_nan():
  factor, _ = cholesky_with_inverse(-tf.eye(20, dtype=tf.float64))
  assert np.isnan(factor.numpy()).any()
