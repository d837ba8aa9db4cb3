"""Banded solves and products: against dense algebra, in every mode."""

import functools

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

from tests.contracts import targets
from tfp_adaptive.linalg import banded
from tfp_adaptive.preconditioners.factor_operator import FactorOperator

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


@pytest.mark.parametrize('order', [1, 2])
@each_side
def test_on_an_accelerator_no_loop_goes_over_the_coordinates(
  order, adjoint, monkeypatch
):
  bands = _bands(40, order)
  rows = tf.constant(np.random.default_rng(1).normal(size=(3, 40)))

  def lowered():
    solve = tf.function(
      lambda rows: banded.solve(bands, rows, adjoint),
      jit_compile=True,
      autograph=False,
    )
    text = solve.experimental_get_compiler_ir(rows)(
      stage='hlo', platform_name='GPU'
    )
    return solve(rows), text.count(' while(')

  def where(devices):
    monkeypatch.setattr(
      tf.config, 'list_logical_devices', lambda kind: [kind] * (kind in devices)
    )

  where(['CPU'])
  expected, num_loops = lowered()
  assert num_loops > 0
  where(['CPU', 'GPU'])
  found, num_loops = lowered()
  assert num_loops == 0
  np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.full
@pytest.mark.parametrize('mode', ['eager', 'xla'])
@each_side
def test_gradients_of_a_solve_are_finite_differences_twice(adjoint, mode):
  bands = _bands(5, 2)
  rows = tf.constant(np.random.default_rng(1).normal(size=(2, 5)))
  variables = (rows, *bands)

  def value(variables):
    return tf.reduce_sum(tf.sin(banded.solve(variables[1:], *variables[:1])))

  def value_adjoint(variables):
    return tf.reduce_sum(
      tf.sin(banded.solve(variables[1:], variables[0], True))
    )

  function = value_adjoint if adjoint else value

  def gradient(variables):
    with tf.GradientTape() as tape:
      tape.watch(variables)
      result = function(variables)
    return tape.gradient(result, variables)

  def second(variables):
    # Of a fixed direction of the gradient.
    with tf.GradientTape() as tape:
      tape.watch(variables)
      total = tf.add_n([tf.reduce_sum(tf.cos(g)) for g in gradient(variables)])
    return tape.gradient(total, variables)

  rng = np.random.default_rng(2)
  direction = [tf.constant(rng.normal(size=v.shape)) for v in variables]
  width = 1e-5
  up, down = (
    tuple(v + s * width * d for v, d in zip(variables, direction))
    for s in (1, -1)
  )
  for scalar, derivative in (
    (function, gradient),
    (
      lambda v: tf.add_n([tf.reduce_sum(tf.cos(g)) for g in gradient(v)]),
      second,
    ),
  ):
    slope = sum(
      tf.reduce_sum(g * d)
      for g, d in zip(_in_mode(derivative, mode)(variables), direction)
    )
    np.testing.assert_allclose(
      slope, (scalar(up) - scalar(down)) / (2 * width), rtol=1e-6
    )


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


@pytest.mark.parametrize('mode', targets.MODES)
def test_a_path_of_one_coordinate_is_divided(mode):
  bands = (tf.constant([2.0]), tf.zeros([0]))
  rows = tf.constant([[3.0], [5.0]])
  for adjoint in (False, True):
    solved = _in_mode(lambda r, a=adjoint: banded.solve(bands, r, a), mode)(
      rows
    )
    np.testing.assert_allclose(solved, [[1.5], [2.5]])


def test_unknown_static_shapes_solve_alike():
  bands, rows = _bands(6, 1), tf.ones([2, 6], tf.float64)
  unknown = tf.function(
    lambda diag, upper, rows: banded.solve((diag, upper), rows),
    input_signature=[
      tf.TensorSpec([None], tf.float64),
      tf.TensorSpec([None], tf.float64),
      tf.TensorSpec([None, None], tf.float64),
    ],
    autograph=False,
  )
  np.testing.assert_allclose(
    unknown(*bands, rows), banded.solve(bands, rows), rtol=1e-12
  )


def test_outer_products_are_the_bands_of_the_dense_one():
  rng = np.random.default_rng(3)
  left, right = rng.normal(size=(2, 4, 6))
  full = left.T @ right
  for k, band in enumerate(
    banded.outer(tf.constant(left), tf.constant(right), 3)
  ):
    np.testing.assert_allclose(band, np.diag(full, k), rtol=1e-12)


def test_an_operator_of_row_functions_takes_columns_and_batches():
  bands = _bands(4, 1)
  matrix = np.linalg.inv(_dense(bands))
  operator = FactorOperator(
    4,
    tf.float64,
    apply=lambda rows, adjoint: banded.solve(bands, rows, adjoint),
    unapply=lambda rows, adjoint: banded.multiply(bands, rows, adjoint),
    log_abs_det=lambda: -tf.reduce_sum(tf.math.log(bands[0])),
    name='banded',
  )
  columns = np.random.default_rng(1).normal(size=(2, 4, 3))
  np.testing.assert_allclose(operator.to_dense(), matrix, rtol=1e-10)
  np.testing.assert_allclose(
    operator.matmul(columns), matrix @ columns, rtol=1e-10
  )
  np.testing.assert_allclose(
    operator.matmul(columns, adjoint=True), matrix.T @ columns, rtol=1e-10
  )
  np.testing.assert_allclose(
    operator.solve(columns), np.linalg.solve(matrix, columns), rtol=1e-9
  )
  np.testing.assert_allclose(
    operator.log_abs_determinant(), np.linalg.slogdet(matrix)[1], rtol=1e-10
  )
  assert operator.domain_dimension == 4
