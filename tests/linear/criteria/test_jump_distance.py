"""Criteria of jump distance: values in units of their moving mean."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import parts
from tests.contracts import registry
from tests.contracts import targets

_BUILDERS = [
  tfpa.gradient_adaptive_random_walk,
  tfpa.gradient_adaptive_langevin,
  functools.partial(tfpa.entropy_adaptive_hamiltonian, num_leapfrog_steps=2),
]
_FACTORIES = ['expected_squared_jump_distance', 'l2hmc']


def _distance(moved):
  accept_prob = np.exp(np.minimum(moved.log_accept_ratio, 0.0))
  return accept_prob * np.sum(np.square(moved.displacement), axis=-1)


def _after_one(name):
  """Returns the criterion, its state after one step, and that step."""
  criterion = getattr(tfpa.criteria, name)()
  moved = parts.transition(seed=1)
  state = parts.update_criterion(
    criterion, criterion.init(parts.PROBLEM), moved
  )
  return criterion, state, moved


@pytest.mark.parametrize('name', _FACTORIES)
def test_the_moving_mean_starts_at_the_first_mean_and_follows(name):
  criterion, state, first = _after_one(name)
  mean = _distance(first).mean()
  np.testing.assert_allclose(state.moving_distance, mean)
  second = parts.transition(seed=2)
  state = parts.update_criterion(criterion, state, second)
  np.testing.assert_allclose(
    state.moving_distance, 0.99 * mean + 0.01 * _distance(second).mean()
  )


def test_the_jump_distance_is_in_units_of_its_mean():
  criterion, state, first = _after_one('expected_squared_jump_distance')
  moved = parts.transition(seed=2)
  np.testing.assert_allclose(
    criterion.value(state, moved), _distance(moved) / _distance(first).mean()
  )


def test_l2hmc_punishes_standing_still_as_much_as_a_hundredth_of_the_mean():
  criterion, state, first = _after_one('l2hmc')
  moved = parts.transition(seed=2)
  scale = tf.constant([[1.0], [1.0], [0.2], [1e-3]], tf.float64)
  moved = moved._replace(displacement=scale * moved.displacement)
  ratio = _distance(moved) / _distance(first).mean()
  printed = ratio - 1.0 / ratio
  # The papers have no floor: the last chain, which hardly moves, differs alone.
  is_short = ratio < 0.01
  assert list(is_short) == [False, False, False, True]
  np.testing.assert_allclose(
    criterion.value(state, moved), np.where(is_short, ratio - 100.0, printed)
  )


def _push(name):
  """Returns what moves the log scale outwards where all moves are rejected."""
  criterion = registry.criterion(name)
  state = criterion.init(parts.PROBLEM)
  log_scale = tf.constant(0.0, tf.float64)
  for _ in range(3):
    with tf.GradientTape() as tape:
      tape.watch(log_scale)
      moved = _rejected(tf.exp(log_scale))
      value = tf.reduce_mean(criterion.value(state, moved))
    slope = float(tape.gradient(value, log_scale))
    state = criterion.update(state, moved, parts.slopes(), parts.PROBLEM)
  return slope + float(criterion.feedback(state, moved).scale_force)


def _rejected(scale):
  """Returns a transition whose moves are all far too wide."""
  moved = parts.transition()
  return moved._replace(
    log_accept_ratio=-1e4 * scale**2 * tf.ones([4], tf.float64),
    displacement=scale * moved.displacement,
  )


@pytest.mark.parametrize('name', registry.CRITERIA)
def test_holds_scale_says_whether_a_scale_comes_back_from_rejection(name):
  if registry.criterion(name).holds_scale:
    assert _push(name) < 0.0
  else:
    assert _push(name) == 0.0


@pytest.mark.parametrize('builder', _BUILDERS)
@pytest.mark.parametrize('name', _FACTORIES)
def test_relative_optimizers_refuse_what_does_not_hold_the_scale(name, builder):
  build = functools.partial(
    builder,
    target_log_prob_fn=targets.standard_normal,
    num_adaptation_steps=10,
    criterion=getattr(tfpa.criteria, name)(0.6),
  )
  with pytest.raises(ValueError, match=r'optimizers\.adam\(1e-3\)'):
    build()
  with pytest.raises(ValueError, match='`relative_gradient` can raise it'):
    build(optimizer=tfpa.optimizers.relative_gradient(2.0))
  assert build(optimizer=tfpa.optimizers.adam(1e-3)).criterion.name == name
