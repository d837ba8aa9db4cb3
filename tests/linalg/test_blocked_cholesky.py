"""Blocked Cholesky factors are numpy's."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.linalg import blocked_cholesky


def _positive_definite(shape, size):
  rows = np.random.default_rng(size).normal(size=(*shape, size, size))
  return rows @ np.swapaxes(rows, -1, -2) + 0.1 * np.eye(size)


# Below a block, one, above, and several of them.
@pytest.mark.parametrize('size', [1, 5, 8, 13, 40])
@pytest.mark.parametrize('shape', [(), (3,), (2, 2)])
def test_factors_are_those_of_numpy(shape, size):
  matrix = _positive_definite(shape, size)
  factor = blocked_cholesky.cholesky(tf.constant(matrix))
  np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), atol=1e-10)


@pytest.mark.full
@pytest.mark.parametrize(
  'dtype, tolerance', [('float32', 1e-3), ('float64', 0)]
)
def test_compiled_factors_are_the_eager_ones(dtype, tolerance):
  matrix = tf.constant(_positive_definite((2,), 21), dtype)
  compiled = tf.function(
    blocked_cholesky.cholesky, jit_compile=True, autograph=False
  )
  np.testing.assert_allclose(
    compiled(matrix), blocked_cholesky.cholesky(matrix), atol=tolerance + 1e-10
  )


@pytest.mark.full
@pytest.mark.parametrize('jit_compile', [False, True])
def test_an_indefinite_matrix_gives_nan(jit_compile):
  matrix = np.eye(20)
  matrix[11, 11] = -1.0
  factor = tf.function(
    blocked_cholesky.cholesky, jit_compile=jit_compile, autograph=False
  )(tf.constant(np.stack([matrix, np.eye(20)])))
  assert np.isnan(factor[0].numpy()).any()
  np.testing.assert_allclose(factor[1], np.eye(20))  # The other is not hit.


@pytest.mark.full
@pytest.mark.parametrize('size, rank', [(3, 1), (8, 2), (21, 5), (13, 40)])
@pytest.mark.parametrize('jit_compile', [False, True])
def test_updates_are_factors_of_the_sum(size, rank, jit_compile):
  matrix = _positive_definite((), size)
  columns = np.random.default_rng(1).normal(size=(size, rank))
  update = tf.function(
    blocked_cholesky.update, jit_compile=jit_compile, autograph=False
  )
  np.testing.assert_allclose(
    update(tf.constant(np.linalg.cholesky(matrix)), tf.constant(columns)),
    np.linalg.cholesky(matrix + columns @ columns.T),
    atol=1e-10,
  )
