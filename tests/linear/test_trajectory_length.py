"""Correlations by length against exact turns, and what is chosen of them."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import learned_lengths
from tests.contracts import registry
from tests.contracts import resumed
from tests.contracts import targets
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results
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
      [rows, after, after],
      tf.ones([_NUM_CHAINS], tf.float64),
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


def test_jumps_count_by_their_acceptance_and_failed_ones_as_none():
  rows = tf.random.stateless_normal([4, 3], [1, 2], dtype=tf.float64)
  everywhere = tf.ones([4, 1], tf.bool)
  lengths = trajectory_length.start(tf.constant([1, 2]), 2, rows, everywhere)
  lengths = trajectory_length.add(
    lengths, tf.constant(1), [rows, rows, -rows], tf.ones([4], tf.float64),
    everywhere, tf.constant(False),
  )  # fmt: skip

  def jumps(accept_prob, proposed):
    return trajectory_length.add(
      lengths, tf.constant(2), [-rows, proposed, rows],
      tf.constant(accept_prob, tf.float64), everywhere, tf.constant(False),
    ).jumps[1]  # fmt: skip

  whole = jumps([1.0] * 4, 3.0 * rows).numpy()
  assert np.all(whole[0] > 0.0)
  half = jumps([0.5] * 4, 3.0 * rows)
  np.testing.assert_allclose(half, 0.5 * whole)
  # One chain failed: the mean is over all, and its jump is 0.
  failed = np.array([[np.nan], [1.0], [1.0], [1.0]]) * rows * 3.0
  found = jumps([0.0, 1.0, 1.0, 1.0], failed)
  kept = jumps([0.0, 1.0, 1.0, 1.0], 3.0 * rows)
  np.testing.assert_array_equal(found, kept)


def test_chains_that_fail_teach_no_moments():
  rows = np.array([[[1.0], [3.0]], [[0.5], [2.0]], [[4.0], [2.5]]])
  failed = np.array([np.inf, np.nan, 7.0])[:, np.newaxis, np.newaxis]

  def moments(steps, is_finite):
    known = trajectory_length.start(
      tf.constant([1, 2]), 2, tf.constant(steps[0]), is_finite
    )
    for now in steps:
      known = trajectory_length.add(
        known, tf.constant(1), [tf.constant(now)] * 3,
        tf.ones([len(now)], tf.float64), is_finite, tf.constant(False),
      )  # fmt: skip
    return known.moments.mean, known.moments.spread, known.means, known.squares

  both = moments(rows, tf.ones([2, 1], tf.bool))
  three = np.concatenate([rows, failed], axis=1)
  found = moments(three, tf.constant([[True], [True], [False]]))
  for one, other in zip(found, both, strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-12)


def test_functions_are_of_what_is_standardized_and_the_square_is_bounded():
  now = np.array([[1.0], [-1.0], [1.0], [-1.0]])
  everywhere = tf.ones([4, 1], tf.bool)
  lengths = trajectory_length.start(
    tf.constant([1, 2]), 2, tf.constant(now), everywhere
  )
  places = [tf.constant(rows) for rows in (0.0 * now, 50.0 * now, now)]
  lengths = trajectory_length.add(
    lengths, tf.constant(1), places, tf.ones([4], tf.float64), everywhere,
    tf.constant(False),
  )  # fmt: skip
  # The first states have weight 2 / 3 beside a start without spread.
  variance = 2.0 / 3.0
  np.testing.assert_allclose(
    lengths.jumps[0, :, 0] / lengths.weights[0],
    [0.5 * 50.0**2 / variance, 0.5 * 9.0**2],
  )


def _known(jumps, num_pairs, time, squares, means=(0.0, 0.0)):
  """Returns `Lengths` of pairs, as many of each length, at a time.

  Args:
    jumps: Half of the mean squared jumps, [n, 2, d].
    num_pairs: Of each length.
    time: What came last counts for as much.
    squares: Of the two functions.
    means: The same.
  """
  most, _, size = jumps.shape
  sums = time * num_pairs * np.ones(most)
  return trajectory_length.start(
    tf.constant([1, 2]),
    most,
    tf.ones([1, size], tf.float64),
    tf.ones([1, 1], tf.bool),
  )._replace(
    time=tf.constant(time, tf.float64),
    means=tf.constant(np.outer(means, np.ones(size))),
    squares=tf.constant(np.outer(squares, np.ones(size))),
    weights=tf.constant(sums),
    jumps=tf.constant(sums[:, np.newaxis, np.newaxis] * jumps),
  )


def _chosen(lengths):
  """Returns the range (fewest, most) that a review finds, ints."""
  reviewed, _ = trajectory_length.choose(
    lengths._replace(next_review=lengths.time),
    lambda values: tf.reduce_sum(values, axis=-1),
    tf.constant(1),
    1000,
    lambda best: best,
  )
  assert reviewed.next_review > lengths.time
  return tuple(reviewed.num_leapfrog_steps.numpy())


@pytest.mark.parametrize('time', [1.0, 100.0])
def test_what_is_little_known_counts_as_the_others_do_at_its_own_level(time):
  ends = np.arange(1.0, 5.0)
  # A fast direction likes one step; a slow one, where it is known, the most.
  jumps = np.stack([np.ones(4), 0.01 * ends**2], axis=-1)
  jumps = np.stack([jumps] * 2, axis=1)
  assert _chosen(_known(jumps, 100.0, time, [1.0, 1.0])) == (3, 4)
  # Of one pair, however late, ten that jump as the mean of both do hide it.
  assert _chosen(_known(jumps, 1.0, time, [1.0, 1.0])) == (1, 1)


def test_jumps_are_in_units_of_the_variance_around_the_mean():
  ends = np.arange(1.0, 5.0)
  # One function likes one step. The other does not, beside its square: 10,
  # most of it of its mean, 3.
  jumps = np.stack([0.3 * np.ones(4), 0.5 * ends**2], axis=-1)[..., np.newaxis]
  assert _chosen(_known(jumps, 1e6, 1.0, [1.0, 10.0], [0.0, 3.0])) == (1, 1)
  # Power: beside the square.
  assert _chosen(_known(jumps, 1e6, 1.0, [1.0, 10.0]))[1] > 1


def test_only_one_and_two_steps_may_be_chosen_without_a_jitter():
  ranges = set(zip(*map(tuple, trajectory_length._ranges(16))))
  assert {b for a, b in ranges if a == b} == {1, 2}
  assert {b for a, b in ranges if a == 1} == set(range(1, 17))
  # The others are the upper halves.
  assert {(a, b) for a, b in ranges if a > 1} == {
    (b // 2 + 1, b) for b in range(2, 17)
  }


@pytest.mark.full
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


def _learning(target, most=8):
  return tfpa.fisher_divergence_hamiltonian(
    target, 60, max_num_leapfrog_steps=most
  )


def _two_parts(x, y):
  flat = tf.concat([x, tf.reshape(y, [*y.shape[:-2], 2])], axis=-1)
  return targets.standard_normal(flat)


@pytest.mark.full
@pytest.mark.parametrize(
  'batch, dtype',
  [
    ([], tf.float32),
    ([2, 3], tf.float64),
    pytest.param([4], tf.float32, marks=pytest.mark.nightly),
  ],
)
def test_states_of_any_parts_batch_and_dtype_learn_a_range(dtype, batch):
  start = [
    tf.random.stateless_normal([*batch, 3], [4, 5], dtype=dtype),
    tf.random.stateless_normal([*batch, 2, 1], [4, 6], dtype=dtype),
  ]
  kernel = _learning(_two_parts)
  run = tfpa.sample(kernel, start, 3, progress=False, seed=(0, 3))
  results = run.final_kernel_results
  fewest, most = learned_lengths.learned(results)
  assert 1 <= fewest <= most <= 8
  # Reviews follow the first, after 20 steps.
  assert results.trajectory_length.next_review > 25.0
  assert results.trajectory_length.jumps.dtype == dtype
  assert [part.dtype for part in run.final_state] == [dtype] * 2


@pytest.mark.full
def test_a_run_continued_between_reviews_has_the_same_bits(
  tmp_path, monkeypatch
):
  start = tf.random.stateless_normal([4, 3], [4, 5], dtype=tf.float64)
  kernel = _learning(targets.standard_normal)
  resumed.check_same_bits(kernel, start, tmp_path, monkeypatch)


def test_a_step_is_learned_from_as_it_was_accepted_and_never_more_than_whole():
  start = 1.3 * np.random.default_rng(2).normal(size=(30, 3))
  kernel = tfpa.fisher_divergence_hamiltonian(
    targets.standard_normal,
    60,
    preconditioner=registry.fixed(np.eye(3)),
    max_num_leapfrog_steps=4,
  )
  state, results = kernel.one_step(
    tf.constant(start), kernel.bootstrap_results(tf.constant(start)), (1, 2)
  )
  step, lengths = mh_results(results), results.trajectory_length
  ratio = step.log_accept_ratio.numpy()
  assert ratio.min() < -0.1 and ratio.max() > 0.1
  # The first states have weight 2 / 3 beside the mean of the starts.
  weight, shift = 2.0 / 3.0, np.mean(state, axis=0) - np.mean(start, axis=0)
  variance = weight * (np.var(state, axis=0) + (1.0 - weight) * shift**2)
  square = (step.proposed_state.numpy() - start) ** 2 / variance
  accept_prob = np.minimum(np.exp(ratio), 1.0)
  length = int(step.proposed_results.trajectory.num_steps)
  np.testing.assert_allclose(
    lengths.jumps[length - 1, 0] / lengths.weights[length - 1],
    0.5 * np.mean(accept_prob[:, np.newaxis] * square, axis=0),
  )


def test_where_the_density_fails_is_rejected_and_not_learned_from():
  learned_lengths.check_failures(_learning)


def test_tfp_takes_the_mean_of_what_is_learned():
  kernel = _learning(targets.standard_normal)
  start = tf.random.stateless_normal([4, 3], [4, 5], dtype=tf.float64)
  results = tfp_private.replace_innermost(
    kernel.bootstrap_results(start), num_leapfrog_steps=tf.constant([3, 6])
  )
  ours, theirs = (
    tfpa.frozen(kernel, results),
    tfpa.as_tfp_kernel(kernel, results),
  )
  assert ours.parameters['inner_kernel'].num_leapfrog_steps == (3, 6)
  assert theirs.parameters['num_leapfrog_steps'] == 5


def test_what_is_learned_is_frozen_and_counted():
  start = tf.random.stateless_normal([4, 3], [4, 5], dtype=tf.float64)
  kernel = _learning(targets.standard_normal)
  learned_lengths.check_frozen_and_counted(kernel, start)


@pytest.mark.parametrize('most', [1, 4, 8])
def test_no_longer_trajectory_is_explored_than_is_allowed(most):
  rows = tf.ones([4, 3], tf.float64)
  lengths = trajectory_length.start(
    tf.constant([1, most]), most, rows, tf.ones([4, 1], tf.bool)
  )
  drawn = [
    trajectory_length.choose(
      lengths, lambda x: tf.reduce_sum(x, -1), tf.constant(i), 100, lambda x: x
    )[1]
    for i in range(4)
  ]
  assert np.max(drawn) <= most


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


@pytest.mark.parametrize('dtype', [tf.float32, tf.float64])
def test_the_slowest_of_many_decides(dtype):
  # Range 0 is three times as good for 999 functions, 1 twice for the last.
  slow = 3e-6  # Its sixteenth power is no number in single precision.
  rates = np.full([2, 2, 500], 0.1)
  rates[0] *= 3.0
  rates[:, 1, -1] = slow, 2.0 * slow
  rates[:, 0, 0] = 1e-9  # Never moves.
  is_alive = np.ones([2, 500], bool)
  is_alive[0, 0] = False
  scores = trajectory_length._scores(
    tf.constant(rates, dtype),
    tf.constant(is_alive),
    lambda rows: tf.reduce_sum(rows, axis=-1),
  )
  np.testing.assert_allclose(scores, [1 / slow, 0.5 / slow], rtol=1e-4)
