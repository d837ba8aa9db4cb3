"""Every structure: its operator, gradients and projections agree."""

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import registry
from tests.preconditioners import structures
from tests.preconditioners.structures import dense
from tests.preconditioners.structures import EVENT_SIZE
from tfp_adaptive.core import scale_factor

each_structure = pytest.mark.parametrize('name', registry.PRECONDITIONERS)
_MODES = ('eager', 'graph', 'xla')


@pytest.mark.parametrize(
  'dtype', [tf.float32, tf.float64], ids=lambda d: d.name
)
@each_structure
def test_the_start_is_a_multiple_of_the_identity(name, dtype):
  part = registry.preconditioner(name)
  params = structures.initial(part, dtype)
  assert all(leaf.dtype == dtype for leaf in tf.nest.flatten(params))
  # At a low rank of exactly zero the gradient vanishes: it starts next to it.
  np.testing.assert_allclose(
    dense(part, params),
    0.7 * np.eye(EVENT_SIZE),
    rtol=1e-2 if name == 'low_rank' else 1e-6,
    atol=1e-2 if name == 'low_rank' else 0.0,
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


@each_structure
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
  if name == 'low_rank':
    return gradient[0] / params[0], gradient[1]
  if name == 'per_part':
    return gradient[0] / params[0], gradient[1]
  return gradient  # A change of the entries of C^-1 is a change of params.


@each_structure
def test_gradients_in_the_tangent_are_raw_gradients_in_its_coordinates(name):
  part, params = structures.arrange(name)
  rows = structures.random_like(tf.zeros([2, EVENT_SIZE]), 1.0)
  tangent = scale_factor.zero_tangent(params)
  with tf.GradientTape() as tape:
    tape.watch(tangent)
    value = _value(scale_factor.around(part, params, tangent), rows)
  relative = tape.gradient(value, tangent)
  for one, two in zip(
    tf.nest.flatten(
      _raw_from_tangent(name, params, relative, dense(part, params))
    ),
    tf.nest.flatten(_raw_gradient(part, params, rows)),
  ):
    np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-10)


@each_structure
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


@each_structure
def test_projection_makes_any_params_valid(name):
  part = _bounded(name)
  params = structures.initial(part)
  projected = part.project(structures.random_like(params, 1.0))
  assert np.linalg.slogdet(dense(part, projected))[0] == 1.0
  again = part.project(projected)
  for one, two in zip(tf.nest.flatten(projected), tf.nest.flatten(again)):
    np.testing.assert_array_equal(one, two)


@each_structure
def test_without_a_smallest_scale_projections_are_invertible_too(name):
  part = registry.preconditioner(name)
  params = structures.random_like(structures.initial(part), 1.0)
  projected = part.project(params)
  assert np.linalg.slogdet(dense(part, projected))[1] > -100.0
  if name in ('cholesky', 'diagonal', 'low_rank'):
    raw = np.tril(params) if name == 'cholesky' else dense(part, params)
    scales = params[0] if name == 'low_rank' else np.diag(raw)
    assert np.any(np.asarray(scales) < 0.0)
    # Signs change, and no covariance.
    factor = dense(part, projected)
    np.testing.assert_allclose(factor @ factor.T, raw @ raw.T, rtol=1e-10)
  nothing = part.project(tf.nest.map_structure(tf.zeros_like, params))
  assert np.all(np.isfinite(np.linalg.inv(dense(part, nothing))))
