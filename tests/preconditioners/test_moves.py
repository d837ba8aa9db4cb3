"""Every structure's move: a natural-gradient step, invariant and bounded."""

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import registry
from tests.preconditioners import structures
from tests.preconditioners.structures import dense
from tests.preconditioners.structures import EVENT_SIZE
from tfp_adaptive.core import scale_factor

each_structure = pytest.mark.parametrize('name', registry.PRECONDITIONERS)


def _relative_errors(name, share, mode):
  """Returns what a step leaves of perturbations of 1e-2 and 1e-3.

  Near the maximum of the mean log N(x | 0, C C^T) over x ~ N(0, S) the step of
  natural gradient is Newton's: it lands on S with an error of second order.
  """
  part, params = structures.arrange(name)
  move = part.move
  if mode == 'xla':
    move = tf.function(move, jit_compile=True, autograph=False)
  before = dense(part, params)
  errors = []
  for size in (1e-2, 1e-3):
    wanted = dense(part, structures.perturbed(part, params, size, seed=2))
    gradient = structures.gradient(part, params, wanted.T, weights=1.0)
    moved = dense(
      part,
      move(params, tf.nest.map_structure(lambda g: 0.5 * share * g, gradient)),
    )
    covariance = wanted @ wanted.T
    errors.append(
      np.max(np.abs(moved @ moved.T - covariance))
      / np.max(np.abs(before @ before.T - covariance))
    )
  return errors


@pytest.mark.parametrize('mode', ['eager', 'xla'])
@each_structure
def test_a_whole_step_lands_on_a_covariance_of_the_structure(name, mode):
  errors = _relative_errors(name, 1.0, mode)
  assert errors[0] < 0.1
  assert errors[1] < 0.15 * errors[0]


@each_structure
def test_half_a_step_does_not(name):
  # The negative control: the error is of first order.
  errors = _relative_errors(name, 0.5, 'eager')
  np.testing.assert_allclose(errors, 0.5, atol=0.05)


@each_structure
def test_a_zero_tangent_moves_nothing(name):
  part, params = structures.arrange(name)
  moved = part.move(params, scale_factor.zero_tangent(params))
  for before, after in zip(tf.nest.flatten(params), tf.nest.flatten(moved)):
    np.testing.assert_allclose(after, before, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize('size', [1.0, 1e3, 1e10])
@each_structure
def test_no_move_however_long_makes_the_factor_singular(name, size):
  part, params = structures.arrange(name)
  for seed in range(5):
    before = dense(part, params)
    params = part.move(params, structures.random_like(params, size, seed))
    after = dense(part, params)
    assert np.all(np.isfinite(after))
    # No direction changes by more than a factor of about two or three.
    stretch = np.linalg.svd(np.linalg.solve(before, after))[1]
    assert 0.3 < stretch[-1] and stretch[0] < 3.0


@each_structure
def test_huge_tangents_in_single_precision_keep_the_factor_finite(name):
  part = registry.preconditioner(name)
  params = structures.initial(part, tf.float32)
  tangent = tf.nest.map_structure(lambda p: 1e25 * tf.ones_like(p), params)
  moved = part.move(params, tangent)
  assert np.all(np.isfinite(dense(part, moved)))


@each_structure
def test_moves_keep_structure_shape_and_dtype(name):
  part, params = structures.arrange(name)
  tangent = structures.random_like(params, 0.1, seed=3)
  for moved in (
    part.move(params, tangent),
    part.rescale(params, tf.constant(2.0, tf.float64)),
    part.project(params),
  ):
    tf.nest.assert_same_structure(params, moved)
    for before, after in zip(tf.nest.flatten(params), tf.nest.flatten(moved)):
      assert before.shape == after.shape and before.dtype == after.dtype


def _path(part, params, rows, num_moves=6):
  """Returns C after moves towards the covariance of a few noisy rows."""
  for _ in range(num_moves):
    tangent = tf.nest.map_structure(
      lambda g: 0.25 * g, structures.gradient(part, params, rows)
    )
    params = part.move(params, tangent)
  return dense(part, params)


@each_structure
def test_paths_on_rescaled_coordinates_are_rescaled_paths(name):
  part, params = structures.arrange(name)
  rng = np.random.default_rng(4)
  rows = rng.normal(size=(8, EVENT_SIZE))
  scales = 10.0 ** rng.uniform(-3, 3, size=EVENT_SIZE)
  plain = _path(part, params, rows)
  rescaled = _path(part, structures.scaled(name, params, scales), rows * scales)
  assert np.max(np.abs(plain - dense(part, params))) > 0.1
  np.testing.assert_allclose(
    rescaled / scales[:, np.newaxis], plain, rtol=1e-8, atol=1e-9
  )


def test_arrow_paths_sheared_by_the_globals_are_sheared_paths():
  part, params = structures.arrange('arrow')
  rng = np.random.default_rng(4)
  rows = rng.normal(size=(8, EVENT_SIZE))
  shear = np.eye(EVENT_SIZE)
  shear[:-2, -2:] = rng.normal(size=(EVENT_SIZE - 2, 2))
  inverse = np.linalg.inv(dense(part, params)) @ np.linalg.inv(shear)
  sheared = (params[0], params[1], inverse[:-2, -2:], params[3])
  np.testing.assert_allclose(
    _path(part, sheared, rows @ shear.T),
    shear @ _path(part, params, rows),
    rtol=1e-9,
    atol=1e-11,
  )


def test_arrow_with_globals_first_is_the_other_order():
  last = registry.preconditioner('arrow')
  first = registry.preconditioner('arrow', globals_first=True)
  _, params = structures.arrange('arrow')
  order = [4, 5, 0, 1, 2, 3]
  rows = np.random.default_rng(4).normal(size=(8, EVENT_SIZE))
  np.testing.assert_allclose(
    _path(first, params, rows[:, order]),
    _path(last, params, rows)[np.ix_(order, order)],
    rtol=1e-12,
  )


def test_one_superdiagonal_is_tridiagonal():
  tridiagonal, params = structures.arrange('tridiagonal')
  banded = registry.preconditioner('banded', num_superdiagonals=1)
  rows = np.random.default_rng(4).normal(size=(8, EVENT_SIZE))
  np.testing.assert_allclose(
    _path(banded, params, rows), _path(tridiagonal, params, rows), rtol=1e-9
  )


@pytest.mark.parametrize('longest', [0.4, 40.0])
def test_without_coupling_a_path_moves_as_a_diagonal_factor(longest):
  # A row that is too long is shortened alone: the others go their way.
  diagonal = registry.preconditioner('diagonal')
  tridiagonal = registry.preconditioner('tridiagonal')
  tangent = np.linspace(-0.4, 0.4, EVENT_SIZE)
  tangent[-1] = longest
  scales = np.linspace(1.0, 2.0, EVENT_SIZE)
  moved = tridiagonal.move(
    (tf.constant(1 / scales), tf.zeros([EVENT_SIZE - 1], tf.float64)),
    (
      tf.constant(-scales * tangent),
      tf.zeros([EVENT_SIZE - 1], tf.float64),
    ),
  )
  np.testing.assert_allclose(
    1.0 / moved[0],
    diagonal.move(tf.constant(scales), tf.constant(tangent)),
    rtol=1e-12,
  )


def test_steps_that_add_up_along_a_path_are_bounded_together():
  # Bounded row by row only, each of these moves would make a random walk of
  # the path explode: a coupling above one, 300 times over.
  part = registry.preconditioner('tridiagonal')
  size = 300
  params = part.init(size, tf.float64, tf.constant(1.0, tf.float64))
  tangent = (
    tf.zeros([size], tf.float64),
    tf.fill([size - 1], tf.constant(-1e3, tf.float64)),
  )
  for _ in range(10):
    before = dense(part, params)
    params = part.move(params, tangent)
    stretch = np.linalg.svd(np.linalg.solve(before, dense(part, params)))[1]
    assert 0.3 < stretch[-1] and stretch[0] < 3.0


def test_a_dense_factor_stays_lower_triangular_with_positive_diagonal():
  part, params = structures.arrange('cholesky')
  for seed in range(3):
    params = part.move(params, structures.random_like(params, 10.0, seed))
    np.testing.assert_array_equal(np.triu(params, 1), 0.0)
    assert np.all(np.diag(params) > 0.0)


def test_the_corner_of_an_arrow_stays_triangular():
  part, params = structures.arrange('arrow')
  rows = np.random.default_rng(4).normal(size=(8, EVENT_SIZE))
  gradient = structures.gradient(part, params, rows)
  np.testing.assert_array_equal(np.tril(gradient[-1], -1), 0.0)
  moved = part.move(params, gradient)
  np.testing.assert_array_equal(np.tril(moved[-1], -1), 0.0)
  assert np.all(np.diag(moved[-1]) > 0.0)
