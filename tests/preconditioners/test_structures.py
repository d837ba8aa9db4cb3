"""Every structure: its operator, tangents, moves and projections agree."""

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import registry
from tfp_adaptive.internal import scale_factor

_EVENT_SIZE = 4

each_structure = pytest.mark.parametrize('name', registry.PRECONDITIONERS)


def _random_like(structure, scale, seed=0):
  rng = np.random.default_rng(seed)
  return tf.nest.map_structure(
    lambda leaf: tf.constant(scale * rng.normal(size=leaf.shape)), structure
  )


def _setup(name, dtype=tf.float64):
  """Returns the part, params of a generic C of its structure, a tangent."""
  part = registry.preconditioner(name)
  params = part.init(_EVENT_SIZE, dtype, tf.constant(0.7, dtype))
  # Two bounded moves away from the multiple of the identity.
  params = part.move(params, _random_like(params, 0.1, seed=1))
  params = part.move(params, _random_like(params, 0.1, seed=2))
  return part, params, _random_like(params, 0.1, seed=3)


def _dense(part, params):
  return part.operator(params).to_dense().numpy()


@pytest.mark.parametrize(
  'dtype', [tf.float32, tf.float64], ids=lambda d: d.name
)
@each_structure
def test_the_start_is_a_multiple_of_the_identity(name, dtype):
  part = registry.preconditioner(name)
  params = part.init(_EVENT_SIZE, dtype, tf.constant(0.7, dtype))
  assert all(leaf.dtype == dtype for leaf in tf.nest.flatten(params))
  np.testing.assert_allclose(
    _dense(part, params), 0.7 * np.eye(_EVENT_SIZE), rtol=1e-6
  )


@each_structure
def test_names_and_init_scales_are_those_of_the_factory(name):
  assert registry.preconditioner(name).name == name
  assert registry.preconditioner(name).init_scale is None
  assert registry.preconditioner(name, init_scale=0.3).init_scale == 0.3


@each_structure
def test_products_with_rows_are_those_of_the_dense_matrix(name):
  part, params, _ = _setup(name)
  dense = _dense(part, params)
  rows = np.random.default_rng(0).normal(size=(2, 3, _EVENT_SIZE))
  factor = scale_factor.at(part, params)
  np.testing.assert_allclose(
    factor.apply(tf.constant(rows)), rows @ dense.T, rtol=1e-10
  )
  np.testing.assert_allclose(
    factor.apply_adjoint(tf.constant(rows)), rows @ dense, rtol=1e-10
  )
  sign, log_det = np.linalg.slogdet(dense)
  assert sign == 1.0
  np.testing.assert_allclose(factor.log_abs_det, log_det, rtol=1e-10)
  np.testing.assert_allclose(
    part.operator(params).solve(tf.constant(rows[0]), adjoint_arg=True),
    np.linalg.solve(dense, rows[0].T),
    rtol=1e-9,
  )


@each_structure
def test_around_is_the_factor_times_one_plus_the_tangent(name):
  part, params, tangent = _setup(name)
  step = part.tangent_operator(tangent).to_dense().numpy()
  moved = _dense(part, params) @ (np.eye(_EVENT_SIZE) + step)
  rows = np.random.default_rng(0).normal(size=(3, _EVENT_SIZE))
  factor = scale_factor.around(part, params, tangent)
  np.testing.assert_allclose(
    factor.apply(tf.constant(rows)), rows @ moved.T, rtol=1e-10
  )
  np.testing.assert_allclose(
    factor.apply_adjoint(tf.constant(rows)), rows @ moved, rtol=1e-10
  )


@each_structure
def test_the_gradient_of_the_log_determinant_is_exact_in_the_tangent(name):
  part, params, direction = _setup(name)
  tangent = scale_factor.zero_tangent(params)
  with tf.GradientTape() as tape:
    tape.watch(tangent)
    log_det = scale_factor.around(part, params, tangent).log_abs_det
  slope = sum(
    float(tf.reduce_sum(g * d))
    for g, d in zip(
      tf.nest.flatten(tape.gradient(log_det, tangent)),
      tf.nest.flatten(direction),
    )
  )
  width = 1e-5
  up, down = (
    np.linalg.slogdet(
      np.eye(_EVENT_SIZE)
      + sign * width * part.tangent_operator(direction).to_dense().numpy()
    )[1]
    for sign in (1, -1)
  )
  np.testing.assert_allclose(slope, (up - down) / (2 * width), rtol=1e-6)


@each_structure
def test_a_move_agrees_with_the_tangent_to_first_order_in_covariance(name):
  # What a proposal sees is C C^T: its error must fall as the square of t.
  part, params, tangent = _setup(name)
  dense = _dense(part, params)
  step = part.tangent_operator(tangent).to_dense().numpy()
  slope = dense @ (step + step.T) @ dense.T
  errors = []
  for t in (1e-2, 1e-3):
    scaled = tf.nest.map_structure(lambda leaf, t=t: t * leaf, tangent)
    moved = _dense(part, part.move(params, scaled))
    change = (moved @ moved.T - dense @ dense.T) / t
    errors.append(np.max(np.abs(change - slope)))
  assert np.max(np.abs(slope)) > 1e-2
  assert errors[0] < 0.1 * np.max(np.abs(slope))
  assert errors[1] < 0.15 * errors[0]


@each_structure
def test_a_zero_tangent_moves_nothing(name):
  part, params, _ = _setup(name)
  moved = part.move(params, scale_factor.zero_tangent(params))
  for before, after in zip(tf.nest.flatten(params), tf.nest.flatten(moved)):
    np.testing.assert_allclose(after, before, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize('size', [1.0, 1e3, 1e10])
@each_structure
def test_no_move_however_long_makes_the_factor_singular(name, size):
  part, params, _ = _setup(name)
  for seed in range(5):
    before = np.linalg.slogdet(_dense(part, params))[1]
    params = part.move(params, _random_like(params, size, seed))
    dense = _dense(part, params)
    assert np.all(np.isfinite(dense))
    # No direction changes by more than a factor of about two or three.
    assert abs(np.linalg.slogdet(dense)[1] - before) < 1.2 * _EVENT_SIZE
    assert np.linalg.cond(dense) < 1e6


@each_structure
def test_moves_keep_structure_shape_and_dtype(name):
  part, params, tangent = _setup(name)
  for moved in (
    part.move(params, tangent),
    part.rescale(params, tf.constant(2.0, tf.float64)),
    part.project(params),
  ):
    tf.nest.assert_same_structure(params, moved)
    for before, after in zip(tf.nest.flatten(params), tf.nest.flatten(moved)):
      assert before.shape == after.shape and before.dtype == after.dtype


@each_structure
def test_rescale_multiplies_the_factor(name):
  part, params, _ = _setup(name)
  rescaled = part.rescale(params, tf.constant(3.0, tf.float64))
  np.testing.assert_allclose(
    _dense(part, rescaled), 3.0 * _dense(part, params), rtol=1e-12
  )


@each_structure
def test_moves_do_not_depend_on_the_scale_of_the_coordinates(name):
  part, params, tangent = _setup(name)
  moved = _dense(part, part.move(params, tangent))
  rescaled = part.rescale(params, tf.constant(1e3, tf.float64))
  np.testing.assert_allclose(
    _dense(part, part.move(rescaled, tangent)), 1e3 * moved, rtol=1e-12
  )


@each_structure
def test_projection_makes_any_params_valid(name):
  part = registry.preconditioner(name, min_scale=1e-2)
  params = part.init(_EVENT_SIZE, tf.float64, tf.constant(1.0, tf.float64))
  projected = part.project(_random_like(params, 1.0))
  dense = _dense(part, projected)
  assert np.linalg.slogdet(dense)[0] == 1.0
  again = part.project(projected)
  for one, two in zip(tf.nest.flatten(projected), tf.nest.flatten(again)):
    np.testing.assert_array_equal(one, two)


@each_structure
def test_valid_params_are_their_own_projection(name):
  part, params, _ = _setup(name)
  projected = part.project(params)
  for one, two in zip(tf.nest.flatten(params), tf.nest.flatten(projected)):
    np.testing.assert_allclose(one, two, rtol=1e-15)


def test_a_dense_factor_stays_lower_triangular_with_positive_diagonal():
  part, params, _ = _setup('cholesky')
  for seed in range(3):
    params = part.move(params, _random_like(params, 10.0, seed))
    np.testing.assert_array_equal(np.triu(params, 1), 0.0)
    assert np.all(np.diag(params) > 0.0)
