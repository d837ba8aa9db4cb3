"""Exchanges keep the joint law, alternate, and move all of a state."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tfp_adaptive.tempering import exchange
from tfp_adaptive.tempering import temperatures

_BETAS = np.array([1.0, 0.5, 0.2, 0.1, 0.05])
_NUM_CHAINS = 50_000


def _draws(seed=0):
  """Returns exact draws of powers of N(0, I) in the plane, [K, chains, 2]."""
  rng = np.random.default_rng(seed)
  normals = rng.normal(size=(len(_BETAS), _NUM_CHAINS, 2))
  return normals / np.sqrt(_BETAS)[:, np.newaxis, np.newaxis]


def _exchanged(states, step, log_ratio=None):
  if log_ratio is None:
    log_ratio = -0.5 * np.sum(states**2, axis=-1)
  return exchange.exchange(
    tf.constant(step),
    tf.constant(_BETAS),
    tf.constant(states),
    tf.constant(log_ratio),
    tf.constant([3, 4]),
  )


def _smallest_p_value(states):
  """Kolmogorov-Smirnov of |x|^2 of every replica, times their number."""
  squares = np.sum(np.asarray(states) ** 2, axis=-1)
  laws = [stats.chi2(2, scale=1.0 / b) for b in _BETAS]
  p_values = [
    stats.kstest(row, law.cdf).pvalue for row, law in zip(squares, laws)
  ]
  return len(p_values) * min(p_values)


@pytest.mark.parametrize('step', [0, 1])
def test_an_exchange_leaves_the_joint_law_invariant(step):
  before = _draws()
  after, _, _ = _exchanged(before, step)
  assert 0.2 < np.mean(after != before) < 0.8
  assert _smallest_p_value(after) > 1e-3


def test_an_exchange_without_the_acceptance_is_detected():
  after, _, _ = _exchanged(_draws(), 0, np.zeros([5, _NUM_CHAINS]))
  assert np.all(after[0] == _draws()[1])
  assert _smallest_p_value(after) < 1e-6


def test_rejections_are_those_of_the_closed_form():
  for step, pairs in ((0, [0, 2]), (1, [1, 3])):
    _, rejected, is_tried = _exchanged(_draws(), step)
    assert list(np.flatnonzero(is_tried)) == pairs
    assert not np.any(rejected[1 - step :: 2])
    expected = (_BETAS[:-1] - _BETAS[1:]) / (_BETAS[:-1] + _BETAS[1:])
    # Standard error below 0.5 / sqrt(50 000).
    np.testing.assert_allclose(
      np.take(rejected, pairs), expected[pairs], atol=4 * 0.0023
    )


def test_both_of_a_pair_decide_alike_and_states_move_as_a_whole():
  states = _draws()[:, :1000]
  names = np.arange(5000).reshape(5, 1000)
  carried, _, _ = exchange.exchange(
    tf.constant(0),
    tf.constant(_BETAS),
    {'x': tf.constant(states), 'name': tf.constant(names)},
    tf.constant(-0.5 * np.sum(states**2, axis=-1)),
    tf.constant([3, 4]),
  )
  after = carried['name'].numpy()
  assert np.array_equal(np.sort(after, axis=0), names)
  np.testing.assert_array_equal(
    carried['x'], states.reshape(5000, 2)[after.reshape(-1)].reshape(5, -1, 2)
  )


def test_what_states_carry_goes_where_their_names_went():
  rng = np.random.default_rng(0)
  log_ratio = rng.normal(size=(5, 2, 7))
  names = exchange.names(tf.constant(log_ratio))
  assert names.shape == log_ratio.shape
  shuffled = rng.permuted(names.numpy(), axis=0)
  carried = {'x': rng.normal(size=(5, 2, 7, 3)), 'none': (), 'l': log_ratio}
  found = exchange.moved(
    tf.constant(shuffled), tf.nest.map_structure(tf.constant, carried)
  )
  for value, before in zip(tf.nest.flatten(found), tf.nest.flatten(carried)):
    rows = before.reshape(70, -1)[shuffled.reshape(-1)]
    np.testing.assert_array_equal(value, rows.reshape(before.shape))


def test_a_density_that_is_not_finite_is_not_exchanged():
  log_ratio = np.array([[0.0], [-np.inf], [np.nan], [0.0], [0.0]])
  states = np.arange(10.0).reshape(5, 1, 2)
  after, rejected, _ = _exchanged(states, 0, log_ratio)
  np.testing.assert_array_equal(after[:2], states[:2])
  np.testing.assert_array_equal(after[2:4], states[2:4])
  np.testing.assert_array_equal(rejected, [1.0, 0.0, 1.0, 0.0])


def test_a_restart_is_a_state_that_comes_from_the_last_replica():
  journeys = exchange.Journeys(
    tf.zeros([3, 2], tf.bool), tf.zeros([2], tf.int32)
  )
  journeys = exchange.arrive(exchange.set_out(journeys))
  np.testing.assert_array_equal(journeys.is_hot[:, 0], [False, False, True])
  # Down by one place, then by another; the second chain stays.
  is_hot = np.array([[False, False], [True, False], [True, True]])
  journeys = exchange.arrive(journeys._replace(is_hot=tf.constant(is_hot)))
  np.testing.assert_array_equal(journeys.num_restarts, [0, 0])
  is_hot = np.array([[True, False], [False, False], [True, True]])
  journeys = exchange.arrive(journeys._replace(is_hot=tf.constant(is_hot)))
  np.testing.assert_array_equal(journeys.num_restarts, [1, 0])
  assert not np.any(journeys.is_hot[0])


# Temperatures at equal rejection: against the barrier of a plane Gaussian.


def _rates(b):
  return (b[:-1] - b[1:]) / (b[:-1] + b[1:])


def _equalized(b):
  return temperatures.equalize(tf.constant(b), tf.constant(_rates(b))).numpy()


def test_geometric_temperatures_stay_where_they_are():
  b = np.geomspace(1.0, 1e-3, 8)
  np.testing.assert_allclose(_equalized(b), b, rtol=1e-12)


def test_other_temperatures_come_to_geometric_ones():
  b = np.linspace(1.0, 1e-3, 8)
  assert np.ptp(_rates(b)) > 0.5
  for _ in range(6):
    b = _equalized(b)
  np.testing.assert_allclose(b, np.geomspace(1.0, 1e-3, 8), rtol=0.02)
  np.testing.assert_allclose(_rates(b), _rates(b)[0], rtol=0.02)


def test_the_sum_of_rates_is_the_barrier():
  rates = _rates(np.geomspace(1.0, 1e-3, 30))
  np.testing.assert_allclose(rates.sum(), 0.5 * np.log(1e3), rtol=0.01)


@pytest.mark.parametrize('least', [0.0, 1e-2])
def test_ends_and_order_are_kept_whatever_the_rates(least):
  b = temperatures.first(7, least)
  assert b[0] == 1.0 and b[-1] == least
  for rates in (np.zeros(6), np.ones(6), np.eye(6)[2], np.eye(6)[5]):
    new = temperatures.equalize(tf.constant(b), tf.constant(rates)).numpy()
    assert new[0] == 1.0 and new[-1] == least
    assert np.all(np.diff(new) < 0.0)


def test_where_all_is_rejected_most_temperatures_go():
  b = temperatures.first(7, 1e-2)
  rates = np.eye(6)[4]
  new = temperatures.equalize(tf.constant(b), tf.constant(rates)).numpy()
  assert np.sum((new < b[4]) & (new > b[5])) >= 4


def test_rounds_double_and_end_in_the_middle():
  ends = temperatures.round_ends(1600)
  assert ends == (25, 50, 100, 200, 400, 800)
  assert temperatures.round_ends(40) == ()
