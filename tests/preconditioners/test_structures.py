"""Every structure: its operator, gradients and projections agree."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.preconditioners import structures
from tests.preconditioners.structures import dense
from tests.preconditioners.structures import EVENT_SIZE
from tfp_adaptive.core import scale_factor

each_structure = pytest.mark.parametrize('name', registry.PRECONDITIONERS)
each_moved = pytest.mark.parametrize('name', registry.MOVED)
_MODES = ('eager', 'graph', 'xla')


@pytest.mark.parametrize(
  'dtype', [tf.float32, tf.float64], ids=lambda d: d.name
)
@each_structure
def test_the_start_is_a_multiple_of_the_identity(name, dtype):
  part = registry.preconditioner(name)
  params = structures.initial(part, dtype)
  assert all(leaf.dtype == dtype for leaf in tf.nest.flatten(params))
  np.testing.assert_allclose(
    dense(part, params), 0.7 * np.eye(EVENT_SIZE), rtol=1e-6
  )


@pytest.mark.parametrize('mode', _MODES)
@each_structure
def test_products_with_rows_are_those_of_the_dense_matrix(name, mode):
  part, params = structures.arrange(name)
  rows = np.random.default_rng(0).normal(size=(2, 3, EVENT_SIZE))

  def products(params, rows):
    factor = scale_factor.at(part, params)
    operator = part.operator(params)
    return (
      operator.to_dense(),
      factor.apply(rows),
      factor.apply_adjoint(rows),
      factor.log_abs_det,
      operator.solve(rows[0], adjoint_arg=True),
      operator.solve(rows[0], adjoint=True, adjoint_arg=True),
    )

  if mode != 'eager':
    products = tf.function(products, jit_compile=mode == 'xla', autograph=False)
  factor, pushed, pulled, log_det, solved, solved_adjoint = products(
    params, tf.constant(rows)
  )
  factor = factor.numpy()
  np.testing.assert_allclose(pushed, rows @ factor.T, rtol=1e-9)
  np.testing.assert_allclose(pulled, rows @ factor, rtol=1e-9)
  sign, expected = np.linalg.slogdet(factor)
  assert sign == 1.0
  np.testing.assert_allclose(log_det, expected, rtol=1e-9)
  np.testing.assert_allclose(
    solved, np.linalg.solve(factor, rows[0].T), rtol=1e-8
  )
  np.testing.assert_allclose(
    solved_adjoint, np.linalg.solve(factor.T, rows[0].T), rtol=1e-8
  )


def _value(factor, rows):
  """A function of everything that a proposal does with C."""
  return (
    tf.reduce_sum(tf.sin(factor.apply(rows)))
    + tf.reduce_sum(tf.cos(factor.apply_adjoint(rows)))
    + 0.3 * factor.log_abs_det
  )


def _raw_gradient(part, params, rows):
  with tf.GradientTape() as tape:
    tape.watch(params)
    value = _value(scale_factor.at(part, params), rows)
  return tape.gradient(value, params)


@each_moved
def test_raw_gradients_are_finite_differences(name):
  part, params = structures.arrange(name)
  rows = structures.random_like(tf.zeros([2, EVENT_SIZE]), 1.0)
  gradient = tf.nest.flatten(_raw_gradient(part, params, rows))
  width = 1e-6
  for seed in range(3):
    direction = structures.random_like(params, 1.0, seed)
    # Entries that the structure leaves out have no gradient.
    inside = part.project(
      tf.nest.map_structure(lambda p, d: p + d / 100, params, direction)
    )
    direction = tf.nest.map_structure(
      lambda p, i: 100 * (i - p), params, inside
    )
    up, down = (
      _value(
        scale_factor.at(
          part,
          tf.nest.map_structure(
            lambda p, d, s=sign: p + s * width * d, params, direction
          ),
        ),
        rows,
      )
      for sign in (1, -1)
    )
    slope = sum(
      tf.reduce_sum(g * d) for g, d in zip(gradient, tf.nest.flatten(direction))
    )
    np.testing.assert_allclose(
      slope, (up - down) / (2 * width), rtol=1e-6, atol=1e-7
    )


def _raw_from_tangent(name, params, gradient, factor):
  """Returns the raw gradient that belongs to one in the tangent."""
  if name == 'diagonal':
    return gradient / params
  if name == 'cholesky':
    return np.tril(np.linalg.solve(factor.T, gradient))
  if name == 'per_part':
    return gradient[0] / params[0], gradient[1]
  return gradient  # A change of the entries of C^-1 is a change of params.


@each_moved
def test_gradients_in_the_tangent_are_raw_gradients_in_its_coordinates(name):
  part, params = structures.arrange(name)
  rows = structures.random_like(tf.zeros([2, EVENT_SIZE]), 1.0)
  tangent = scale_factor.zero_tangent(params)
  with tf.GradientTape() as tape:
    tape.watch(tangent)
    value = _value(scale_factor.around(part, params, tangent), rows)
  relative = tape.gradient(value, tangent)
  raw = _raw_from_tangent(name, params, relative, dense(part, params))
  expected = _raw_gradient(part, params, rows)
  for one, two in zip(*map(tf.nest.flatten, (raw, expected))):
    np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-10)


@each_moved
def test_slopes_are_derivatives_in_the_log_scale(name):
  part, params = structures.arrange(name)
  left, right = structures.random_like(
    (tf.zeros([3, EVENT_SIZE]), tf.zeros([3, EVENT_SIZE])), 1.0
  )
  pushed = tf.constant(right.numpy() @ dense(part, params).T)
  outer = part.outer(params, left, right, lambda: pushed)
  np.testing.assert_allclose(
    part.slope(params, outer), tf.reduce_sum(left * right), rtol=1e-9
  )
  np.testing.assert_allclose(
    part.slope(params, part.log_det_gradient(params)), EVENT_SIZE, rtol=1e-9
  )


@each_structure
def test_rescale_multiplies_the_factor(name):
  part, params = structures.arrange(name)
  rescaled = part.rescale(params, tf.constant(3.0, tf.float64))
  np.testing.assert_allclose(
    dense(part, rescaled), 3.0 * dense(part, params), rtol=1e-12
  )


def _bounded(name):
  """Returns the part with a smallest scale, where its factory takes one."""
  if name != 'per_part':
    return registry.preconditioner(name, min_scale=1e-2)
  blocks = [_bounded(block) for block in ('diagonal', 'tridiagonal')]
  return registry.preconditioner(name, preconditioners=blocks)


@each_moved
def test_projection_makes_any_params_valid(name):
  part = _bounded(name)
  params = structures.initial(part)
  projected = part.project(structures.random_like(params, 1.0))
  assert np.linalg.slogdet(dense(part, projected))[0] == 1.0
  again = part.project(projected)
  tf.nest.map_structure(np.testing.assert_array_equal, projected, again)


@each_moved
def test_without_a_smallest_scale_projections_are_invertible_too(name):
  part = registry.preconditioner(name)
  params = structures.random_like(structures.initial(part), 1.0)
  projected = part.project(params)
  assert np.linalg.slogdet(dense(part, projected))[1] > -100.0
  if name in ('cholesky', 'diagonal'):
    raw = np.tril(params) if name == 'cholesky' else dense(part, params)
    assert np.any(np.diag(raw) < 0.0)
    # Signs change, and no covariance.
    factor = dense(part, projected)
    np.testing.assert_allclose(factor @ factor.T, raw @ raw.T, rtol=1e-10)
  nothing = part.project(tf.nest.map_structure(tf.zeros_like, params))
  assert np.all(np.isfinite(np.linalg.inv(dense(part, nothing))))


# Every structure's move: a natural-gradient step, invariant and bounded.


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
@each_moved
def test_a_whole_step_lands_on_a_covariance_of_the_structure(name, mode):
  errors = _relative_errors(name, 1.0, mode)
  assert errors[0] < 0.1
  assert errors[1] < 0.15 * errors[0]


@each_moved
def test_half_a_step_does_not(name):
  # The negative control: the error is of first order.
  errors = _relative_errors(name, 0.5, 'eager')
  np.testing.assert_allclose(errors, 0.5, atol=0.05)


@pytest.mark.parametrize('size', [1.0, 1e3, 1e10])
@each_moved
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


@each_moved
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


# First scales of a factor with one structure per part.


_diagonal = tfpa.preconditioners.diagonal


def test_a_first_scale_of_a_block_multiplies_the_common_one():
  part = tfpa.preconditioners.per_part(
    [
      _diagonal(init_scale=2.0),
      _diagonal(),
      _diagonal(init_scale=lambda size: 5.0 / size),
    ]
  )
  params = part.init([1, 2, 4], tf.float64, tf.constant(3.0, tf.float64))
  np.testing.assert_allclose(
    np.diag(part.operator(params).to_dense()),
    [6.0, 3.0, 3.0, 3.75, 3.75, 3.75, 3.75],
  )
