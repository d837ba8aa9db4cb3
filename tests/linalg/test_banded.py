"""Banded solves and products: against dense algebra, in every mode."""

import functools

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

from tests.contracts import targets
from tfp_adaptive.linalg import banded
from tfp_adaptive.linalg import banded_cholesky
from tfp_adaptive.linalg import banded_scan
from tfp_adaptive.linalg import markov_factor

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


# Banded Cholesky factors: gradients, batches and failure.


_D = 7
_ORDER = 2


def _matrices(num, seed=0):
  rng = np.random.default_rng(seed)
  factor = np.zeros((num, _D, _D))
  for k in range(_ORDER + 1):
    rows = np.arange(_D - k)
    factor[:, rows, rows + k] = rng.normal(size=(num, _D - k))
  return np.swapaxes(factor, -1, -2) @ factor + 0.5 * np.eye(_D)


def _bands_cholesky(matrices):
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
  factor = banded_cholesky.factorize(_bands_cholesky(matrices), parallel)
  expected = np.swapaxes(np.linalg.cholesky(matrices), -1, -2)
  np.testing.assert_allclose(_upper(factor), expected, atol=1e-12)


@pytest.mark.parametrize('parallel', [False, True])
def test_a_matrix_that_fails_leaves_its_neighbors_alone(parallel):
  matrices = _matrices(5)
  matrices[1] -= 2.0 * np.eye(_D)
  matrices[3, 2, 2] = np.nan
  factor = banded_cholesky.factorize(_bands_cholesky(matrices), parallel)
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
  bands = _bands_cholesky(_matrices(2))
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


# The factor of a Markov path's precision, against dense algebra.


_SIZE = 9


def _path(rng, slack_scale=0.1):
  """Returns r, w and s of three paths, one with a cut, and dense P."""
  slack = slack_scale * rng.exponential(size=(3, _SIZE))
  weight = rng.exponential(size=(3, _SIZE))
  weight[:, -1] = weight[0, 3] = 0.0
  sign = rng.choice([-1.0, 1.0], size=(3, _SIZE))
  dense = np.zeros((3, _SIZE, _SIZE))
  for n in range(3):
    dense[n] = np.diag(slack[n])
    for t in range(_SIZE - 1):
      step = np.zeros(_SIZE)
      step[t], step[t + 1] = 1.0, -sign[n, t]
      dense[n] += weight[n, t] * np.outer(step, step)
  return (slack, weight, sign), dense


@pytest.mark.parametrize('jit_compile', [False, True])
def test_it_is_the_cholesky_factor_and_solves(jit_compile):
  rng = np.random.default_rng(0)
  path, dense = _path(rng)
  rows = rng.normal(size=(3, _SIZE))

  @tf.function(jit_compile=jit_compile, autograph=False)
  def run(rows, *path):
    lower = markov_factor.factor(*path)
    return (
      *lower,
      markov_factor.solve(lower, rows),
      markov_factor.solve_adjoint(lower, rows),
    )

  diagonal, below, solved, adjoint = run(*map(tf.constant, (rows, *path)))
  exact = np.linalg.cholesky(dense)
  np.testing.assert_allclose(
    diagonal, np.diagonal(exact, axis1=1, axis2=2), rtol=1e-12
  )
  np.testing.assert_allclose(
    below[:, :-1], np.diagonal(exact, -1, 1, 2), atol=1e-12
  )
  np.testing.assert_array_equal(below[:, -1], 0.0)
  np.testing.assert_allclose(
    solved, np.linalg.solve(exact, rows[..., np.newaxis])[..., 0], rtol=1e-8
  )
  np.testing.assert_allclose(
    adjoint,
    np.linalg.solve(np.swapaxes(exact, 1, 2), rows[..., np.newaxis])[..., 0],
    rtol=1e-8,
  )


def test_single_precision_keeps_a_slack_that_subtraction_loses():
  # sum_t log L[t, t]^2 = log |P|: with r_1 alone, |P| = r_1 prod w.
  slack = np.zeros((1, _SIZE), np.float32)
  slack[0, 0] = 1e-9
  weight = np.ones((1, _SIZE), np.float32)
  weight[0, -1] = 0.0
  ones = np.ones_like(weight)
  diagonal, _ = markov_factor.factor(*map(tf.constant, (slack, weight, ones)))
  assert np.sum(2.0 * np.log(diagonal)) == pytest.approx(np.log(1e-9), rel=1e-5)
  dense = 2.0 * np.eye(_SIZE) - np.eye(_SIZE, k=1) - np.eye(_SIZE, k=-1)
  dense[0, 0], dense[-1, -1] = 1.0 + 1e-9, 1.0
  lost = np.linalg.slogdet(dense.astype(np.float32))[1]
  assert not abs(lost - np.log(1e-9)) < 1.0


def _dense_markov(slack, weight, sign):
  """Returns P of paths [n, d], in differentiable algebra."""
  before = tf.concat([tf.zeros_like(weight[:, :1]), weight[:, :-1]], axis=-1)
  beside = -(sign * weight)[:, :-1]
  diagonals = tf.linalg.diag(slack + weight + before)
  return diagonals + tf.linalg.diag(beside, k=1) + tf.linalg.diag(beside, k=-1)


def _markov_value(rows, slack, weight, sign):
  lower = markov_factor.factor(slack, weight, sign)
  first = markov_factor.solve(lower, rows)
  second = markov_factor.solve_adjoint(lower, tf.sin(first))
  return tf.reduce_sum(tf.cos(second) + first**3 + tf.math.log(lower[0]))


def _dense_value(rows, slack, weight, sign):
  lower = tf.linalg.cholesky(_dense_markov(slack, weight, sign))
  solve = lambda x, adjoint: tf.linalg.triangular_solve(
    lower, x[..., tf.newaxis], adjoint=adjoint
  )[..., 0]
  first = solve(rows, False)
  second = solve(tf.sin(first), True)
  logs = tf.math.log(tf.linalg.diag_part(lower))
  return tf.reduce_sum(tf.cos(second) + first**3 + logs)


@pytest.mark.full
def test_gradients_of_first_and_second_order_are_those_of_dense_algebra():
  rng = np.random.default_rng(1)
  (slack, weight, sign), _ = _path(rng, slack_scale=1.0)
  point = [rng.normal(size=(3, _SIZE)), slack, weight]
  point = list(map(tf.constant, point))
  along = [tf.constant(rng.normal(size=(3, _SIZE))) for _ in point]
  # The last weight is none: dense algebra has no place for it.
  along[2] *= tf.constant([1.0] * (_SIZE - 1) + [0.0], tf.float64)

  def gradients(value):
    @tf.function(autograph=False)
    def run(*point):
      point = list(point)
      with tf.GradientTape() as outer:
        outer.watch(point)
        with tf.GradientTape() as inner:
          inner.watch(point)
          total = value(*point, tf.constant(sign))
        first = inner.gradient(total, point)
        slope = sum(tf.reduce_sum(f * a) for f, a in zip(first, along))
      return [g[:, :-1] for g in (*first, *outer.gradient(slope, point))]

    return run(*point)

  for got, exact in zip(gradients(_markov_value), gradients(_dense_value)):
    np.testing.assert_allclose(got, exact, rtol=1e-8, atol=1e-9)
