"""Modes are weighed by mass, and a reference that missed one says so."""

import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from experiments.papers.config import Config
from experiments.run.errors import ConfigError
from experiments.studies import panel_references as reference
from experiments.studies.panel import modes as panel_modes
from experiments.targets.base import Target

tfd = tfp.distributions

_MEANS = np.array([[2.5, 0.0], [-2.5, 0.5]])
# The first is a sixteenth as large and, with a third of the mass, the higher.
_FACTORS = np.array([[[0.05, 0.0], [0.02, 0.1]], [[0.4, 0.0], [0.3, 0.2]]])
_MASSES = np.array([0.3, 0.7])
_SHIFT = 3.7


def _mixture(masses, means, factors, dtype='float64'):
  mixture = tfd.MixtureSameFamily(
    tfd.Categorical(probs=np.asarray(masses, dtype)),
    tfd.MultivariateNormalTriL(means.astype(dtype), factors.astype(dtype)),
  )

  def target_log_prob_fn(x):
    return mixture.log_prob(x) + _SHIFT

  return Target('mixture', target_log_prob_fn, means.shape[-1], dtype)


def _gaussian_ended(gaps, precision, log_probs=None):
  """Climbs that ended at `gaps`, all with the same P = precision I."""
  gaps = np.asarray(gaps, float)
  size = len(gaps), gaps.shape[1]
  precisions = np.broadcast_to(precision * np.eye(size[1]), [*size, size[1]])
  log_probs = np.zeros(len(gaps)) if log_probs is None else log_probs
  return panel_modes._distinct(gaps, precisions, np.asarray(log_probs, float))


@pytest.fixture(scope='module')
def target():
  return _mixture(_MASSES, _MEANS, _FACTORS)


@pytest.fixture(scope='module')
def modes(target):
  return panel_modes.find_modes(target, num_climbs=40, seed=1)


@pytest.mark.full
def test_the_lower_and_wider_mode_is_the_heavier(modes):
  assert modes.log_probs[0] < modes.log_probs[1]
  assert modes.counts.sum() == 40
  assert modes.num_lost == 0
  np.testing.assert_allclose(modes.shares, _MASSES[::-1], atol=1e-6)
  np.testing.assert_allclose(modes.points, _MEANS[::-1], atol=1e-3)
  for precision, factor in zip(modes.precisions, _FACTORS[::-1], strict=True):
    np.testing.assert_allclose(
      np.linalg.inv(precision), factor @ factor.T, rtol=1e-3
    )


def test_around_the_heaviest_mode_the_density_is_a_standard_normal(
  target, modes
):
  log_prob, to_x, to_z = panel_modes.in_coordinates_of_the_heaviest(
    target, modes
  )
  z = np.random.default_rng(2).normal(size=[9, 2])
  log_volume = np.linalg.slogdet(_FACTORS[1])[1]
  expected = -0.5 * np.sum(z**2, axis=-1) - np.log(2 * np.pi) - log_volume
  expected += np.log(_MASSES[1]) + _SHIFT
  np.testing.assert_allclose(log_prob(tf.constant(z)), expected, atol=2e-2)
  np.testing.assert_allclose(
    target.target_log_prob_fn(tf.constant(to_x(z))), log_prob(tf.constant(z))
  )
  np.testing.assert_allclose(to_z(to_x(z)), z, atol=1e-9)
  np.testing.assert_allclose(to_x(np.zeros(2)), _MEANS[1], atol=1e-3)


def test_chains_start_in_the_modes_in_turn_as_wide_as_these(modes):
  starts = modes.starts(2000, num_modes=2, seed=5)
  for i, place in enumerate((1, 0)):
    found = starts[i::2]
    np.testing.assert_allclose(found.mean(axis=0), _MEANS[place], atol=0.05)
    expected = _FACTORS[place] @ _FACTORS[place].T
    np.testing.assert_allclose(np.cov(found.T), expected, rtol=0.15)
  near = modes.starts(8, num_modes=1, seed=5)
  assert np.all(near[:, 0] < 0)


def test_climbs_that_did_not_quite_arrive_are_of_one_mode():
  d = 49
  rng = np.random.default_rng(3)
  stopped = 0.3 * rng.normal(size=[100, d])
  # Fifteen deviations off: another mode.
  other = stopped[:3] + 15.0 * np.eye(d)[0]
  found = _gaussian_ended(np.concatenate([stopped, other]), precision=1.0)
  assert list(found.counts) == [100, 3]
  np.testing.assert_allclose(found.shares, [0.5, 0.5])


def test_the_weights_hold_height_and_volume():
  points = np.array([[0.0], [100.0]])
  precisions = np.array([[[1.0]], [[16.0]]])
  found = panel_modes._distinct(points, precisions, np.log([1.0, 2.0]))
  # exp(height) / sqrt(P): 1 and 2 / 4.
  np.testing.assert_allclose(found.shares, [2 / 3, 1 / 3])
  np.testing.assert_allclose(found.points[0], [0.0])


def test_many_light_modes_count_together():
  heights = np.log([1.0] + 200 * [1e-3])
  points = 100.0 * np.arange(201)[:, None]
  found = _gaussian_ended(points, 1.0, heights)
  assert found.num_heavy(0.2) == 1
  # 1.2 in all: of it 1e-3 are 1.2 modes, so all but one are needed.
  assert found.num_heavy(1e-3) == 200


def test_saddles_and_climbs_that_got_lost_do_no_harm():
  def log_prob(x):
    # A saddle in the second coordinate; nothing but NaN where x_0 < 0.
    value = -0.5 * (x[..., 0] - 3) ** 2 + 1e-6 * x[..., 1] ** 2
    nan = tf.fill(tf.shape(value), tf.constant(np.nan, x.dtype))
    return tf.where(x[..., 0] < 0, nan, value)

  target = Target('half', log_prob, 2, 'float64')
  found = panel_modes.find_modes(target, num_climbs=16, seed=0)
  assert 0 < found.num_lost < 16
  assert found.num_lost + found.counts.sum() == 16
  assert np.isfinite(found.shares).all()
  assert np.linalg.eigvalsh(found.precisions).min() > 0
  summary = found.summary()
  assert summary['num_climbs'] == 16
  assert summary['num_lost_climbs'] == found.num_lost


def test_no_climb_that_arrives_is_an_error():
  def log_prob(x):
    return x[..., 0] * np.nan

  target = Target('nowhere', log_prob, 2, 'float32')
  with pytest.raises(ConfigError, match='None of 4 climbs on nowhere'):
    panel_modes.find_modes(target, num_climbs=4, seed=0)


def _reference(target, num_results=1000):
  config = Config(
    name='reference',
    target={'name': 'Banana'},  # Not read.
    methods=[{'name': 'rwm'}],
    num_chains=8,
    num_adaptation_steps=300,
    num_results=num_results,
  )
  gates = types.SimpleNamespace(min_ess=100)
  return reference.by_sampling(target, config, gates, seed=3, num_climbs=20)


@pytest.mark.full
def test_a_reference_whose_chains_do_not_mix_is_not_converged(target):
  found = _reference(target)
  assert found['num_modes_with_chains'] == 2
  assert found['max_rhat'] > 1.5
  assert not found['is_converged']


@pytest.mark.full
def test_a_reference_whose_chains_mix_is_as_the_mixture():
  # Four deviations between the modes, and a condition number of 10^4.
  means = np.array([[0.0, 0.0, -2.0], [0.0, 0.0, 2.0]])
  factor = np.array([[0.01, 0, 0], [0.5, 0.5, 0], [0.0, 0.0, 1.0]])
  masses = np.array([0.8, 0.2])
  mixture = _mixture(masses, means, np.stack([factor, factor]), 'float32')
  found = _reference(mixture, num_results=4000)
  assert found['is_converged']
  assert found['num_modes_with_chains'] == 2
  assert found['share_without_chain'] < 1e-6
  assert [mode['share'] > 0.5 for mode in found['modes']['heaviest']] == [
    True,
    False,
  ]
  mean = masses @ means
  variance = np.sum(factor**2, axis=1) + masses @ means**2 - mean**2
  z = (np.asarray(found['mean']) - mean) / found['standard_error']
  assert np.all(np.abs(z) < 4)
  np.testing.assert_allclose(found['deviation'], np.sqrt(variance), rtol=0.05)
