"""Temperatures at equal rejection: against the barrier of a plane Gaussian.

Of powers b of N(0, I) in the plane U = |x|^2 / 2 is exponential with rate b, so
that exchanges of a and b < a are rejected with probability (a - b) / (a + b)
and the barrier is log(1 / b) / 2: the best temperatures are geometric.
"""

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.tempering import temperatures


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
