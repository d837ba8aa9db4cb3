"""Banded Cholesky factors: gradients, batches and failure."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.linalg import banded
from tfp_adaptive.linalg import banded_cholesky
from tfp_adaptive.linalg import banded_scan

_D = 7
_ORDER = 2


def _matrices(num, seed=0):
  rng = np.random.default_rng(seed)
  factor = np.zeros((num, _D, _D))
  for k in range(_ORDER + 1):
    rows = np.arange(_D - k)
    factor[:, rows, rows + k] = rng.normal(size=(num, _D - k))
  return np.swapaxes(factor, -1, -2) @ factor + 0.5 * np.eye(_D)


def _bands(matrices):
  return tuple(
    tf.constant(np.diagonal(matrices, k, -2, -1).copy())
    for k in range(_ORDER + 1)
  )


def _upper(factor):
  """Returns the dense U of a factor."""
  rows = tf.eye(_D, dtype=tf.float64)[:, tf.newaxis]
  columns = banded_cholesky.multiply_factor(factor, rows)
  return np.moveaxis(columns, 0, -1)


@pytest.mark.parametrize('parallel', [False, True])
def test_factors_are_the_upper_cholesky_factors(parallel):
  matrices = _matrices(3)
  factor = banded_cholesky.factorize(_bands(matrices), parallel)
  expected = np.swapaxes(np.linalg.cholesky(matrices), -1, -2)
  np.testing.assert_allclose(_upper(factor), expected, atol=1e-12)


@pytest.mark.parametrize('parallel', [False, True])
def test_a_matrix_that_fails_leaves_its_neighbors_alone(parallel):
  matrices = _matrices(5)
  matrices[1] -= 2.0 * np.eye(_D)
  matrices[3, 2, 2] = np.nan
  factor = banded_cholesky.factorize(_bands(matrices), parallel)
  good = np.array([0, 2, 4])
  expected = np.swapaxes(np.linalg.cholesky(matrices[good]), -1, -2)
  found = _upper(factor)
  np.testing.assert_allclose(found[good], expected, atol=1e-12)
  for bad in (1, 3):
    assert np.isneginf(factor.log_det[bad])
    np.testing.assert_array_equal(found[bad], np.eye(_D))


def test_a_zero_pivot_is_a_failure_without_nan():
  bands = (tf.constant([0.0, 1.0, 2.0]), tf.constant([1.0, 0.1]))
  for parallel in (False, True):
    factor = banded_cholesky.factorize(bands, parallel)
    assert np.isneginf(factor.log_det)
    assert all(np.all(np.isfinite(x)) for x in (factor.pivots, *factor.bands))


def test_gradients_of_a_factor_are_finite_differences():
  bands = _bands(_matrices(2))
  weights = [
    np.random.default_rng(k).normal(size=b.shape) for k, b in enumerate(bands)
  ]

  def value(*bands):
    factor = banded_cholesky.factorize(bands, parallel=False)
    total = tf.reduce_sum(tf.sin(factor.log_det))
    for weight, x in zip(weights, (factor.pivots, *factor.bands)):
      total += tf.reduce_sum(weight * x)
    rows = banded_cholesky.solve(factor, tf.constant(weights[0]), False)
    return total + tf.reduce_sum(tf.sin(rows))

  found, expected = tf.test.compute_gradient(value, bands, delta=1e-5)
  for one, other in zip(found, expected):
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize('adjoint', [False, True])
@pytest.mark.parametrize('shared', [False, True])
def test_solves_by_scan_are_those_by_recursion(shared, adjoint):
  rng = np.random.default_rng(4)
  lead = () if shared else (3,)
  bands = (
    tf.constant(rng.uniform(0.5, 2.0, size=(*lead, _D))),
    *(tf.constant(rng.normal(size=(*lead, _D - k))) for k in (1, 2)),
  )
  rows = tf.constant(rng.normal(size=(3, _D)))
  expected = banded.solve(bands, rows, adjoint)
  found = banded_scan.substitute(bands, rows, adjoint)
  np.testing.assert_allclose(found, expected, rtol=1e-10)
  compiled = tf.function(banded.solve, jit_compile=True, autograph=False)
  np.testing.assert_allclose(
    compiled(bands, rows, adjoint), expected, rtol=1e-10
  )
