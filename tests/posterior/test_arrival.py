"""Chains that lie far below the others are lost, others are not."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.posterior import arrival


def _log_prob(size, num_draws=250, num_chains=8):
  draws = np.random.default_rng(0).normal(size=(num_draws, num_chains, size))
  return -0.5 * np.sum(draws**2, axis=-1)


@pytest.mark.parametrize('size', [1, 10, 1000])
def test_chains_of_one_posterior_have_arrived(size):
  assert not np.any(arrival.lost(_log_prob(size), size))


@pytest.mark.parametrize('size', [1, 10])
@pytest.mark.parametrize('depth', [1e3, 1e6, np.inf, np.nan])
def test_a_chain_far_below_has_not(size, depth):
  log_prob = _log_prob(size)
  log_prob[:, 3] -= depth
  assert np.flatnonzero(arrival.lost(log_prob, size)).tolist() == [3]


def test_a_mode_of_some_nats_less_is_a_mode():
  log_prob = _log_prob(2)
  log_prob[:, 3] -= 20.0
  assert not np.any(arrival.lost(log_prob, 2))


def test_a_chain_that_arrived_late_has_arrived():
  log_prob = _log_prob(2)
  log_prob[:100, 3] -= 1e6
  assert not np.any(arrival.lost(log_prob, 2))


def test_lost_chains_have_the_states_of_others():
  rows = np.arange(8.0).reshape(4, 2)
  found = arrival.replaced(rows, np.array([False, True, False, True]))
  np.testing.assert_array_equal(found, rows[[0, 0, 2, 2]])
  np.testing.assert_array_equal(rows, np.arange(8.0).reshape(4, 2))


def _with_a_ledge(x):
  """N(0, I), and a narrow peak 5000 nats below its top, at 60."""
  peak = -5000.0 - 0.5e6 * tf.reduce_sum((x - 60.0) ** 2, axis=-1)
  return tf.maximum(-0.5 * tf.reduce_sum(x**2, axis=-1), peak)


@pytest.mark.full
def test_one_lost_chain_costs_neither_matrix_nor_structure():
  starts = np.random.default_rng(0).normal(size=(8, 2))
  starts[3] = 60.0
  posterior = tfpa.sample_posterior(
    _with_a_ledge, init=starts, progress=False, seed=1
  )
  assert posterior.converged and posterior.choice == 'dense matrix'
  assert abs(posterior.unconstrained.std() - 1.0) < 0.05
