"""Surrogate trajectories against plain leapfrog steps, and what is drawn."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tests.surrogate import surrogates

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


def test_the_log_ratio_is_the_change_of_the_true_energy():
  kernel = tfpa.MetropolisHastings(_proposal())
  x = _starts(5, _SIZE)
  _, results = _step(kernel, x)
  proposed = results.proposed_results
  _, end = _leapfrog(x.numpy(), proposed.noise.numpy(), 0.2, 7)
  energy = 0.5 * np.sum(x.numpy() ** 2 + proposed.noise.numpy() ** 2, axis=-1)
  new_energy = 0.5 * np.sum(results.proposed_state.numpy() ** 2 + end**2, -1)
  np.testing.assert_allclose(
    results.log_accept_ratio, energy - new_energy, rtol=1e-10
  )


def _follow(kernel, x, velocity, num_steps=7):
  return kernel._follow(
    kernel.bootstrap_results(x),
    x,
    velocity,
    tf.constant(0.2, x.dtype),
    tf.constant(num_steps),
  )


def test_the_trajectory_runs_back_with_its_velocity_turned():
  kernel = _proposal()
  x, velocity = _starts(5, _SIZE), _starts(5, _SIZE, seed=1)
  y, end = _follow(kernel, x, velocity)
  assert np.min(np.abs(y - x)) > 1e-4
  back, turned = _follow(kernel, y, -end)
  np.testing.assert_allclose(back, x, rtol=0.0, atol=1e-10)
  np.testing.assert_allclose(-turned, velocity, rtol=0.0, atol=1e-10)


def test_the_trajectory_preserves_volume():
  kernel = _proposal()
  start = _starts(2 * _SIZE)
  with tf.GradientTape(persistent=True) as tape:
    tape.watch(start)
    end = tf.concat(_follow(kernel, start[:_SIZE], start[_SIZE:], 3), axis=0)
  jacobian = tape.jacobian(end, start, experimental_use_pfor=False).numpy()
  assert np.linalg.norm(jacobian - np.eye(2 * _SIZE)) > 0.1
  np.testing.assert_allclose(np.linalg.det(jacobian), 1.0, rtol=1e-10)


def test_where_the_score_is_zero_it_is_a_random_walk_of_the_whole_length():
  x = _starts(5, _SIZE)
  y, results = _step(_proposal(tf.zeros_like), x)
  np.testing.assert_allclose(
    y, x + 7 * 0.2 * results.noise.numpy() @ _FACTOR.T, rtol=1e-12
  )
  np.testing.assert_array_equal(results.log_acceptance_correction, np.zeros(5))


@pytest.mark.parametrize('num_steps', [1, 30, (1, 10)], ids=str)
def test_the_target_is_called_once_a_step_whatever_its_length(num_steps):
  num_calls = 0

  def target(x):
    nonlocal num_calls
    num_calls += 1
    return targets.standard_normal(x)

  kernel = _proposal(target_log_prob_fn=target, num_leapfrog_steps=num_steps)
  x = _starts(2, _SIZE)
  results = kernel.bootstrap_results(x)
  assert num_calls == 1
  for seed in targets.seeds(3):
    x, results = kernel.one_step(x, results, seed=seed)
  assert num_calls == 4
  assert tfpa.cost_per_step(kernel, adapting=True)[:3] == (1, 0, 0)


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
