"""The first scale: a start with the units of the state, then a bracket."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import stack
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results
from tfp_adaptive.linear import running_moments
from tfp_adaptive.linear import scale_search


def _run(best_scale, search, num_steps=60):
  """Searches where moves of scale above `best_scale` are rejected."""
  for _ in range(num_steps):
    accept_prob = tf.constant(float(search.scale < best_scale), tf.float64)
    search = scale_search.update(search, accept_prob, 0.5)
  return search


@pytest.mark.parametrize('best_scale', [1e-6, 0.3, 1.5, 1e7])
def test_the_search_ends_within_a_factor_of_two(best_scale):
  search = _run(best_scale, scale_search.start(tf.float64))
  assert not bool(search.is_searching)
  assert 0.5 <= float(search.scale) / best_scale <= 2.0


def test_the_first_factor_is_of_the_first_scale():
  scale = 1e-3
  draws = scale * np.random.default_rng(0).normal(size=(4, 3))
  kernel = tfpa.gradient_adaptive_langevin(
    lambda x: -0.5 * tf.reduce_sum((x / scale) ** 2, axis=-1), 10
  )
  results = kernel.bootstrap_results(tf.constant(draws))
  # sqrt(d) / rms |g| with g = -x / scale^2.
  expected = scale**2 / np.sqrt(np.mean(draws**2))
  np.testing.assert_allclose(
    tfpa.learned_factor(kernel, results), expected * np.eye(3), rtol=1e-9
  )


def test_a_trajectory_starts_as_long_as_one_step():
  grads = tf.ones([4, 2], tf.float64)
  one = scale_search.start(tf.float64, grads, num_steps=1).scale
  four = scale_search.start(tf.float64, grads, num_steps=4).scale
  np.testing.assert_allclose(4.0 * four, one)


@pytest.mark.parametrize('grads', [np.nan, np.inf, 0.0])
def test_useless_gradients_start_the_search_at_one(grads):
  flat = tf.fill([3, 2], tf.constant(grads, tf.float64))
  assert float(scale_search.start(tf.float64, flat).scale) == 1.0


def test_a_chain_without_a_gradient_says_nothing_of_the_others():
  grads = tf.constant([[3.0, 3.0], [np.nan, 1.0]], tf.float64)
  search = scale_search.start(tf.float64, grads)
  np.testing.assert_allclose(search.scale, 1.0 / 3.0)


def test_a_chain_outside_the_support_says_nothing_of_the_others():
  # There the gradient of log x is finite, and the density is NaN.
  kernel = tfpa.fisher_divergence_langevin(
    lambda x: tf.reduce_sum(tf.math.log(x), axis=-1), 10, short_step_share=0.0
  )
  start = tf.constant([[2.0, 2.0], [-1e-3, -1e-3]], tf.float64)
  search = kernel.bootstrap_results(start).scale_search
  np.testing.assert_allclose(search.scale, 2.0)


def test_a_search_without_a_crossing_gives_up():
  search = _run(np.inf, scale_search.start(tf.float64), num_steps=120)
  assert not bool(search.is_searching)
  assert np.isfinite(search.scale)


@pytest.mark.parametrize(
  'build',
  [
    tfpa.adaptive_metropolis,
    tfpa.gradient_adaptive_random_walk,
    functools.partial(tfpa.fisher_divergence_langevin, short_step_share=0.0),
  ],
  ids=['by moments', 'by gradient', 'by a closed form'],
)
def test_the_factor_doubles_at_each_step_of_the_search(build):
  # Where the density is flat all is accepted, and no scale is known at first.
  kernel = build(lambda x: 0.0 * tf.reduce_sum(x, axis=-1), 10)
  start = tf.zeros([2, 3], tf.float64)
  _, results = targets.run(kernel, start, 4)
  for result, scale in zip(results, [2.0, 4.0, 8.0, 16.0]):
    accepted = mh_results(result).accepted_results
    np.testing.assert_array_equal(
      accepted.preconditioner_params, scale * np.eye(3)
    )
    assert accepted.step_size == 1.0


# One chain where the target has no gradient never moves; the others learn.


_NUM_STEPS = 25
_START = np.concatenate(
  [np.random.default_rng(0).normal(size=(3, 2)), np.zeros((1, 2))]
)


def _norm(x):
  """A density that is finite at zero, where its gradient is NaN."""
  return -tf.norm(x, axis=-1)


def _run_flat(kernel):
  state, results = tf.constant(_START), kernel.bootstrap_results(_START)
  step = targets.stepper(kernel, 'graph')
  for seed in targets.seeds(_NUM_STEPS):
    state, results = step(state, results, seed)
  np.testing.assert_array_equal(state[-1], 0.0)
  assert np.all(np.any(state[:-1] != _START[:-1], axis=-1))
  return results


def test_the_speed_measure_learns_from_the_others():
  kernel = tfpa.gradient_adaptive_langevin(_norm, 100, short_step_share=0.0)
  results = _run_flat(kernel)
  # In each step the gradient of one chain is dropped.
  assert int(results.num_dropped_gradients) == _NUM_STEPS
  params = tfp_private.get_innermost(results, 'preconditioner_params').numpy()
  assert np.any(params != params[0, 0] * np.eye(2))


@pytest.mark.full
@pytest.mark.parametrize(
  'build', [tfpa.fisher_divergence_hamiltonian, tfpa.fisher_divergence_langevin]
)
def test_the_scale_is_searched_for_those_that_move(build):
  results = _run_flat(build(_norm, 100))
  assert not bool(results.scale_search.is_searching)
  assert 0.05 < float(tfp_private.get_innermost(results, 'step_size')) < 20.0
  # The mean over all four would be 0.75 at most, below the aim.
  moves = stack.metropolis_hastings_results(results)
  assert not np.isfinite(moves.log_accept_ratio[-1])
  expected = np.exp(np.minimum(moves.log_accept_ratio[:-1], 0.0)).mean()
  np.testing.assert_allclose(
    adaptation_base.mean_accept_prob(moves), expected, rtol=1e-12
  )


@pytest.mark.full
def test_a_row_whose_square_overflows_is_in_no_moments():
  def target(x):  # Its gradient is finite, and some 1e30.
    return -0.5 * tf.reduce_sum(x**2, axis=-1) - tf.where(
      x[..., 0] > 50.0, 1e30 * (x[..., 0] - 50.0), 0.0
    )

  kernel = tfpa.fisher_divergence_langevin(target, 100)
  start = tf.constant(np.random.default_rng(1).normal(size=(6, 2)), tf.float32)
  far = tf.tensor_scatter_nd_update(start, [[0, 0]], [51.0])
  state, results = far, kernel.bootstrap_results(far)
  step = targets.stepper(kernel, 'graph')
  for seed in targets.seeds(_NUM_STEPS):
    state, results = step(state, results, seed)
  for moments in (results.statistics.state, results.statistics.gradient):
    assert isinstance(moments, running_moments.Moments)
    assert np.all(np.isfinite(moments.spread))
  assert int(results.statistics.num_failed_fits) == 0
