"""Steps of local sizes: their law, and that it belongs to the ratio."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results
from tfp_adaptive.linear import local_steps

_EVENT_SIZE = 4
_DEVIATION = 1.5  # Of the funnel's log scale.
_NUM_DRAWS = 20_000
_NUM_STEPS = 4
_MOST = 6.0
_STEEPNESS = (-6.0, -0.4, 0.0, 0.3, 2.5, 5.8, 9.0)


def _funnel(x):
  log_scale, rest = x[..., 0], x[..., 1:]
  return (
    -0.5 * (log_scale / _DEVIATION) ** 2
    - 0.5 * tf.reduce_sum(rest**2, -1) * tf.exp(-log_scale)
    - 0.5 * (_EVENT_SIZE - 1) * log_scale
  )


def _exact_draws():
  rng = np.random.default_rng(1)
  log_scale = _DEVIATION * rng.normal(size=[_NUM_DRAWS, 1])
  rest = rng.normal(size=[_NUM_DRAWS, _EVENT_SIZE - 1])
  return np.concatenate([log_scale, np.exp(0.5 * log_scale) * rest], axis=1)


def _kernel(target=_funnel, num_leapfrog_steps=3, step_size=0.8, size=None):
  return tfpa.MetropolisHastings(
    local_steps.UncalibratedLocalHamiltonian(
      target,
      registry.fixed(np.eye(size or _EVENT_SIZE)),
      num_leapfrog_steps,
      step_size,
    )
  )


def _largest_change():
  """Returns the largest change of a mean of the law, in standard errors.

  Some steps from exact draws leave every mean as it is.
  """
  before = _exact_draws()
  kernel = _kernel()
  state = tf.constant(before)
  results = kernel.bootstrap_results(state)
  step = tf.function(kernel.one_step)
  octaves = []
  for i in range(_NUM_STEPS):
    state, results = step(state, results, tf.constant([i, 7]))
    octaves.append(mh_results(results).proposed_results.trajectory.octaves)
  # Power: steps of all sizes are taken, and accepted.
  assert 0.2 < np.mean(np.stack(octaves) > 0.0) < 0.9
  assert np.max(octaves) > 3.0
  assert 0.3 < np.mean(results.is_accepted) < 0.98
  change = _features(state.numpy()) - _features(before)
  errors = np.std(change, axis=1) / _NUM_DRAWS**0.5
  return np.max(np.abs(np.mean(change, axis=1)) / errors)


def _features(x):
  z = x[:, 0] / _DEVIATION
  radius = np.sum(x[:, 1:] ** 2, axis=1) * np.exp(-x[:, 0])
  return np.stack(
    [z, z**2, z < -1.0, z > 1.0, radius, z * radius, radius < 1.0]
  ).astype(float)


def test_steps_leave_a_funnel_invariant():
  # Of 7 comparisons one in 2000 runs is beyond 4 by chance; the seed is fixed.
  assert _largest_change() < 4.0


@pytest.mark.full
def test_without_the_law_at_the_end_a_funnel_is_not_invariant(monkeypatch):
  monkeypatch.setattr(
    local_steps, 'log_prob', lambda octaves, steepness: tf.zeros_like(octaves)
  )
  assert _largest_change() > 8.0


@pytest.mark.parametrize('steepness', _STEEPNESS)
def test_sizes_are_drawn_from_their_law(steepness):
  inside = np.linspace(0.0, _MOST, 20_002)[1:-1]
  t = tf.constant(steepness, tf.float64)
  law = lambda octaves: np.exp(
    local_steps.log_prob(tf.constant(octaves, tf.float64), t)
  )
  density = law(inside)
  masses = float(law(0.0)), float(law(_MOST))
  total = sum(masses) + np.mean(density) * _MOST
  np.testing.assert_allclose(total, 1.0, atol=1e-3)
  drawn = local_steps.draw(tf.fill([_NUM_DRAWS], t), tf.constant([1, 2]))
  drawn = drawn.numpy()
  below = masses[0] + np.cumsum(density) * _MOST / inside.size
  for octaves, share in (
    (0.0, masses[0]),
    *((inside[i], below[i]) for i in (2000, 8000, 15000)),
  ):
    error = (share * (1.0 - share) / _NUM_DRAWS) ** 0.5
    assert abs(np.mean(drawn <= octaves) - share) < 4.5 * error + 1e-3


def _log_law(octaves, gradient, factor):
  """Returns log q(l | x) of chains with these gradients, in numpy."""
  size = np.sqrt(np.mean((gradient @ factor) ** 2, axis=1))
  # Of flat places all are alike.
  law = stats.laplace(np.maximum(np.log2(size / 1.75), -_MOST), 0.7)
  ends = np.where(octaves <= 0.0, law.logcdf(0.0), law.logsf(_MOST))
  is_inside = (octaves > 0.0) & (octaves < _MOST)
  return np.where(is_inside, law.logpdf(octaves), ends)


def test_the_law_of_sizes_is_by_the_gradient_behind_the_factor():
  factor = np.array([[0.2, 0.0], [2.0, 0.1]])
  kernel = tfpa.MetropolisHastings(
    local_steps.UncalibratedLocalHamiltonian(
      targets.standard_normal, registry.fixed(factor), 2, 1.0
    )
  )
  state = np.random.default_rng(5).normal(size=[400, 2]) * 2.0
  _, results = kernel.one_step(
    tf.constant(state), kernel.bootstrap_results(tf.constant(state)), (1, 2)
  )
  path = results.proposed_results.trajectory
  octaves = path.octaves.numpy()
  assert 0.2 < np.mean(octaves > 0.0) < 0.9
  end = results.proposed_state.numpy()
  expected = _log_law(octaves, -end, factor) - _log_law(octaves, -state, factor)
  np.testing.assert_allclose(path.log_choice_ratio, expected, atol=1e-9)
  assert np.std(expected) > 0.1


def test_the_step_size_follows_the_chains_that_took_all_of_it():
  kernel = _kernel()
  taken = local_steps.LocalTrajectory(
    num_steps=3,
    octaves=tf.constant([0.0, 2.0, 0.0, 1.0]),
    log_choice_ratio=tf.constant([-0.5, 0.3, 0.0, 0.0]),
  )
  results = kernel.bootstrap_results(tf.zeros([4, _EVENT_SIZE]))
  results = results._replace(
    log_accept_ratio=tf.constant([-1.0, -9.0, float('-inf'), 3.0]),
    proposed_results=results.proposed_results._replace(trajectory=taken),
  )
  proposal = kernel.inner_kernel
  expected = 0.5 * np.exp(-0.5)
  np.testing.assert_allclose(
    proposal.mean_accept_prob(results), expected, rtol=1e-6
  )
  none = taken._replace(octaves=tf.ones([4]))
  results = results._replace(
    proposed_results=results.proposed_results._replace(trajectory=none)
  )
  expected = (np.exp(-1.0) + np.exp(-9.0) + 1.0) / 4.0
  np.testing.assert_allclose(
    proposal.mean_accept_prob(results), expected, rtol=1e-6
  )
