"""The penalty on the Jacobian's eigenvalues: its shape and its weight."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import parts
from tests.contracts import targets
from tfp_adaptive.linear.criteria import penalty as penalty_lib

_THRESHOLD = 0.75


def _penalty(weights=(1.0, 100.0), rate=0.01, slack=0.0, **options):
  return penalty_lib.eigenvalue_penalty(
    _THRESHOLD, weights, rate, slack, **options
  )


def _at(eigenvalues):
  return parts.transition(len(eigenvalues))._replace(
    jacobian_eigenvalue=tf.constant(eigenvalues, tf.float64),
    num_log_det_terms=tf.constant(3),
  )


def _cost_and_slope(eigenvalues, **options):
  """Returns h(|mu|) and its derivative in mu, by the library's tape."""
  penalty = _penalty(**options)
  state = penalty.init(parts.PROBLEM)  # gamma = 1.
  moved = _at(eigenvalues)
  return targets.value_and_gradient(
    lambda mu: penalty.value(state, moved._replace(jacobian_eigenvalue=mu)),
    moved.jacobian_eigenvalue,
  )


def test_it_is_quadratic_then_linear_and_even():
  cost, slope = _cost_and_slope([1.0, -1.25, 3.0, -3.0])
  np.testing.assert_allclose(cost, [0.0625, 0.25, 3.5, 3.5])
  np.testing.assert_allclose(slope, [0.5, -1.0, 2.0, -2.0])
  cost, slope = _cost_and_slope([1.0, -1.25, 3.0, -3.0], slope=1.0)
  np.testing.assert_allclose(cost, [0.0625, 0.25, 2.25, 2.25])
  np.testing.assert_allclose(slope, [0.5, -1.0, 1.0, -1.0])


def test_algorithm_one_has_the_printed_slope_and_the_default_rule_has_not():
  moved = parts.transition()._replace(
    jacobian_eigenvalue=tf.constant([2.5, 0.0, 0.0, 0.0], tf.float64)
  )
  for rule, weight, cost in (
    ('acceptance', 1.0, 1.75),
    ('constraint', 2.5**-2, 2.5),
  ):
    with_it, without = (
      tfpa.criteria.generalized_speed_measure(
        0.67, rule, penalty_threshold=threshold
      )
      for threshold in (0.75, None)
    )
    charged = without.entropy(without.init(parts.PROBLEM), moved)
    charged -= with_it.entropy(with_it.init(parts.PROBLEM), moved)
    np.testing.assert_allclose(charged, [weight * cost, 0.0, 0.0, 0.0])


def test_its_weight_grows_with_the_mean_cost():
  penalty = _penalty(rate=0.1)
  state = penalty.init(parts.PROBLEM)
  moved = _at([1.25, 0.0, -1.25, 1.75])  # Costs 1/4, 0, 1/4, 1: mean 3/8.
  expected = 1.0
  for _ in range(3):
    state = penalty.update(state, moved)
    expected *= 1.0 + 0.1 * 0.375
    np.testing.assert_allclose(state.weight, expected, rtol=1e-12)
  np.testing.assert_allclose(state.mean_abs_eigenvalue, 4.25 / 4)
  assert int(state.num_log_det_terms) == 3


def test_small_eigenvalues_leave_the_weight_or_lower_it_by_the_slack():
  for slack, expected in ((0.0, 4.0), (0.05, 4.0 * (1.0 - 0.1 * 0.05))):
    penalty = _penalty(weights=(2.0, 10.0), rate=0.1, slack=slack)
    state = penalty.init(parts.PROBLEM)
    assert float(state.weight) == 2.0
    heavy = state._replace(weight=tf.constant(4.0, tf.float64))
    state = penalty.update(heavy, _at([0.1, -0.7]))
    np.testing.assert_allclose(state.weight, expected, rtol=1e-12)


def test_the_weight_stops_at_its_bound_and_the_bound_is_told():
  penalty = _penalty(weights=(1.0, 1.5), rate=1.0)
  state = penalty.init(parts.PROBLEM)
  for _ in range(5):
    state = penalty.update(state, _at([50.0]))
  assert float(state.weight) == 1.5
  assert penalty.bounds['penalty_weight'][1] == 1.5
  assert float(penalty.trace(state)['penalty_weight']) == 1.5


def test_the_weight_multiplies_the_cost():
  penalty = _penalty()
  state = penalty.init(parts.PROBLEM)
  heavy = state._replace(weight=tf.constant(7.0, tf.float64))
  moved = _at([1.25, 0.2])
  np.testing.assert_allclose(penalty.value(state, moved), [0.25, 0.0])
  np.testing.assert_allclose(penalty.value(heavy, moved), [1.75, 0.0])


def test_an_overflowing_eigenvalue_leaves_the_weight_finite():
  penalty = _penalty()
  state = penalty.update(penalty.init(parts.PROBLEM), _at([1e200]))
  assert 1.0 <= float(state.weight) <= 100.0


def test_bounded_no_chain_pulls_at_the_scale_much_more_than_another():
  mu = np.array([0.5, -1.0, 2.0, -30.0, 1e4])
  cost, slope = _cost_and_slope(mu, bound_influence=True)
  free_cost, free_slope = _cost_and_slope(mu)
  weight = 1.0 / np.maximum(np.abs(mu), 1.0) ** 2
  np.testing.assert_allclose(cost, weight * free_cost)
  np.testing.assert_allclose(slope, weight * free_slope)
  # In the log scale, of which |mu| is a square: 2 mu h'(mu).
  assert np.max(np.abs(2 * mu * slope)) < 4.0 < np.max(np.abs(mu * free_slope))


@pytest.mark.parametrize(
  'is_bounded, mean_cost', [(True, 0.25), (False, 1.0)], ids=['bounded', 'free']
)
def test_bounded_a_chain_counts_once_for_the_weight(is_bounded, mean_cost):
  penalty = _penalty(rate=0.1, bound_influence=is_bounded)
  moved = _at([0.1, 0.1, 1e6, 0.1])
  state = penalty.update(penalty.init(parts.PROBLEM), moved)
  np.testing.assert_allclose(state.weight, 1.0 + 0.1 * mean_cost)
