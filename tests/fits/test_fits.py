"""Fits in NumPy: against compiled maps, dense algebra, and derivatives."""

import numpy as np
import pytest
import tensorflow as tf

from tests.transport.maps import hierarchies
from tfp_adaptive.fits import conditional
from tfp_adaptive.fits import factors
from tfp_adaptive.fits import matrix
from tfp_adaptive.fits import natural as natural_lib
from tfp_adaptive.fits import search
from tfp_adaptive.linear import fisher_fit
from tfp_adaptive.preconditioners import cholesky
from tfp_adaptive.transport import maps

_SIZE = 6


def _hierarchy(count=2000, seed=0):
  """Returns pairs of a mean, a log scale, and effects with data on them."""
  rng = np.random.default_rng(seed)
  mean, log_scale = rng.normal(size=(2, count))
  effects = rng.normal(size=(count, _SIZE - 2))
  effects = mean[:, None] + np.exp(log_scale)[:, None] * effects
  states = np.concatenate([mean[:, None], log_scale[:, None], effects], axis=1)
  data = np.linspace(-1.0, 2.0, _SIZE - 2)

  def target(x):
    gaps = x[:, 2:] - x[:, :1]
    value = -0.5 * tf.reduce_sum(x[:, :2] ** 2, axis=1)
    value -= 0.5 * tf.exp(-2.0 * x[:, 1]) * tf.reduce_sum(gaps**2, axis=1)
    value -= (_SIZE - 2) * x[:, 1]
    return value - 0.5 * tf.reduce_sum((x[:, 2:] - data) ** 2, axis=1)

  x = tf.constant(states)
  with tf.GradientTape() as tape:
    tape.watch(x)
    value = target(x)
  return states, tape.gradient(value, x).numpy()


def _walk(count=2000, seed=0):
  """Returns pairs of two log scales and a walk whose steps differ."""
  rng = np.random.default_rng(seed)
  states = hierarchies.draw_walk(rng, count, _SIZE)
  return tuple(
    rows.numpy() for rows in hierarchies.pairs(hierarchies.walk, states)[:2]
  )


@pytest.fixture(scope='module')
def pairs():
  return _hierarchy()


_FORMS = {
  'straight': {},
  'bent': dict(is_bent=True),
  'path': dict(is_path=True),
  'bent path': dict(is_bent=True, is_path=True),
}


@pytest.fixture(scope='module', params=_FORMS)
def fitted(request, pairs):
  form = _FORMS[request.param]
  pairs = _walk() if 'is_path' in form else pairs
  found = search.find(*pairs, [-1] * 3, **form)
  return form, pairs, conditional.fit(*pairs, *found, **form)


def test_a_map_is_that_of_compiled_kernels(fitted):
  form, pairs, found = fitted
  transport = maps.conditional_gaussian(
    num_drivers=3,
    bent=form.get('is_bent', False),
    structure='tridiagonal' if 'is_path' in form else 'diagonal',
  )
  assert set(found.natural.drivers) > ({0, 1} if 'is_path' in form else {1})
  params = transport.fit(None, *pairs)
  for ours, theirs in zip((*found.natural, found.factor), params, strict=True):
    np.testing.assert_array_equal(ours, theirs)
  bijector = transport.bijector(tf.nest.map_structure(tf.constant, params))
  rows = np.random.default_rng(1).normal(size=(5, _SIZE))
  states, log_det, _ = found.forward(rows)
  np.testing.assert_allclose(states, bijector.forward(rows), rtol=1e-8)
  expected = bijector.forward_log_det_jacobian(tf.constant(rows), 1)
  np.testing.assert_allclose(log_det, expected, rtol=1e-8)


def test_a_map_and_its_gradient_are_right_by_finite_differences(fitted):
  *_, params = fitted
  rng = np.random.default_rng(2)
  rows, scores = rng.normal(size=(2, 4, _SIZE))
  states, log_det, pull = params.forward(rows)
  np.testing.assert_allclose(params.inverse(states), rows, atol=1e-9)
  gradient, size = pull(scores), 1e-6
  jacobian = np.zeros([4, _SIZE, _SIZE])
  for i in range(_SIZE):
    moved = [params.forward(rows + s * np.eye(_SIZE)[i]) for s in (size, -size)]
    jacobian[:, :, i] = (moved[0][0] - moved[1][0]) / (2.0 * size)
    of_values = np.sum(scores * jacobian[:, :, i], axis=1)
    of_log_det = (moved[0][1] - moved[1][1]) / (2.0 * size)
    np.testing.assert_allclose(
      gradient[:, i], of_values + of_log_det, atol=1e-5
    )
  expected = np.linalg.slogdet(jacobian)[1]
  np.testing.assert_allclose(log_det, expected, atol=1e-6)


@pytest.mark.parametrize('signs', [1.0, -1.0, [1.0, -1.0]])
def test_the_factor_of_a_path_is_that_of_the_dense_precision(signs):
  rng = np.random.default_rng(5)
  slack, edge = rng.uniform(size=(2, 2, _SIZE))
  edge = np.transpose(np.transpose(edge) * signs)
  edge[:, -1] = 0.0
  terms = rng.uniform(size=(3, 2))
  natural = natural_lib.of_scale(_SIZE, [], is_path=True)
  lower = factors.of_terms(natural._replace(slack=slack, edge=edge), terms)
  rows = rng.normal(size=(3, _SIZE))
  for row in range(3):
    precision = np.zeros([_SIZE, _SIZE])
    for term, r, w in zip(terms[row], slack, edge):
      precision += term * np.diag(r)
      for t in range(_SIZE - 1):
        end = np.eye(_SIZE)[t] - np.sign(w[t]) * np.eye(_SIZE)[t + 1]
        precision += term * abs(w[t]) * np.outer(end, end)
    dense = np.linalg.cholesky(precision)
    np.testing.assert_allclose(lower.diagonal[row], np.diag(dense), rtol=1e-10)
    for found, matrix_of in (
      (lower.multiply_adjoint(rows), dense.T),
      (lower.solve(rows), np.linalg.inv(dense)),
      (lower.solve_adjoint(rows), np.linalg.inv(dense).T),
    ):
      np.testing.assert_allclose(found[row], matrix_of @ rows[row], rtol=1e-9)


def test_the_scores_of_a_walk_are_exact_behind_its_path():
  params = conditional.fit(
    *_walk(), np.array([0, 1]), np.array([-2.0, -2.0]), is_path=True
  )
  rows, scores = params.whitened(*_walk(seed=1))
  assert hierarchies.spread((rows + scores)[:, 2:]) < 1e-2


def test_whitened_pairs_are_those_of_a_normal_where_the_model_is_one(pairs):
  # Given both drivers the effects are normal: of them nothing is left.
  params = conditional.fit(*pairs, np.array([1, 0]), np.array([-2.0, 0.0]))
  rows, scores = params.whitened(*pairs)
  assert np.std(rows[:, 2:] + scores[:, 2:]) < 0.1
  without = conditional.fit(*pairs, np.array([0]), np.array([0.0]))
  rest = np.concatenate(without.whitened(*pairs), axis=1)
  assert np.std(rest[:, 2:_SIZE] + rest[:, _SIZE + 2 :]) > 0.5


@pytest.mark.parametrize('count', [2, 10, 500])
def test_a_matrix_is_that_of_the_compiled_fit(count):
  rng = np.random.default_rng(3)
  mix = rng.normal(size=(_SIZE, _SIZE))
  states = rng.normal(size=(count, _SIZE)) @ mix.T
  scores = -states @ np.linalg.inv(mix @ mix.T) + 0.1 * rng.normal(
    size=(count, _SIZE)
  )
  part = cholesky()
  start = part.init(_SIZE, tf.float64, tf.ones([], tf.float64))
  equal = tf.fill([count], tf.constant(1.0 / count, tf.float64))
  expected = fisher_fit.fit(part, start, states, scores, equal)
  found = matrix.fit(states, scores)
  np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_a_matrix_of_rows_that_do_not_move_is_none():
  still = np.zeros([100, _SIZE])
  assert not np.all(np.isfinite(matrix.fit(still, still)))


def test_a_diagonal_is_that_of_spreads():
  rng = np.random.default_rng(4)
  scales = 10.0 ** np.arange(_SIZE)
  states = 5.0 + scales * rng.normal(size=(4000, _SIZE))
  scores = -(states - 5.0) / scales**2
  np.testing.assert_allclose(
    matrix.fit_diagonal(states, scores), scales, rtol=1e-9
  )
