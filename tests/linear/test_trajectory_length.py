"""Correlations by length against exact turns, and what is chosen of them."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import learned_lengths
from tests.contracts import registry
from tests.contracts import resumed
from tests.contracts import targets
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results
from tfp_adaptive.linear import trajectory_length
from tfp_adaptive.linear.kept_momentum import accepted

_ANGLES = np.array([0.2, 0.5, 0.9])  # A leapfrog step turns by these.
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


def test_a_chain_that_can_never_move_is_not_in_the_mean_jump():
  rows = tf.random.stateless_normal([4, 3], [1, 2], dtype=tf.float64)

  def mean_jump(rows, alive):
    lengths = trajectory_length.start(tf.constant([1, 2]), 2, rows, alive)
    accept_prob = tf.where(alive[:, 0], tf.ones_like(rows[:, 0]), 0.0)
    found = trajectory_length.add(
      lengths, tf.constant(2), [rows, -rows, -rows],
      accept_prob, alive, tf.constant(False),
    )  # fmt: skip
    return found.jumps[1] / found.weights[1]

  np.testing.assert_allclose(
    mean_jump(rows, tf.constant([[False], [True], [True], [True]])),
    mean_jump(rows[1:], tf.ones([3, 1], tf.bool)),
  )


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
  """Returns `Lengths` of half mean squared jumps, [n, 2, d], at a time."""
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
  # A single pair, however late, is hidden by ten pairs that jump as the mean.
  assert _chosen(_known(jumps, 1.0, time, [1.0, 1.0])) == (1, 1)


def test_jumps_are_in_units_of_the_variance_around_the_mean():
  ends = np.arange(1.0, 5.0)
  # One function likes one step. The other does not, beside its square: 10,
  # most of it of its mean, 3.
  jumps = np.stack([0.3 * np.ones(4), 0.5 * ends**2], axis=-1)[..., np.newaxis]
  assert _chosen(_known(jumps, 1e6, 1.0, [1.0, 10.0], [0.0, 3.0])) == (1, 1)
  # Power: beside the square.
  assert _chosen(_known(jumps, 1e6, 1.0, [1.0, 10.0]))[1] > 1


def _learning(target, most=8):
  return tfpa.fisher_divergence_hamiltonian(
    target, 60, max_num_leapfrog_steps=most
  )


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


def test_what_is_learned_is_frozen_and_counted():
  start = tf.random.stateless_normal([4, 3], [4, 5], dtype=tf.float64)
  kernel = _learning(targets.standard_normal)
  learned_lengths.check_frozen_and_counted(kernel, start)


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


# Variances of 30 coordinates of unlike periods, and one length that errs.


_NUM_COORDINATES, _NUM_CHAINS_RESONANCE, _NUM_RESULTS = 30, 1000, 800
_NUM_BURNIN_STEPS = 100
_TOLERANCE = 0.02


def _target():
  """Returns a log density, what makes its states N(0, I), and wide starts.

  The rotation keeps a diagonal metric from making all periods one.
  """
  rng = np.random.default_rng(22)
  scales = np.exp(rng.uniform(0.0, np.log(10.0), size=_NUM_COORDINATES))
  rotation, _ = np.linalg.qr(rng.normal(size=(_NUM_COORDINATES,) * 2))
  basis = rotation / scales

  def log_prob(x):
    return -0.5 * tf.reduce_sum((x @ basis) ** 2, axis=-1)

  draws = (
    2.0 * rng.normal(size=(_NUM_CHAINS_RESONANCE, _NUM_COORDINATES)) * scales
  )
  return log_prob, basis, tf.constant(draws @ rotation.T)


def _errors(kernel, start, basis, seed):
  """Returns errors of 30 variances, and their standard errors, relative.

  Chains are independent: their spread is the standard error, without a model
  of their correlation.
  """
  run = tfpa.sample(
    kernel,
    start,
    _NUM_RESULTS,
    num_burnin_steps=_NUM_BURNIN_STEPS,
    progress=False,
    seed=(22, seed),
  )
  squares = np.mean((run.states @ basis) ** 2, axis=0)
  error = squares.std(axis=0, ddof=1) / np.sqrt(_NUM_CHAINS_RESONANCE)
  return np.abs(squares.mean(axis=0) - 1.0), error


def _learned_without_resonance(kernel, start, basis):
  """Returns the frozen kernel, after a check of its variances."""
  run = tfpa.sample(kernel, start[:64], 20, progress=False, seed=(22, 0))
  learned = tfpa.frozen(kernel, run.final_kernel_results)
  found, error = _errors(learned, start, basis, 1)
  assert 4.0 * error.max() < _TOLERANCE
  assert found.max() < _TOLERANCE
  return learned


@pytest.mark.nightly
def test_kept_momenta_do_not_resonate():
  log_prob, basis, start = _target()
  kernel = tfpa.fisher_divergence_hamiltonian(
    log_prob,
    1500,
    preconditioner=tfpa.preconditioners.diagonal(),
    keep_momentum=True,
  )
  learned = _learned_without_resonance(kernel, start, basis)
  # The twin is the same kernel, but for a number that never changes.
  of_one = learned.inner_kernel.settled
  length = learned.inner_kernel.mean_num_steps
  twin = learned.inner_kernel.copy()
  twin.settled = lambda pair: tf.stack([length, length, of_one(pair)[2]])
  _, error = _errors(accepted(twin), start, basis, 1)
  assert 4.0 * error.max() > 1.5 * _TOLERANCE


@pytest.mark.nightly
def test_learned_lengths_do_not_resonate_and_one_length_does():
  log_prob, basis, start = _target()
  kernel = tfpa.fisher_divergence_hamiltonian(
    log_prob, 1500, preconditioner=tfpa.preconditioners.diagonal()
  )
  learned = _learned_without_resonance(kernel, start, basis)
  # The twin is the same kernel, but for a length that never changes.
  proposal = learned.parameters['inner_kernel']
  length = int(np.ceil(np.mean(proposal.num_leapfrog_steps)))
  twin = tfpa.MetropolisHastings(proposal.copy(num_leapfrog_steps=length))
  found, error = _errors(twin, start, basis, 2)
  assert found.max() > 2.0 * _TOLERANCE
  assert 4.0 * error.max() > 2.0 * _TOLERANCE
