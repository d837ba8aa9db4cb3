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


@pytest.mark.parametrize('is_compiled', [False, True])
@pytest.mark.parametrize('num_rows', [1, 4, 37])
def test_rows_are_added_to_the_inverse_and_to_its_determinant(
  num_rows, is_compiled
):
  root, rows = _root_and_rows(num_rows)
  contract = square_root.contract
  if is_compiled:
    contract = tf.function(contract, jit_compile=True, autograph=False)
  moved, change = contract(tf.constant(root), tf.constant(rows))
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


def test_huge_rows_shrink_a_direction_by_the_bound_and_no_further():
  root, rows = _root_and_rows(1, size=1e12)
  moved, _ = square_root.contract(tf.constant(root), tf.constant(rows), 2.0)
  stretch = np.linalg.svd(np.linalg.solve(root, moved))[1]
  np.testing.assert_allclose(stretch[-1], 0.5, rtol=1e-9)
  np.testing.assert_allclose(stretch[:-1], 1.0, rtol=1e-9)


def test_a_square_structure_multiplies_and_has_a_determinant():
  part = square_root.as_square(tfpa.preconditioners.cholesky(init_scale=0.3))
  assert part.init_scale == 0.3
  assert square_root.as_square(part) is part
  root, rows = _root_and_rows(3)

  operator = part.operator(tf.constant(root))
  pushed = operator.matmul(tf.constant(rows), adjoint_arg=True)
  np.testing.assert_allclose(pushed, root @ rows.T, rtol=1e-10)
  np.testing.assert_allclose(
    operator.log_abs_determinant(), np.linalg.slogdet(root)[1], rtol=1e-10
  )
  projected = part.operator(part.project(tf.constant(root)))
  np.testing.assert_array_equal(projected.to_dense(), root)
