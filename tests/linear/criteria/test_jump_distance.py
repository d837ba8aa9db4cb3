"""Criteria of jump distance: values in units of their moving mean."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import parts

_FACTORIES = ['expected_squared_jump_distance', 'l2hmc']


def _distance(moved):
  accept_prob = np.exp(np.minimum(moved.log_accept_ratio, 0.0))
  return accept_prob * np.sum(np.square(moved.displacement), axis=-1)


def _after_one(name, **options):
  """Returns the criterion, its state after one step, and that step."""
  criterion = getattr(tfpa.criteria, name)(**options)
  moved = parts.transition(seed=1)
  state = parts.update_criterion(
    criterion, criterion.init(parts.PROBLEM), moved
  )
  return criterion, state, moved


@pytest.mark.parametrize('name', _FACTORIES)
def test_the_moving_mean_starts_at_the_first_mean_and_follows(name):
  criterion, state, first = _after_one(name, smoothing=0.9)
  mean = _distance(first).mean()
  np.testing.assert_allclose(state.moving_distance, mean)
  second = parts.transition(seed=2)
  state = parts.update_criterion(criterion, state, second)
  np.testing.assert_allclose(
    state.moving_distance, 0.9 * mean + 0.1 * _distance(second).mean()
  )


def test_the_jump_distance_is_in_units_of_its_mean():
  criterion, state, first = _after_one('expected_squared_jump_distance')
  moved = parts.transition(seed=2)
  np.testing.assert_allclose(
    criterion.value(state, moved), _distance(moved) / _distance(first).mean()
  )


def test_l2hmc_punishes_standing_still():
  criterion, state, first = _after_one('l2hmc', floor=1e-3)
  moved = parts.transition(seed=2)
  ratio = _distance(moved) / _distance(first).mean()
  np.testing.assert_allclose(
    criterion.value(state, moved), ratio - 1.0 / np.maximum(ratio, 1e-3)
  )


@pytest.mark.parametrize('name', _FACTORIES)
def test_values_do_not_depend_on_the_units_of_the_state(name):
  values = []
  for scale in (1.0, 1e6):
    criterion = getattr(tfpa.criteria, name)()
    state = criterion.init(parts.PROBLEM)
    for seed in range(3):
      moved = parts.transition(seed=seed)
      moved = moved._replace(displacement=scale * moved.displacement)
      value = criterion.value(state, moved)
      state = parts.update_criterion(criterion, state, moved)
    values.append(value)
  np.testing.assert_allclose(values[0], values[1], rtol=1e-9)


@pytest.mark.parametrize('name', _FACTORIES)
def test_longer_jumps_score_higher(name):
  criterion, state, _ = _after_one(name)
  scale = tf.constant(1.0, tf.float64)
  with tf.GradientTape() as tape:
    tape.watch(scale)
    moved = parts.transition(seed=2)
    moved = moved._replace(displacement=scale * moved.displacement)
    value = tf.reduce_mean(criterion.value(state, moved))
  assert float(tape.gradient(value, scale)) > 0.0


@pytest.mark.parametrize('name', _FACTORIES)
def test_rejecting_everything_leaves_the_values_finite(name):
  criterion = getattr(tfpa.criteria, name)()
  state = criterion.init(parts.PROBLEM)
  moved = parts.transition()._replace(
    log_accept_ratio=tf.fill([4], tf.constant(-1e4, tf.float64))
  )
  for _ in range(2):
    assert np.all(np.isfinite(criterion.value(state, moved)))
    state = parts.update_criterion(criterion, state, moved)
    assert np.isfinite(state.moving_distance)
