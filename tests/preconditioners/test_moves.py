"""Every structure's move: a natural-gradient step, invariant and bounded."""

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import registry
from tests.preconditioners import structures
from tests.preconditioners.structures import dense
from tests.preconditioners.structures import EVENT_SIZE

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


@pytest.mark.full
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
