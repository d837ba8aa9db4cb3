"""Square roots moved by rows, against dense algebra."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers.baselines import square_root

_EVENT_SIZE = 6


def _root_and_rows(num_rows, size=1.0):
  rng = np.random.default_rng(num_rows)
  root = np.eye(_EVENT_SIZE) + 0.3 * rng.normal(size=[_EVENT_SIZE] * 2)
  return root, size * rng.normal(size=(num_rows, _EVENT_SIZE))


def _expected(root, rows):
  inverse = np.linalg.inv(root)
  return np.linalg.inv(inverse.T @ inverse + rows.T @ rows)


def _contract(mode, **options):
  def contract(root, rows):
    return square_root.contract(root, rows, **options)

  if mode == 'eager':
    return contract
  signature = None
  if mode == 'unknown shapes':
    signature = [tf.TensorSpec([None, None], tf.float64)] * 2
  return tf.function(
    contract,
    input_signature=signature,
    jit_compile=mode == 'xla',
    autograph=False,
  )


@pytest.mark.parametrize('mode', ['eager', 'xla', 'unknown shapes'])
@pytest.mark.parametrize('num_rows', [1, 4, 16, 37])
def test_rows_are_added_to_the_inverse_and_to_its_determinant(num_rows, mode):
  root, rows = _root_and_rows(num_rows)
  moved, change = _contract(mode)(tf.constant(root), tf.constant(rows))
  expected = _expected(root, rows)
  np.testing.assert_allclose(
    moved.numpy() @ moved.numpy().T, expected, rtol=0.0, atol=1e-10
  )
  before, after = (
    np.linalg.slogdet(matrix)[1] for matrix in (root, moved.numpy())
  )
  np.testing.assert_allclose(change, after - before, rtol=1e-10)
  # The negative control: without one of the rows it is another matrix.
  assert np.max(np.abs(_expected(root, rows[1:]) - expected)) > 1e-4


def test_one_row_is_the_rank_one_formula_of_the_paper():
  root, rows = _root_and_rows(1)
  phi = root.T @ rows[0]
  square = phi @ phi
  ratio = 1.0 / (1.0 + np.sqrt(1.0 / (1.0 + square)))
  expected = root - ratio * np.outer(root @ phi, phi) / (1.0 + square)
  moved, _ = square_root.contract(tf.constant(root), tf.constant(rows))
  np.testing.assert_allclose(moved, expected, rtol=1e-11, atol=1e-13)


def test_huge_rows_shrink_a_direction_by_the_bound_and_no_further():
  root, rows = _root_and_rows(1, size=1e12)
  moved, _ = square_root.contract(tf.constant(root), tf.constant(rows), 2.0)
  stretch = np.linalg.svd(np.linalg.solve(root, moved))[1]
  np.testing.assert_allclose(stretch[-1], 0.5, rtol=1e-9)
  np.testing.assert_allclose(stretch[:-1], 1.0, rtol=1e-9)


@pytest.mark.parametrize('mode', ['eager', 'xla'])
def test_a_square_structure_multiplies_and_has_a_determinant(mode):
  part = square_root.as_square(tfpa.preconditioners.cholesky(init_scale=0.3))
  assert part.init_scale == 0.3
  assert square_root.as_square(part) is part
  root, rows = _root_and_rows(3)

  def use(root, rows):
    operator = part.operator(root)
    return (
      operator.matmul(rows, adjoint_arg=True),
      operator.log_abs_determinant(),
      part.operator(part.project(root)).to_dense(),
    )

  if mode == 'xla':
    use = tf.function(use, jit_compile=True, autograph=False)
  pushed, log_det, projected = use(tf.constant(root), tf.constant(rows))
  np.testing.assert_allclose(pushed, root @ rows.T, rtol=1e-10)
  np.testing.assert_allclose(log_det, np.linalg.slogdet(root)[1], rtol=1e-10)
  np.testing.assert_array_equal(projected, root)
