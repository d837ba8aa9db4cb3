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


def test_more_chains_never_slow_the_adaptation_down():
  few, many = _rates(30, num_chains=1), _rates(30, num_chains=100)
  assert np.all(many >= few) and many[0] > few[0]


@pytest.mark.parametrize('t', [0.0, 1.0, 1e2, 1e6])
def test_smoothing_weights_are_weights(t):
  def weight(is_searching):
    return float(
      schedule.smoothing_weight(
        tf.constant(t, tf.float64), parts.PROBLEM, tf.constant(is_searching)
      )
    )

  assert 0.0 < weight(False) <= 1.0
  assert weight(False) >= 1.0 / (t + 1.0)
  assert 0.0 < weight(True) <= 1.0


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
