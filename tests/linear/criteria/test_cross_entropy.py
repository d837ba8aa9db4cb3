"""The speed measure with a cross-entropy term."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import parts
from tests.contracts import targets
from tfp_adaptive.core import scale_factor

_PROB = 0.6


def _criteria(weight, **options):
  return (
    tfpa.criteria.cross_entropy(_PROB, weight, **options),
    tfpa.criteria.generalized_speed_measure(_PROB, **options),
  )


def _flat(structure):
  return [np.asarray(leaf) for leaf in tf.nest.flatten(structure)]


@pytest.mark.parametrize('rule', ['balance', 'acceptance'])
def test_without_weight_it_is_the_generalised_speed_measure(rule):
  one, two = _criteria(0.0, entropy_weight_rule=rule)
  state_one, state_two = (c.init(parts.PROBLEM) for c in (one, two))
  for seed in range(4):
    moved = parts.transition(num_diverged=1, seed=seed)
    np.testing.assert_allclose(
      one.entropy(state_one, moved), two.entropy(state_two, moved) * np.ones(4)
    )
    np.testing.assert_array_equal(
      one.value(state_one, moved), two.value(state_two, moved)
    )
    state_one = parts.update_criterion(one, state_one, moved)
    state_two = parts.update_criterion(two, state_two, moved)
    for a, b in zip(_flat(state_one), _flat(state_two), strict=True):
      np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize('weight', [0.5, 1.0])
def test_its_entropy_has_the_log_density_of_the_proposal(weight):
  one, two = _criteria(weight, penalty_threshold=0.75)
  state = one.init(parts.PROBLEM)
  scale = tf.constant(1.3, tf.float64)

  def entropy(criterion, tape):
    tape.watch(scale)
    moved = parts.transition()
    # log pi(y) = -s^2 a by chain and H = 3 log s, as functions of a scale s.
    fit = tf.constant([-1.0, -2.0, -0.5, -4.0], tf.float64) * scale**2
    moved = moved._replace(
      proposed_log_prob=fit,
      proposal_entropy=3.0 * tf.math.log(scale),
      jacobian_eigenvalue=tf.constant([0.1, 0.9, -1.0, 2.0], tf.float64),
    )
    return criterion.entropy(state, moved) * tf.ones([4], tf.float64)

  values, slopes = [], []
  for criterion in (one, two):
    with tf.GradientTape() as tape:
      value = entropy(criterion, tape)
    values.append(value.numpy())
    slopes.append(tape.gradient(value, scale).numpy())
  density = np.array([-1.0, -2.0, -0.5, -4.0])
  np.testing.assert_allclose(
    values[0] - values[1], weight * density * 1.3**2, rtol=1e-12
  )
  np.testing.assert_allclose(
    slopes[0] - slopes[1], weight * density.sum() * 2 * 1.3, rtol=1e-12
  )


def _entropy_slope(scale, weight, num_chains=20_000):
  """Returns d/ds of mean H + weight log pi(y), C = s I, for a random walk.

  From x ~ N(0, I) in 3 dimensions y ~ N(0, (1 + s^2) I): the slope in log s is
  3 - 3 weight s^2.
  """
  preconditioner = tfpa.preconditioners.diagonal(init_scale=scale)
  proposal = tfpa.proposals.UncalibratedPreconditionedRandomWalk(
    targets.standard_normal, preconditioner
  )
  rng = np.random.default_rng(0)
  state = tf.constant(rng.normal(size=(num_chains, 3)))
  before, results, replay = parts.replayed_step(proposal, state, (1, 2))
  criterion, _ = _criteria(weight)
  state = criterion.init(parts.PROBLEM)
  noise = results.proposed_results.noise.numpy()
  displaced = np.sum(results.proposed_state * scale * noise, axis=-1)
  standard_error = weight * displaced.std() / num_chains**0.5
  params = before.accepted_results.preconditioner_params
  with tf.GradientTape() as tape:
    tape.watch(params)
    factor = scale_factor.at(preconditioner, params)
    entropy = tf.reduce_mean(
      criterion.entropy(state, replay.transition(factor))
    )
  return float(scale * tf.reduce_sum(tape.gradient(entropy, params))), (
    standard_error
  )


@pytest.mark.parametrize('scale', [0.5, 1.0])
def test_its_slope_is_that_of_the_divergence_from_the_target(scale):
  slope, standard_error = _entropy_slope(scale, weight=1.0)
  assert abs(slope - (3.0 - 3.0 * scale**2)) < 4 * standard_error
  # The negative control: of the entropy alone it is 3 at every scale.
  assert abs(slope - 3.0) > 6 * standard_error
