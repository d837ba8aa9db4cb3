"""The generalised speed measure: its value, its weight beta, its bounds."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import parts
from tests.contracts import targets


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


def _value_and_gradient(criterion, ratio, num_diverged=0):
  """Returns the values of chains with these log ratios, and their gradient."""
  state = criterion.init(parts.PROBLEM)
  moved = parts.transition(len(ratio), num_diverged)
  return targets.value_and_gradient(
    lambda r: criterion.value(state, moved._replace(log_accept_ratio=r)),
    tf.constant(ratio, tf.float64),
  )


def _updated(criterion, moved, slope=None):
  """Returns the state after one update from the start."""
  start = criterion.init(parts.PROBLEM)
  return parts.update_criterion(criterion, start, moved, slope)


def test_the_value_is_the_log_of_the_acceptance_probability():
  # Only proposals below ratio one have a gradient.
  values, slopes = _value_and_gradient(_paper(), [-2.0, 0.5, 3.0, -0.1])
  np.testing.assert_allclose(values, [-2.0, 0.0, 0.0, -0.1])
  np.testing.assert_array_equal(slopes, [1, 0, 0, 1])
  # A diverged chain's stand-in ratio is 0, where min(0, r) has a gradient.
  values, slopes = _value_and_gradient(_paper(), [0.0, 0.0, -1.0, -2.0], 2)
  np.testing.assert_allclose(values, [0.0, 0.0, -1.0, -2.0])
  np.testing.assert_array_equal(slopes, [0, 0, 1, 1])


def test_bounded_no_chain_outweighs_the_others():
  criterion = _paper(entropy_weight_rule='balance', bound_log_ratio=True)
  value, slope = _value_and_gradient(criterion, [-1000.0, -3.0, -0.1, 0.5])
  # R atan(r / R) with R = 3: the integral of 1 / (1 + (r / R)^2).
  np.testing.assert_allclose(
    value[1:], [-0.75 * np.pi, -0.1 + 0.1**3 / 27.0, 0.0], rtol=1e-6
  )
  assert value[0] > -1.5 * np.pi
  expected = [9e-6, 0.5, 1.0 / (1.0 + 1e-2 / 9.0), 0.0]
  np.testing.assert_allclose(slope, expected, rtol=1e-4)


@pytest.mark.parametrize('is_bounded, lowest', [(True, 0.075), (False, 1e-10)])
def test_bounded_beta_keeps_off_zero(is_bounded, lowest):
  # (1 - 0.55) / 2 per coordinate of three.
  criterion = _paper(entropy_weight_rule='balance', bound_log_ratio=is_bounded)
  state = _updated(criterion, _at([-1e9, -1e9]), parts.slopes(value=-1e-12))
  np.testing.assert_allclose(state.entropy_weight, lowest)


def test_beta_follows_the_acceptance_as_in_the_paper():
  criterion = _paper(entropy_weight_rate=0.02)
  state = criterion.init(parts.PROBLEM)
  expected = 1.0
  for ratios in ([-2.0, 0.5], [-0.3, -4.0], [1.0, 2.0]):
    state = parts.update_criterion(criterion, state, _at(ratios))
    mean = np.mean(np.minimum(1.0, np.exp(ratios)))
    expected *= 1.0 + 0.02 * (mean - 0.55)
    np.testing.assert_allclose(state.entropy_weight, expected, rtol=1e-12)


def test_beta_counts_decisions_and_a_diverged_chain_as_rejected():
  moved = _at([-2.0, 0.5], is_accepted=[True, True])
  state = _updated(_paper(use_accept_flag=True), moved)
  np.testing.assert_allclose(state.entropy_weight, 1.0 + 0.02 * 0.45)
  moved = _at([0.0, 0.0])._replace(is_finite=tf.constant([True, False]))
  state = _updated(_paper(), moved)
  np.testing.assert_allclose(state.entropy_weight, 1.0 + 0.02 * (0.5 - 0.55))


@pytest.mark.parametrize('ratio, bound', [(-50.0, 0.5), (50.0, 2.0)])
def test_beta_stays_within_its_bounds(ratio, bound):
  criterion = _paper(min_entropy_weight=0.5, max_entropy_weight=2.0)
  state = criterion.init(parts.PROBLEM)
  for _ in range(200):
    state = parts.update_criterion(criterion, state, _at([ratio]))
  assert float(state.entropy_weight) == bound
  assert criterion.bounds(parts.PROBLEM) == {'entropy_weight': (0.5, 2.0)}


def test_the_balance_rule_finds_the_weight_at_which_the_slopes_cancel():
  criterion = tfpa.criteria.generalized_speed_measure(0.55)
  state = criterion.init(parts.PROBLEM)
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


def _steered(accept_prob, value, entropy, rule, num_updates=1):
  """Returns the criterion, its state and feedback after equal updates."""
  criterion = tfpa.criteria.generalized_speed_measure(
    0.55, entropy_weight_rule=rule
  )
  state = criterion.init(parts.PROBLEM)
  moved = _at([np.log(accept_prob)])
  for _ in range(num_updates):
    state = parts.update_criterion(
      criterion, state, moved, parts.slopes(value, entropy)
    )
  return criterion, state, criterion.feedback(state, moved)


# Under the constraint slopes are those of log det(I + D) and of log |det C|;
# their sum is that of the entropy. Where enough is accepted it moves the scale.
@pytest.mark.parametrize(
  'rule, accept_prob, value, entropy, force',
  [
    *(('balance', p, -0.4, h, p - 0.55) for p in (0.1, 1.0) for h in (1.0, -3)),
    *(
      ('constraint', 0.9, v, 1.0, 0.25 * (v + 1.0)) for v in (-0.8, -1.0, -1.8)
    ),
    *(('constraint', 0.2, v, 1.0, 0.2 - 0.55) for v in (0.0, -1.0)),
    ('acceptance', 0.9, -0.4, 1.0, 0.0),
  ],
)
def test_the_force_on_the_scale_is_that_of_the_rule(
  rule, accept_prob, value, entropy, force
):
  _, _, feedback = _steered(accept_prob, value, entropy, rule)
  np.testing.assert_allclose(feedback.scale_force, force, atol=1e-12)


def test_the_side_is_chosen_by_means_and_the_force_is_of_this_step():
  criterion, state, _ = _steered(0.9, -0.9, 1.0, 'constraint', num_updates=50)
  moved = _at([np.log(0.2)])  # One bad step after many good ones.
  state = parts.update_criterion(
    criterion, state, moved, parts.slopes(value=-0.7, entropy=1.0)
  )
  force = criterion.feedback(state, moved).scale_force
  np.testing.assert_allclose(force, 0.25 * 0.3)


def _settled(rule, widest_accepted, num_steps=120):
  """Follows the force; returns acceptance, entropy slope and scale at the end.

  Acceptance 1 / (1 + (h / widest)^4); the entropy is greatest at h = 1.
  """
  criterion = tfpa.criteria.generalized_speed_measure(
    0.55, entropy_weight_rule=rule
  )
  state = criterion.init(parts.PROBLEM)
  scale = 0.2
  for _ in range(num_steps):
    accept_prob = 1.0 / (1.0 + (scale / widest_accepted) ** 4)
    moved = _at([np.log(accept_prob)])
    state = parts.update_criterion(
      criterion, state, moved, parts.slopes(value=-(scale**2), entropy=1.0)
    )
    force = criterion.feedback(state, moved).scale_force
    scale *= float(np.exp(0.4 * force))
  return accept_prob, 1.0 - scale**2, scale


@pytest.mark.parametrize('rule', ['balance', 'constraint'])
def test_the_scale_settles_at_the_wanted_acceptance_where_entropy_rises(rule):
  accept_prob, slope, scale = _settled(rule, widest_accepted=0.5)
  assert abs(accept_prob - 0.55) < 1e-3 and slope > 0.5
  np.testing.assert_allclose(scale, 0.5 * (1 / 0.55 - 1) ** 0.25, rtol=1e-3)


def test_constrained_the_scale_settles_at_the_greatest_entropy():
  accept_prob, slope, scale = _settled('constraint', widest_accepted=2.0)
  assert abs(slope) < 1e-3
  np.testing.assert_allclose([accept_prob, scale], [16 / 17, 1.0], rtol=1e-3)
  # The negative control: balanced, it goes beyond.
  accept_prob, slope, _ = _settled('balance', widest_accepted=2.0)
  assert abs(accept_prob - 0.55) < 1e-3 and slope < -0.5


def test_constrained_value_and_entropy_are_the_two_parts_of_the_entropy():
  one = tfpa.criteria.generalized_speed_measure(
    0.55, entropy_weight_rule='constraint'
  )
  state = one.init(parts.PROBLEM)
  moved = parts.transition(4, num_diverged=1)._replace(
    log_jacobian=tf.constant([5.0, -0.2, -0.3, 0.1], tf.float64),
    proposal_entropy=tf.constant([5.3, 0.1, 0.0, 0.4], tf.float64),
    jacobian_eigenvalue=tf.zeros([4], tf.float64),
  )
  np.testing.assert_allclose(one.value(state, moved), [0.0, -0.2, -0.3, 0.1])
  np.testing.assert_allclose(one.entropy(state, moved), 0.3)


@pytest.mark.parametrize('rule', ['balance', 'constraint', 'acceptance'])
def test_the_jacobian_of_a_chain_in_a_neck_weighs_less(rule):
  criterion = _paper(entropy_weight_rule=rule)
  eigenvalues = np.array([0.5, -1.0, 4.0, -100.0])
  log_jacobian = tf.constant([-0.4, -0.8, -3.0, -200.0], tf.float64)
  moved = _with_eigenvalues(eigenvalues)._replace(
    log_jacobian=log_jacobian, proposal_entropy=2.0 + log_jacobian
  )
  state = criterion.init(parts.PROBLEM)
  found = criterion.entropy(state, moved)
  if rule == 'constraint':
    found += criterion.value(state, moved)
  weights = 1.0 / np.maximum(np.abs(eigenvalues), 1.0) ** 2
  if rule == 'acceptance':  # The papers' rule leaves it as it is.
    weights = 1.0
  np.testing.assert_allclose(found, 2.0 + weights * log_jacobian.numpy())


@pytest.mark.parametrize('rule', ['balance', 'constraint'])
def test_without_slope_of_the_entropy_beta_stays_within_its_bounds(rule):
  _, state, _ = _steered(0.9, -1e6, 0.0, rule)
  assert float(state.entropy_weight) == 1e4
  _, state, _ = _steered(0.9, 0.3, 1.0, rule)
  assert float(state.entropy_weight) == 1e-10


def _with_eigenvalues(eigenvalues):
  return _at([-0.5] * len(eigenvalues))._replace(
    jacobian_eigenvalue=tf.constant(eigenvalues, tf.float64)
  )


@pytest.mark.parametrize(
  'rule, influence',
  [('acceptance', 1.0), ('balance', 0.64), ('constraint', 0.64)],
)
def test_the_penalty_is_taken_off_the_entropy(rule, influence):
  criterion = tfpa.criteria.generalized_speed_measure(
    0.67, rule, penalty_threshold=0.75, penalty_weights=(10.0, 1e3)
  )
  state = criterion.init(parts.PROBLEM)
  moved = _with_eigenvalues([0.5, -1.25])
  np.testing.assert_allclose(
    criterion.entropy(state, moved), [0.3, 0.3 - influence * 2.5]
  )


def test_a_penalty_costs_nothing_where_the_map_is_linear():
  # Random walk and Langevin say so by leaving the eigenvalue out.
  criterion = _paper(penalty_threshold=0.75)
  moved = _at([-0.5, -0.1])
  entropy = criterion.entropy(criterion.init(parts.PROBLEM), moved)
  np.testing.assert_allclose(entropy, moved.proposal_entropy)
  assert float(_updated(criterion, moved).penalty.weight) == 1.0


def test_the_weight_of_the_penalty_waits_for_the_first_scale():
  criterion = _paper(entropy_weight_rule='balance', penalty_threshold=0.75)
  moved = _with_eigenvalues([1.75, -1.75])
  searching = _updated(criterion, moved, parts.slopes(is_searching=True))
  assert float(searching.penalty.weight) == 1.0
  assert float(_updated(criterion, moved).penalty.weight) > 1.05
