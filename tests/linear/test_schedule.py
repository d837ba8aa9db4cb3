"""Rates that need no tuning: their formula and their limits."""

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import parts
from tfp_adaptive.linear import schedule


def _rates(num_steps, **sizes):
  problem = parts.PROBLEM._replace(**sizes)
  return np.array(
    [
      float(schedule.covariance_rate(tf.constant(t, tf.float64), problem))
      for t in np.arange(num_steps, dtype=np.float64)
    ]
  )


@pytest.mark.parametrize('num_chains', [1, 10, 1000])
def test_the_rate_is_the_documented_one(num_chains):
  rates = _rates(50, event_size=10, num_params=100, num_chains=num_chains)
  expected = 4.0 / (np.arange(50) + 8.0 * (1.0 + 10.0) / num_chains)
  np.testing.assert_allclose(rates, np.minimum(expected, 0.5), rtol=1e-12)


def test_means_follow_five_times_faster_than_the_covariance():
  t = np.array([0.0, 12.0, 32.0, 92.0, 1e6])
  weights = schedule.smoothing_weight(
    tf.constant(t), parts.PROBLEM, tf.constant(False)
  )
  # Three params per coordinate and four chains: 4 / (t + 8).
  expected = [1.0, 1.0, 0.5, 0.2, 20.0 / (1e6 + 8.0)]
  np.testing.assert_allclose(weights, expected, rtol=1e-12)


def test_what_came_first_is_averaged_where_the_covariance_waits():
  t = np.array([0.0, 1.0, 9.0])
  problem = parts.PROBLEM._replace(num_params=9000)
  weights = schedule.smoothing_weight(
    tf.constant(t), problem, tf.constant(False)
  )
  np.testing.assert_allclose(weights, [1.0, 0.5, 0.1], rtol=1e-12)


@pytest.mark.parametrize(
  'sizes, period',
  [
    (dict(event_size=100, num_params=100, num_chains=1), 1),
    (dict(event_size=100, num_params=10_000, num_chains=1), 16),
    (dict(event_size=100, num_params=10_000, num_chains=10), 10),
    (dict(event_size=100, num_params=10_000, num_chains=1000), 1),
  ],
)
def test_moves_are_summed_only_where_they_are_dear(sizes, period):
  problem = parts.PROBLEM._replace(**sizes)
  assert float(schedule.update_period(problem)) == period
