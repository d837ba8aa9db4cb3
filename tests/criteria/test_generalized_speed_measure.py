"""The generalised speed measure: its value, its weight beta, its bounds."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import parts


def _paper(**options):
  arguments = dict(target_accept_prob=0.55, entropy_weight_rule='acceptance')
  return tfpa.criteria.generalized_speed_measure(**dict(arguments, **options))


def _at(log_accept_ratio, is_accepted=None):
  ratio = tf.constant(log_accept_ratio, tf.float64)
  moved = parts.transition(len(log_accept_ratio))._replace(
    log_accept_ratio=ratio
  )
  if is_accepted is not None:
    moved = moved._replace(is_accepted=tf.constant(is_accepted))
  return moved


def test_the_value_is_the_log_of_the_acceptance_probability():
  criterion = _paper()
  state = criterion.init(parts.ADAPTATION)
  values = criterion.value(state, _at([-2.0, 0.5, 0.0, -0.1]))
  np.testing.assert_allclose(values, [-2.0, 0.0, 0.0, -0.1])


def test_only_proposals_below_ratio_one_have_a_gradient():
  criterion = _paper()
  ratio = tf.constant([-2.0, 0.5, 3.0, -0.1], tf.float64)
  with tf.GradientTape() as tape:
    tape.watch(ratio)
    moved = parts.transition()._replace(log_accept_ratio=ratio)
    value = tf.reduce_sum(
      criterion.value(criterion.init(parts.ADAPTATION), moved)
    )
  np.testing.assert_array_equal(tape.gradient(value, ratio), [1, 0, 0, 1])


def test_a_diverged_chain_has_no_value_and_no_gradient():
  criterion = _paper()
  # A diverged chain's stand-in ratio is 0, where min(0, r) has a gradient.
  moved = parts.transition(4, num_diverged=2)
  ratio = tf.constant([0.0, 0.0, -1.0, -2.0], tf.float64)
  with tf.GradientTape() as tape:
    tape.watch(ratio)
    values = criterion.value(
      criterion.init(parts.ADAPTATION), moved._replace(log_accept_ratio=ratio)
    )
  np.testing.assert_array_equal(values, [0.0, 0.0, -1.0, -2.0])
  np.testing.assert_array_equal(tape.gradient(values, ratio), [0, 0, 1, 1])


def test_beta_follows_the_acceptance_as_in_the_paper():
  criterion = _paper(entropy_weight_rate=0.02)
  state = criterion.init(parts.ADAPTATION)
  expected = 1.0
  for ratios in ([-2.0, 0.5], [-0.3, -4.0], [1.0, 2.0]):
    state = parts.update_criterion(criterion, state, _at(ratios))
    mean = np.mean(np.minimum(1.0, np.exp(ratios)))
    expected *= 1.0 + 0.02 * (mean - 0.55)
    np.testing.assert_allclose(state.entropy_weight, expected, rtol=1e-12)


def test_beta_can_follow_the_decision_itself():
  criterion = _paper(use_accept_flag=True)
  state = parts.update_criterion(
    criterion,
    criterion.init(parts.ADAPTATION),
    _at([-2.0, 0.5], is_accepted=[True, True]),
  )
  np.testing.assert_allclose(state.entropy_weight, 1.0 + 0.02 * 0.45)


def test_a_diverged_chain_counts_as_rejected():
  criterion = _paper()
  moved = _at([0.0, 0.0])._replace(is_finite=tf.constant([True, False]))
  state = parts.update_criterion(
    criterion, criterion.init(parts.ADAPTATION), moved
  )
  np.testing.assert_allclose(state.entropy_weight, 1.0 + 0.02 * (0.5 - 0.55))


@pytest.mark.parametrize('ratio, bound', [(-50.0, 0.5), (50.0, 2.0)])
def test_beta_stays_within_its_bounds(ratio, bound):
  criterion = _paper(min_entropy_weight=0.5, max_entropy_weight=2.0)
  state = criterion.init(parts.ADAPTATION)
  for _ in range(200):
    state = parts.update_criterion(criterion, state, _at([ratio]))
  assert float(state.entropy_weight) == bound
  assert criterion.bounds == {'entropy_weight': (0.5, 2.0)}


def test_the_balance_rule_finds_the_weight_at_which_the_slopes_cancel():
  criterion = tfpa.criteria.generalized_speed_measure(0.55)
  state = criterion.init(parts.ADAPTATION)
  rng = np.random.default_rng(0)
  num_steps, noise = 300, 0.1
  for _ in range(num_steps):
    state = parts.update_criterion(
      criterion,
      state,
      _at([-0.5, 0.1]),
      parts.slopes(value=-0.8 + noise * rng.normal(), entropy=1.0),
    )
  # A running mean over at least a fifth of the steps.
  standard_error = noise / (num_steps / 20) ** 0.5
  assert abs(float(state.entropy_weight) - 0.8) < 4 * standard_error


def test_a_batch_that_diverged_leaves_the_balance_finite():
  criterion = tfpa.criteria.generalized_speed_measure(0.55)
  state = criterion.init(parts.ADAPTATION)
  for entropy in (1.0, -1.0, 0.0):
    state = parts.update_criterion(
      criterion, state, _at([-0.5]), parts.slopes(value=0.0, entropy=entropy)
    )
    assert np.isfinite(state.entropy_weight)
    assert float(state.entropy_weight) >= 0.0


@pytest.mark.parametrize('prob', [0.0, 1.0, -0.1, 1.5])
def test_impossible_acceptances_are_refused(prob):
  with pytest.raises(ValueError, match='strictly between 0 and 1'):
    tfpa.criteria.generalized_speed_measure(prob)


def test_unknown_rules_are_refused():
  with pytest.raises(ValueError, match="'balance' or 'acceptance'"):
    tfpa.criteria.generalized_speed_measure(0.5, entropy_weight_rule='mine')
