"""Correlations by length against exact turns, and what is chosen of them."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.linear import trajectory_length

_ANGLES = np.array([0.2, 0.5, 0.9])  # Of a leapfrog step, by coordinate.
_MOST, _NUM_CHAINS, _NUM_STEPS = 8, 50, 1600


@tf.function(autograph=False)
def _rotated():
  """Returns `Lengths` after steps on a normal, which turn by exact angles."""
  angles = tf.constant(_ANGLES)

  def step(count, lengths, place, rows):
    del place
    seeds = tf.random.experimental.stateless_split([3, count], 2)
    num_steps = 1 + count % _MOST
    turn = angles * tf.cast(num_steps, tf.float64)
    noise = tf.random.stateless_normal(rows.shape, seeds[0], dtype=tf.float64)
    after = tf.cos(turn) * rows + tf.sin(turn) * noise
    lengths = trajectory_length.add(
      lengths,
      num_steps,
      after,
      tf.ones([_NUM_CHAINS], tf.float64),
      after,
      tf.ones([_NUM_CHAINS, 1], tf.bool),
      tf.constant(False),
    )
    return count + 1, lengths, num_steps, after

  rows = tf.random.stateless_normal([_NUM_CHAINS, 3], [1, 2], dtype=tf.float64)
  lengths = trajectory_length.start(
    tf.constant([1, 5]), _MOST, rows, tf.ones([_NUM_CHAINS, 1], tf.bool)
  )
  first = (tf.constant(0), lengths, tf.constant(1), rows)
  return tf.while_loop(lambda count, *_: count < _NUM_STEPS, step, first)[1]


def test_correlations_of_a_gaussian_are_cosines_of_its_turns():
  lengths = _rotated()
  variance = lengths.squares - lengths.means**2
  jumps = lengths.jumps / lengths.weights[:, None, None] / variance
  turns = np.arange(1, _MOST + 1)[:, np.newaxis] * _ANGLES
  # 1e4 pairs of each length, late ones for more, in 7500 of one weight; half of
  # a squared normal of variance 2 (1 - r) has deviation sqrt(2) (1 - r).
  expected = 1.0 - np.cos(turns)
  error = np.abs(jumps[:, 0] - expected)
  bound = 4.0 * np.sqrt(2.0 / 7500) * expected + 0.02
  assert np.all(error < bound)
  # Power: the cosines of one step more.
  other = 1.0 - np.cos(turns + _ANGLES)
  assert np.mean(np.abs(jumps[:, 0] - other) > bound) > 0.8


def test_rates_are_those_of_first_order_chains_per_gradient():
  correlations = np.random.default_rng(0).uniform(0.2, 1.8, size=(6, 2))
  fewest, most = np.array([1, 2, 3], np.int32), np.array([4, 2, 6], np.int32)
  rates = trajectory_length.rates(tf.constant(correlations), fewest, most)
  for row, (a, b) in zip(rates.numpy(), zip(fewest, most)):
    r = 1.0 - correlations[a - 1 : b].mean(axis=0)
    np.testing.assert_allclose(row, (1.0 - r) / (1.0 + r) / (0.5 * (a + b)))


def test_slow_directions_lengthen_trajectories():
  # A diagonal of equal scales: what the metric cannot hold must be traveled.
  scales = tf.constant([1.0, 1.0, 20.0], tf.float64)
  lengths = []
  for scale in (scales, tf.ones_like(scales)):
    kernel = _kernel(lambda x, scale=scale: targets.standard_normal(x / scale))
    start = (
      tf.random.stateless_normal([16, 3], [4, 5], dtype=tf.float64) * scale
    )
    run = tfpa.sample(
      kernel, start, 5, progress=False, seed=(0, 3), jit_compile=False
    )
    found = run.final_kernel_results
    lengths.append(found.trajectory_length.num_leapfrog_steps.numpy())
  assert lengths[0][1] > 8 > lengths[1][1]


def _kernel(target, num_steps=200):
  fixed = tfpa.preconditioners.cholesky(init_scale=1.0)
  proposal = tfpa.proposals.UncalibratedPreconditionedHamiltonian(
    target,
    fixed._replace(
      fisher_factor=lambda states, gradients: tf.eye(3, dtype=tf.float64)
    ),
    (1, 5),
    max_num_leapfrog_steps=16,
  )
  return tfpa.adaptation.FisherDivergenceAdaptation(
    tfpa.MetropolisHastings(proposal), num_steps, 0.8
  )


def test_what_is_learned_is_frozen_and_counted():
  kernel = tfpa.fisher_divergence_hamiltonian(
    targets.standard_normal, 60, max_num_leapfrog_steps=8
  )
  start = tf.random.stateless_normal([4, 3], [4, 5], dtype=tf.float64)
  results = kernel.bootstrap_results(start)
  state, taken = start, []
  stepper = tf.function(kernel.one_step, autograph=False)
  for seed in targets.seeds(70):
    state, results = stepper(state, results, seed=seed)
    proposed = results.inner_results.proposed_results
    taken.append(int(proposed.trajectory.num_steps))
  learned = tuple(results.trajectory_length.num_leapfrog_steps.numpy())
  assert 1 <= learned[0] <= learned[1] <= 8
  assert set(taken[60:]) <= set(range(learned[0], learned[1] + 1))
  fixed = tfpa.frozen(kernel, results)
  assert fixed.parameters['inner_kernel'].num_leapfrog_steps == learned
  adapting, frozen = (
    tfpa.cost_per_step(kernel, flag, results).gradient for flag in (True, False)
  )
  assert adapting == pytest.approx(np.mean(taken[:60]))
  assert frozen == np.mean(learned)
  assert tfpa.cost_per_step(fixed, False).gradient == frozen
  with pytest.raises(ValueError, match='results'):
    tfpa.cost_per_step(kernel, False)


@pytest.mark.parametrize(
  'arguments, message',
  [
    (dict(num_leapfrog_steps=5, max_num_leapfrog_steps=9), 'Leave one of them'),
    (dict(num_leapfrog_steps=(4, 2)), 'fewest, most'),
    (dict(max_num_leapfrog_steps=0), 'positive int'),
  ],
)
def test_numbers_that_do_not_go_together_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    tfpa.fisher_divergence_hamiltonian(targets.standard_normal, 10, **arguments)
