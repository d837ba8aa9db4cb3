"""Chains that can never move say nothing about the target.

`tfpa.sample` refuses such starts, but TFP's `sample_chain` does not.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import parts
from tests.contracts import registry
from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import stack

_NUM_LIVE, _SIZE = 8, 3
_DEAD = (1e3, np.nan)  # -inf with the gradient 0; and NaN, gradient included.


def _bounded(x):
  """N(0, I) in a ball of radius 100."""
  square = tf.reduce_sum(x**2, axis=-1)
  return tf.where(square < 1e4, -0.5 * square, -float('inf'))


_KERNELS = {
  'speed measure': (tfpa.gradient_adaptive_langevin, 0.55),
  'random walk': (tfpa.gradient_adaptive_random_walk, 0.25),
  'jump distance': (
    functools.partial(
      tfpa.gradient_adaptive_langevin,
      criterion=tfpa.criteria.expected_squared_jump_distance(),
      optimizer=tfpa.optimizers.adam(0.01),
    ),
    None,
  ),
  'entropy': (
    functools.partial(tfpa.entropy_adaptive_hamiltonian, num_leapfrog_steps=2),
    None,
  ),
  'moments': (tfpa.adaptive_metropolis, 0.25),
  'dense': (tfpa.fisher_divergence_langevin, 0.574),
  'moves': (
    functools.partial(
      tfpa.fisher_divergence_langevin,
      preconditioner=tfpa.preconditioners.tridiagonal(),
    ),
    0.574,
  ),
  'pairs': (
    functools.partial(
      tfpa.fisher_divergence_langevin,
      preconditioner=tfpa.preconditioners.low_rank(1),
    ),
    0.574,
  ),
  'lengths': (tfpa.fisher_divergence_hamiltonian, 0.8),
}


@pytest.mark.full
@pytest.mark.parametrize('name', _KERNELS)
def test_the_others_learn_the_target(name):
  build, wanted = _KERNELS[name]
  kernel = build(_bounded, 600)
  start = np.random.default_rng(0).normal(size=(_NUM_LIVE + 2, _SIZE))
  start[_NUM_LIVE:] = np.reshape(_DEAD, [2, 1])

  @tf.function(autograph=False)
  def run(state):
    return tfp.mcmc.sample_chain(
      200,
      state,
      kernel=kernel,
      num_burnin_steps=600,
      trace_fn=lambda _, results: (
        stack.metropolis_hastings_results(results).is_accepted
      ),
      return_final_kernel_results=True,
      seed=(0, 1),
    )

  states, accepted, results = run(tf.constant(start))
  np.testing.assert_array_equal(states[-1][_NUM_LIVE:], start[_NUM_LIVE:])
  accept_prob = np.mean(accepted[:, :_NUM_LIVE])
  if wanted is None:  # What maximizes the criterion is not known in advance.
    assert 0.3 < accept_prob < 0.97
  else:
    assert abs(accept_prob - wanted) < 0.12
  covariance = tfpa.learned_covariance(kernel, results)
  assert np.linalg.cond(covariance) < 3.0
  # Narrow regions make steps short, and there are none here.
  for own in (results, getattr(results, 'inner_results', results)):
    assert getattr(own, 'share_lost', 0.0) < 1e-3


@pytest.mark.parametrize('name', registry.CRITERIA)
def test_criteria_follow_the_live_chains(name):
  criterion = registry.criterion(name)
  # Two chains diverged, and the first of these can never move.
  moved = parts.transition(5, num_diverged=2)
  live = moved._replace(
    **{
      field: value[1:]
      for field, value in moved._asdict().items()
      if np.ndim(value)
    }
  )
  found, expected = (
    criterion.update(
      criterion.init(parts.PROBLEM), some, parts.slopes(), parts.PROBLEM
    )
    for some in (
      moved._replace(is_alive=tf.constant([False] + [True] * 4)),
      live,
    )
  )
  for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected)):
    np.testing.assert_allclose(one, other, rtol=1e-12)


def test_the_mean_over_all_chains_keeps_its_bits():
  # 1 / 49 is not exact: a mean over a share of the chains would round again.
  rows = tf.random.stateless_normal([49, 2], [1, 2])
  alive = tf.ones([49, 1], tf.bool)

  @tf.function(jit_compile=True)
  def means():
    mean = adaptation_base.mean_of_alive(alive, rows, axis=0)
    return mean, tf.reduce_mean(rows, axis=0)

  np.testing.assert_array_equal(*means())
  alive = tf.constant(np.arange(49)[:, np.newaxis] < 4)
  np.testing.assert_allclose(
    adaptation_base.mean_of_alive(alive, rows, axis=0),
    np.mean(rows[:4], axis=0),
    rtol=1e-6,
  )
  nobody = tf.zeros([49, 1], tf.bool)
  assert np.all(adaptation_base.mean_of_alive(nobody, rows, axis=0) == 0.0)


@pytest.mark.full
def test_nothing_overflows_if_no_chain_can_move():
  kernel = tfpa.fisher_divergence_langevin(_bounded, 20_000)
  start = tf.fill([2, _SIZE], 1e3)

  @tf.function(autograph=False, jit_compile=True)
  def run():
    return tfp.mcmc.sample_chain(
      1,
      start,
      kernel=kernel,
      num_burnin_steps=20_000,
      trace_fn=None,
      return_final_kernel_results=True,
      seed=(0, 1),
    ).final_kernel_results

  own = stack.proposal_results(run())
  assert np.isfinite(own.step_size) and own.step_size > 0.0
  assert np.all(np.isfinite(tf.nest.flatten(own.preconditioner_params)[0]))
