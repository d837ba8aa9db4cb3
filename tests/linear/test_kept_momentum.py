"""Steps that keep momenta leave their joint distribution as it is."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.linear import fisher_divergence
from tfp_adaptive.linear import kept_momentum

# Some 50 statistics; 6 of ten million normal numbers are beyond 5.
_NUM_STEPS, _BOUND = 12, 5.0


class _NotScaled(kept_momentum.MomentumMetropolisHastings):
  """Leaves the uniform where it was accepted."""

  def one_step(self, current_state, previous_kernel_results, seed=None):
    state, results = super().one_step(
      current_state, previous_kernel_results, seed
    )
    by = tf.where(results.is_accepted, tf.exp(results.log_accept_ratio), 1.0)
    kept = results.extra
    return state, results._replace(
      extra=kept._replace(uniform=by * kept.uniform)
    )


def _worst(accept, num_leapfrog_steps=(4, 6), seed=1):
  """Returns the largest z of what exact draws become, and the acceptance."""
  kernel = accept(
    fisher_divergence.UncalibratedMomentumHamiltonian(
      _log_prob, registry.fixed(_FACTOR), num_leapfrog_steps, 1.3
    )
  )
  rng = np.random.default_rng(seed)
  state = tf.constant(_draws(rng))
  results = kernel.bootstrap_results(state)
  step = tf.function(kernel.one_step, autograph=False, jit_compile=True)
  accepted = []
  for i in range(_NUM_STEPS):
    state, results = step(state, results, tf.constant([seed, i]))
    accepted.append(np.mean(results.is_accepted))
  # Rejections are what may go wrong.
  assert 0.5 < np.mean(accepted) < 0.95
  return _largest_z(
    state.numpy(),
    results.extra.velocity.numpy(),
    results.extra.uniform.numpy(),
    rng,
  )


@pytest.mark.full
@pytest.mark.parametrize('lengths', [(4, 6), (2, 3)])  # (2, 3): one gradient.
def test_exact_draws_momenta_and_uniforms_stay_exact(lengths):
  assert _worst(kept_momentum.MomentumMetropolisHastings, lengths) < _BOUND


@pytest.mark.full
def test_a_broken_rule_is_seen():
  assert _worst(_NotScaled) > 2 * _BOUND


@functools.cache
def _two_steps():
  """Returns the results of a step of momenta drawn anew and of the next one."""
  kernel = kept_momentum.MomentumMetropolisHastings(
    fisher_divergence.UncalibratedMomentumHamiltonian(
      targets.standard_normal, registry.fixed(np.eye(3)), 12, 1.8
    )
  )
  state = tf.constant(np.random.default_rng(2).normal(size=[4000, 3]))
  results = kernel.bootstrap_results(state)
  state, first = kernel.one_step(state, results, tf.constant([1, 1]))
  return first, kernel.one_step(state, first, tf.constant([1, 2]))[1]


def test_momenta_go_on_and_turn_back_where_rejected():
  first, results = _two_steps()
  before = first.extra.velocity.numpy()
  proposed = results.proposed_results
  # 12 leapfrog steps of momenta drawn anew: 1 to 11 here.
  num_steps = int(proposed.trajectory.num_steps)
  assert 1 <= num_steps <= 11
  share = np.exp(-1.25 * num_steps / 12)
  np.testing.assert_allclose(proposed.trajectory.share_kept, share, rtol=1e-12)
  correlation = np.mean(before * proposed.noise)
  assert abs(correlation - share) < 5 * 12_000**-0.5
  is_accepted = results.is_accepted.numpy()
  assert 0.1 < np.mean(is_accepted) < 0.9
  np.testing.assert_array_equal(
    results.extra.velocity.numpy()[~is_accepted],
    -proposed.noise.numpy()[~is_accepted],
  )


def test_uniforms_go_on_as_momenta_are_lost_and_keep_their_height():
  first, results = _two_steps()
  num_steps = int(results.proposed_results.trajectory.num_steps)
  moved = first.extra.uniform.numpy()
  moved = moved + 0.5 * (1.0 - np.exp(-2.5 * num_steps / 12))
  moved = np.where(moved >= 1.0, moved - 2.0, moved)
  ratio = results.log_accept_ratio.numpy()
  is_accepted = np.log(np.abs(moved)) < ratio
  np.testing.assert_array_equal(results.is_accepted, is_accepted)
  assert 0.1 < np.mean(is_accepted) < 0.9
  np.testing.assert_allclose(
    results.extra.uniform,
    np.where(is_accepted, moved * np.exp(-ratio), moved),
    rtol=1e-12,
  )


# Exact draws of states, momenta and uniforms, and what steps make of them.


_FACTOR = np.array([[1.0, 0.0], [0.8, 0.6]])
_NUM_CHAINS = 100_000
_DEGREES = 9.0


def _log_prob(x):
  """A correlated Student-t of covariance C C^T 9 / 7."""
  white = tf.linalg.matvec(np.linalg.inv(_FACTOR), x)
  square = tf.reduce_sum(white**2, axis=-1)
  return -0.5 * (_DEGREES + 2.0) * tf.math.log1p(square / _DEGREES)


def _draws(rng):
  """Returns independent draws of it, [_NUM_CHAINS, 2]."""
  normals = rng.normal(size=(_NUM_CHAINS, 2))
  chi = rng.chisquare(_DEGREES, size=(_NUM_CHAINS, 1))
  return normals * (_DEGREES / chi) ** 0.5 @ _FACTOR.T


def _largest_z(state, velocity, uniform, rng):
  """Returns the largest z of statistics of chains against those of draws."""
  found = _statistics(state, velocity, uniform)
  fresh = _draws(rng)
  expected = _statistics(
    fresh, rng.normal(size=fresh.shape), rng.uniform(-1.0, 1.0, _NUM_CHAINS)
  )
  error = (found.var(0) + expected.var(0)) / _NUM_CHAINS
  return np.abs((found.mean(0) - expected.mean(0)) / error**0.5).max()


def _statistics(x, v, u):
  """Bounded functions of x, v and u of each chain, [chains, n]."""
  white = x @ np.linalg.inv(_FACTOR).T
  radius = np.sqrt(np.sum(white**2, axis=-1, keepdims=True))
  parts = [np.tanh(white), np.tanh(v), u[:, np.newaxis], np.tanh(radius)]
  flat = np.concatenate(parts, axis=-1)
  pairs = flat[:, :, np.newaxis] * flat[:, np.newaxis]
  rows, columns = np.triu_indices(flat.shape[1])
  thresholds = radius < np.array([0.5, 1.0, 1.5, 2.5])
  height = np.abs(u)[:, np.newaxis] * np.concatenate([radius < 1.0, v**2], -1)
  return np.concatenate(
    [flat, pairs[:, rows, columns], thresholds, height], axis=-1
  )
