"""Modes are weighed by mass, and a reference that missed one says so."""

import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from experiments.config import Config
from experiments.panel import modes as panel_modes
from experiments.panel import reference
from experiments.targets.base import Target

tfd = tfp.distributions

_MEANS = np.array([[2.5, 0.0], [-2.5, 0.5]])
# The first is a sixteenth as large and, with a third of the mass, the higher.
_FACTORS = np.array([[[0.05, 0.0], [0.02, 0.1]], [[0.4, 0.0], [0.3, 0.2]]])
_MASSES = np.array([0.3, 0.7])
_SHIFT = 3.7


@pytest.fixture(scope='module')
def target():
  mixture = tfd.MixtureSameFamily(
    tfd.Categorical(probs=_MASSES),
    tfd.MultivariateNormalTriL(_MEANS, _FACTORS),
  )

  def target_log_prob_fn(x):
    return mixture.log_prob(x) + _SHIFT

  return Target(
    'mixture', target_log_prob_fn, 2, 'float64', constrain=lambda x: {'x': x}
  )


@pytest.fixture(scope='module')
def modes(target):
  return panel_modes.find_modes(target, num_climbs=40, seed=1)


def _draws(place, num_draws=500):
  noise = np.random.default_rng(place).normal(size=[num_draws, 2])
  return _MEANS[place] + noise @ _FACTORS[place].T


def test_the_lower_and_wider_mode_is_the_heavier(modes):
  assert modes.log_probs[0] < modes.log_probs[1]
  assert modes.num_climbs.sum() == 40
  np.testing.assert_allclose(modes.shares, _MASSES[::-1], atol=1e-6)
  np.testing.assert_allclose(modes.points, _MEANS[::-1], atol=1e-3)
  for precision, factor in zip(modes.precisions, _FACTORS[::-1], strict=True):
    np.testing.assert_allclose(
      np.linalg.inv(precision), factor @ factor.T, rtol=1e-3
    )


def test_around_the_heaviest_mode_the_density_is_a_standard_normal(
  target, modes
):
  moved, to_x = panel_modes.around_heaviest(target, modes)
  z = np.random.default_rng(2).normal(size=[9, 2])
  found = moved.target_log_prob_fn(tf.constant(z)).numpy()
  log_volume = np.linalg.slogdet(_FACTORS[1])[1]
  expected = -0.5 * np.sum(z**2, axis=-1) - np.log(2 * np.pi) - log_volume
  expected += np.log(_MASSES[1]) + _SHIFT
  np.testing.assert_allclose(found, expected, atol=2e-2)
  np.testing.assert_array_equal(moved.constrain(z)['x'], to_x(z))
  np.testing.assert_allclose(to_x(z[:0]).shape, (0, 2))
  np.testing.assert_allclose(to_x(np.zeros(2)), _MEANS[1], atol=1e-3)


def test_a_mode_without_draws_is_named(modes):
  assert panel_modes.unvisited(modes, _draws(1)) == [1]
  assert panel_modes.unvisited(modes, _draws(0)) == [0]
  both = np.stack([_draws(0), _draws(1)], axis=1)
  assert panel_modes.unvisited(modes, both) == []


def test_a_mode_of_hardly_any_mass_need_not_be_visited(modes):
  light = modes._replace(shares=np.array([0.9995, 0.0005]))
  assert panel_modes.unvisited(light, _draws(1)) == []


def test_a_reference_that_missed_a_mode_is_not_converged(target):
  # By R-hat and effective sample size it is: no chain left the heavier mode.
  config = Config(
    name='reference',
    target={'name': 'Banana'},  # not read
    methods=[{'name': 'rwm'}],
    num_chains=8,
    num_adaptation_steps=300,
    num_results=1000,
  )
  gates = types.SimpleNamespace(min_ess=100)
  found = reference.by_sampling(target, config, gates, seed=3, num_climbs=20)
  assert found['max_rhat'] < 1.01
  assert found['min_ess'] > 1000
  assert not found['is_converged']
  assert found['modes_without_draws'] == [1]
  assert [mode['share'] > 0.5 for mode in found['modes']] == [True, False]
  np.testing.assert_allclose(found['mean'], _MEANS[1], atol=0.05)
  deviation = np.sqrt(np.diag(_FACTORS[1] @ _FACTORS[1].T))
  np.testing.assert_allclose(found['deviation'], deviation, rtol=0.05)
