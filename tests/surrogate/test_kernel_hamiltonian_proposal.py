"""Surrogate trajectories against plain leapfrog steps, and what is drawn."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tests.surrogate import surrogates
from tfp_adaptive import preconditioners
from tfp_adaptive.core import scale_factor
from tfp_adaptive.surrogate import surrogate_leapfrog
from tfp_adaptive.surrogate import walk as walk_lib

_SIZE = 3
_FACTOR = np.array([[1.5, 0.0, 0.0], [0.4, 0.7, 0.0], [-0.3, 0.2, 1.1]])
_WALK_FACTOR = np.array([[0.3, 0.0, 0.0], [1.0, 2.0, 0.0], [0.1, -0.6, 0.8]])


def _proposal(score=surrogates.bent_score, **options):
  arguments = dict(
    target_log_prob_fn=targets.standard_normal,
    surrogate=surrogates.known(score),
    preconditioner=registry.fixed(_FACTOR),
    num_leapfrog_steps=7,
    step_size=0.2,
  )
  return tfpa.proposals.UncalibratedSurrogateHamiltonian(
    **(arguments | options)
  )


def _starts(*shape, seed=0, dtype=np.float64):
  return tf.constant(np.random.default_rng(seed).normal(size=shape), dtype)


def _step(kernel, x, seed=(1, 2)):
  return kernel.one_step(x, kernel.bootstrap_results(x), seed=seed)


def _leapfrog(x, velocity, step_size, num_steps):
  """Follows `bent_score` by the textbook, in numpy."""

  def score(x):
    return np.sin(np.roll(x, 1, axis=-1)) - x - 0.2 * x**3

  for _ in range(num_steps):
    velocity = velocity + 0.5 * step_size * score(x) @ _FACTOR
    x = x + step_size * velocity @ _FACTOR.T
    velocity = velocity + 0.5 * step_size * score(x) @ _FACTOR
  return x, velocity


@pytest.mark.parametrize('num_steps', [1, 7])
def test_a_step_is_a_leapfrog_trajectory_along_the_surrogate(num_steps):
  x = _starts(5, _SIZE)
  y, results = _step(_proposal(num_leapfrog_steps=num_steps), x)
  velocity = results.noise.numpy()
  expected, end = _leapfrog(x.numpy(), velocity, 0.2, num_steps)
  np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-13)
  correction = 0.5 * np.sum(velocity**2 - end**2, axis=-1)
  np.testing.assert_allclose(
    results.log_acceptance_correction, correction, rtol=1e-10, atol=1e-12
  )
  np.testing.assert_allclose(
    results.target_log_prob, -0.5 * np.sum(expected**2, axis=-1), rtol=1e-12
  )
  assert np.all(np.abs(correction) > 1e-4)  # Else nothing was tested.


def _lengths(num_seeds, **options):
  """Returns (y - x) / noise of walking trajectories, [seeds, chains, d]."""
  kernel = _proposal(
    tf.zeros_like, preconditioner=registry.fixed(np.eye(_SIZE)), **options
  )
  x = tf.zeros([2, _SIZE], tf.float64)
  start = kernel.bootstrap_results(x)

  @tf.function(autograph=False)
  def run(seed):
    y, results = kernel.one_step(x, start, seed=seed)
    return y / results.noise

  return np.stack([run(seed) for seed in targets.seeds(num_seeds)])


def _one_per_step(lengths):
  """Returns [seeds], after a check that all chains and coordinates agree."""
  np.testing.assert_allclose(
    lengths, np.broadcast_to(lengths[:, :1, :1], lengths.shape), rtol=1e-10
  )
  return lengths[:, 0, 0]


def test_the_number_of_steps_is_uniform_in_its_range_and_one_for_all_chains():
  drawn = _one_per_step(_lengths(800, num_leapfrog_steps=(2, 5))) / 0.2
  np.testing.assert_allclose(drawn, np.round(drawn), rtol=1e-10)
  values, counts = np.unique(np.round(drawn), return_counts=True)
  np.testing.assert_array_equal(values, [2, 3, 4, 5])
  assert stats.chisquare(counts).pvalue > 1e-3
  # Power: one value twice as likely as another.
  assert stats.chisquare(counts, 160 * np.array([2, 1, 1, 1])).pvalue < 1e-6


def test_the_length_is_uniform_from_a_third_of_the_longest_on():
  options = dict(trajectory_length=0.6, step_size=0.01)
  drawn = _one_per_step(_lengths(400, **options))
  np.testing.assert_allclose(drawn, np.round(drawn, 2), rtol=1e-10)
  drawn = drawn + np.random.default_rng(0).uniform(-0.005, 0.005, drawn.shape)
  assert stats.kstest(drawn, stats.uniform(0.2, 0.4).cdf).pvalue > 1e-3
  assert stats.kstest(drawn, stats.uniform(0.0, 0.6).cdf).pvalue < 1e-6


def test_the_step_size_is_uniform_in_its_range_and_one_for_all_chains():
  options = dict(num_leapfrog_steps=1, step_size_jitter=(0.1, 1.5))
  jitter = _one_per_step(_lengths(800, **options)) / 0.2
  assert stats.kstest(jitter, stats.uniform(0.1, 1.4).cdf).pvalue > 1e-3
  assert stats.kstest(jitter, stats.uniform(0.1, 1.0).cdf).pvalue < 1e-6


@pytest.mark.full
def test_a_share_of_the_steps_walks_with_a_scale_and_covariance_of_its_own():
  kernel = _proposal(
    walk_share=0.3,
    walk_step_size=0.7,
    walk_preconditioner=registry.fixed(_WALK_FACTOR),
  )
  x = _starts(2, _SIZE)
  start = kernel.bootstrap_results(x)
  step = tf.function(
    lambda seed: kernel.one_step(x, start, seed=seed), autograph=False
  )
  num_walks, num_seeds = 0, 500
  for seed in targets.seeds(num_seeds):
    y, results = step(seed)
    correction = results.log_acceptance_correction.numpy()
    if np.all(correction == 0.0):
      num_walks += 1
      assert results.trajectory.has_walked
      np.testing.assert_allclose(
        y, x + 0.7 * results.noise.numpy() @ _WALK_FACTOR.T, rtol=1e-12
      )
    else:
      assert not results.trajectory.has_walked
      assert np.all(correction != 0.0)  # All chains do one thing.
    np.testing.assert_allclose(results.trajectory.displacement, y - x)
  standard_error = (0.3 * 0.7 / num_seeds) ** 0.5
  assert abs(num_walks / num_seeds - 0.3) < 4.0 * standard_error


def test_step_sizes_may_differ_by_chain():
  x = _starts(4, _SIZE)
  sizes = np.array([[0.1], [0.2], [0.3], [0.4]])
  y, results = _step(_proposal(step_size=sizes), x)
  expected, _ = _leapfrog(x.numpy(), results.noise.numpy(), sizes, 7)
  np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-13)


def test_a_trajectory_that_overflows_is_rejected():
  kernel = tfpa.MetropolisHastings(
    _proposal(lambda x: 1e3 * x**3, num_leapfrog_steps=20)
  )
  x = _starts(3, _SIZE)
  state, results = _step(kernel, x)
  assert not np.any(np.isfinite(results.proposed_state))
  np.testing.assert_array_equal(results.is_accepted, np.zeros(3, bool))
  np.testing.assert_array_equal(state, x)


# The step size that a surrogate bears, known without the target.


_SIZE_LENGTH, _LENGTH, _NUM = 3, 4.0, 50
_RNG = np.random.default_rng(0)
_POINTS = _RNG.normal(size=(_NUM, _SIZE_LENGTH))
_NOISE = _RNG.normal(size=(_NUM, _SIZE_LENGTH))


def _fit(scale, wanted=0.9, precision=1.0):
  """Returns h along the Gaussian of this precision, C = scale I."""
  surrogate = surrogates.gaussian()
  params = surrogate.init(_SIZE_LENGTH, tf.float64, (1, 2))._replace(
    precision=precision * tf.eye(_SIZE_LENGTH, dtype=tf.float64)
  )
  structure = preconditioners.diagonal()

  @tf.function(jit_compile=True, autograph=False)
  def fit(points, noise):
    factor = scale_factor.at(
      structure, structure.init(_SIZE_LENGTH, points.dtype, scale)
    )
    return surrogate_leapfrog.fit_step_size(
      surrogate, params, factor, points, noise, _LENGTH, wanted
    )

  return float(fit(tf.constant(_POINTS), tf.constant(_NOISE)))


def _acceptance(step_size, scale, precision):
  """Returns that of the leapfrog steps along the Gaussian, dense."""
  kick = scale * precision**0.5 * step_size
  one = np.array([[1 - kick**2 / 2, kick], [-kick + kick**3 / 4, 0.0]])
  one[1, 1] = one[0, 0]
  num_steps = int(np.clip(np.round(_LENGTH / step_size), 1, 64))
  turn = np.linalg.matrix_power(one, num_steps)
  x = precision**0.5 * _POINTS
  y, v = (
    turn[0, 0] * x + turn[0, 1] * _NOISE,
    turn[1, 0] * x + turn[1, 1] * _NOISE,
  )
  gain = 0.5 * np.sum(x**2 + _NOISE**2 - y**2 - v**2, axis=-1)
  return np.mean(np.exp(np.minimum(gain, 0.0)))


@pytest.mark.parametrize('scale, precision', [(1.0, 1.0), (0.5, 64.0)])
@pytest.mark.parametrize('wanted', [0.5, 0.9])
def test_it_is_the_largest_of_a_grid_that_keeps_the_energy(
  scale, precision, wanted
):
  grid = 1.2 * 0.7 ** np.arange(14)
  kept = [h for h in grid if _acceptance(h, scale, precision) >= wanted]
  np.testing.assert_allclose(_fit(scale, wanted, precision), max(kept))


def test_a_surrogate_that_knows_nothing_bears_any_and_one_of_nan_none():
  assert _fit(1.0, precision=0.0) == pytest.approx(1.2)
  assert _fit(1.0, precision=np.nan) == pytest.approx(1.2 * 0.7**13)


@pytest.mark.parametrize(
  'length, step_size, expected',
  [(4.0, 0.5, 8), (4.0, [[0.5], [1.5]], 4), (0.1, 1.0, 1), (4.0, 1e-9, 64)],
)
def test_a_length_takes_as_many_steps(length, step_size, expected):
  step_size = tf.constant(step_size, tf.float64)
  assert surrogate_leapfrog.steps_of_length(length, step_size) == expected


# What steps earn, and the share of walks that follows from it.


_CHOLESKY = tfpa.preconditioners.cholesky()


def _start(dtype=tf.float64):
  return walk_lib.start(
    0.5, None, tf.zeros([3, 2], dtype), _CHOLESKY.init(2, dtype, 1.0)
  )


def _earn(walk, has_walked, displacement, ratio):
  return walk_lib.earn(
    walk,
    tf.constant(has_walked),
    tf.constant(displacement, tf.float64),
    tf.constant(ratio, tf.float64),
  )


def test_each_kind_earns_its_mean_accepted_squared_jump():
  walk = _start()._replace(variances=tf.constant([4.0, 1.0], tf.float64))
  jumps = [[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]]  # Squares 1, 9, 1.25.
  walk = _earn(walk, True, jumps, np.log([0.5, 1.0, 1.0]))
  np.testing.assert_allclose(walk.earned, [0.0, (0.5 + 9.0 + 1.25) / 3.0])
  walk = _earn(walk, True, jumps, [-1e9, 5.0, -1e9])
  np.testing.assert_allclose(walk.earned, [0.0, (10.75 + 9.0) / 6.0])
  walk = _earn(walk, False, jumps, np.log([1e-3, 1e-3, 1e-3]))
  np.testing.assert_allclose(walk.earned, [11.25e-3 / 3.0, 19.75 / 6.0])
  np.testing.assert_array_equal(walk.counts, [1.0, 2.0])


@pytest.mark.parametrize('accept_prob', [0.1, 0.234, 0.6])
def test_walks_lengthen_where_more_is_accepted_than_wanted(accept_prob):
  walk = _start()
  moved = walk_lib.adapt(
    walk, tf.constant(accept_prob, tf.float64), tf.constant(7)
  )
  # At a rate of 3 (t + 10)^-0.6.
  change = 3.0 * 17.0**-0.6 * (accept_prob - 0.234)
  np.testing.assert_allclose(moved.step_size / walk.step_size, np.exp(change))


def test_a_step_that_diverged_earns_nothing():
  jumps = [[np.inf, 0.0], [np.nan, 1.0], [1.0, 1.0]]
  walk = _earn(_start(), False, jumps, [-np.inf, np.nan, 0.0])
  np.testing.assert_allclose(walk.earned, [2.0 / 3.0, 0.0])


@pytest.mark.parametrize(
  'follow, walked, share',
  [
    (1.0, 1.0, 0.5),
    (1.0, 2.0, 16.0 / 17.0),
    (2.0, 1.0, 1.0 / 17.0),
    (0.0, 1.0, 1.0),
    (1.0, 0.0, 0.0),
    (1e-30, 1e-20, 1.0),
  ],
)
def test_the_share_favours_what_earns_more(follow, walked, share):
  walk = _start()._replace(
    earned=tf.constant([follow, walked], tf.float32),
    counts=tf.ones([2], tf.float32),
  )
  for least in (0.02, 0.3):
    expected = np.clip(share, least, 0.9)
    found = walk_lib.earned_share(walk, least)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_share_is_a_half_until_both_kinds_are_known():
  walk = _start()
  np.testing.assert_allclose(walk_lib.earned_share(walk, 0.1), 0.5)
  walk = _earn(walk, True, [[1.0, 1.0]] * 3, [0.0] * 3)
  np.testing.assert_allclose(walk_lib.earned_share(walk, 0.1), 0.5)


def test_a_fit_forgets_what_was_earned_and_measures_anew():
  draws = np.random.default_rng(0).normal(size=(400, 2)) * [3.0, 0.1]
  walk = _earn(_start(), True, [[1.0, 1.0]] * 3, [0.0] * 3)
  walk = walk_lib.fit(
    walk, _CHOLESKY, tf.constant(draws), tf.fill([400], np.float64(1 / 400))
  )
  np.testing.assert_array_equal(walk.earned, 0.0)
  np.testing.assert_array_equal(walk.counts, 0.0)
  np.testing.assert_allclose(walk.variances, draws.var(axis=0), rtol=0.05)
