"""Chains that lie far below the others are lost, others are not."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.posterior.starts import arrival


def _normal(size, num_draws=250, num_chains=8):
  """Returns log densities and draws of chains of N(0, I)."""
  draws = np.random.default_rng(0).normal(size=(num_draws, num_chains, size))
  return -0.5 * np.sum(draws**2, axis=-1), draws


@pytest.mark.parametrize('size', [1, 10, 1000])
def test_chains_of_one_posterior_have_arrived(size):
  assert not np.any(arrival.lost(*_normal(size)))


@pytest.mark.parametrize('size', [1, 10])
@pytest.mark.parametrize('depth', [1e3, 1e6, np.inf, np.nan])
def test_a_chain_far_below_has_not(size, depth):
  log_prob, draws = _normal(size)
  log_prob[:, 3] -= depth
  assert np.flatnonzero(arrival.lost(log_prob, draws)).tolist() == [3]


@pytest.mark.parametrize(
  'depth, scale, is_mode',
  # Its mass is exp(-depth) scale^2 of the others'.
  [
    (10.0, 1.0, True),
    (35.0, 1.0, False),
    (35.0, 1e5, True),
    (-30.0, 1e-6, True),
    (0.0, 1e-8, False),
    (0.0, 0.0, False),
  ],
)
def test_a_mode_is_one_by_its_mass(depth, scale, is_mode):
  log_prob, draws = _normal(2)
  log_prob[:, 3] -= depth
  draws[:, 3] = 50.0 + scale * draws[:, 3]
  assert np.any(arrival.lost(log_prob, draws)) != is_mode


def test_masses_are_those_of_normal_modes():
  # Half of the chains in each of two normal modes of known mass.
  scales = np.where(np.arange(8) < 4, 1.0, 1e-3)
  log_prob, draws = _normal(3, num_draws=4000)
  found = 0.5 * arrival._log_dets(draws * scales[:, None])
  np.testing.assert_allclose(found, 3.0 * np.log(scales), atol=0.1)


@pytest.mark.parametrize('autocorrelation', [0.0, 0.95])
def test_a_chain_in_the_neck_of_a_funnel_holds_mass(autocorrelation):
  # N(0, 3) for log_scale, then nine coordinates of this scale.
  rng = np.random.default_rng(0)
  log_scale = np.where(np.arange(8) < 6, 1.0, -5.0)
  log_scale = log_scale + rng.normal(0.0, 0.3, (250, 8))
  z = rng.normal(size=(250, 8, 9))
  for t in range(1, 250):
    z[t] *= np.sqrt(1.0 - autocorrelation**2)
    z[t] += autocorrelation * z[t - 1]
  draws = np.concatenate(
    [log_scale[..., None], np.exp(log_scale)[..., None] * z], axis=-1
  )
  log_prob = -((log_scale / 3.0) ** 2) / 2.0 - 9.0 * log_scale
  log_prob = log_prob - 0.5 * np.sum(z**2, axis=-1)
  assert not np.any(arrival.lost(log_prob, draws))


def test_a_chain_that_arrived_late_has_arrived():
  log_prob, draws = _normal(2)
  log_prob[:100, 3] -= 1e6
  assert not np.any(arrival.lost(log_prob, draws))


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
