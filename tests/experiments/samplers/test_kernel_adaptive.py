"""KAMH against dense normal densities, its limits, its learning.

Its law is in `tests/contracts/test_few_chains.py`.
"""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from experiments.samplers.baselines.kernel_adaptive_metropolis import (
  _local_covariance,
)
from experiments.samplers.baselines.kernel_adaptive_metropolis import (
  UncalibratedKernelAdaptive,
)
from experiments.samplers.baselines.kernel_subsample import _FLOOR
from experiments.samplers.baselines.kernel_subsample import kernel_subsample
from experiments.samplers.baselines.kernel_subsample import (
  KernelSubsampleParams,
)
from tests.contracts import pseudo_marginal
from tests.contracts import targets
from tests.surrogate import learning
from tfp_adaptive.core import history
from tfp_adaptive.core import tfp_private

_NUM_POINTS, _NUM_EMPTY = 12, 4
_STEP_SIZE, _NOISE_SCALE = 0.7, 0.3
_NUM_CHAINS = 50_000


def _params(points, bandwidth, num_empty=0, weights=None):
  """Returns params of numpy draws, the first rows empty."""
  if weights is None:
    weights = np.ones(len(points))
  weights = np.where(np.arange(len(points)) < num_empty, 0.0, weights)
  return KernelSubsampleParams(
    tf.constant(points),
    tf.constant(weights / weights.sum()),
    tf.constant(bandwidth, tf.float64),
  )


def _knowing(params):
  """Returns a surrogate that starts with `params`."""
  surrogate = kernel_subsample(len(params.points))
  return surrogate._replace(init=lambda event_size, dtype, seed: params)


def _proposal(target, params, **options):
  options = dict(step_size=_STEP_SIZE, noise_scale=_NOISE_SCALE) | options
  return UncalibratedKernelAdaptive(target, _knowing(params), **options)


def _dense_covariance(x, params):
  """s^2 (gamma^2 I + M H M^T) at one x [d], over rows that hold a draw."""
  points = params.points.numpy()[params.weights.numpy() > 0.0]
  weights = params.weights.numpy()[params.weights.numpy() > 0.0]
  columns = [
    targets.value_and_gradient(
      lambda x, z=z: tf.exp(-tf.reduce_sum((x - z) ** 2) / params.bandwidth),
      tf.constant(x),
    )[1]
    for z in points
  ]
  m = 2.0 * np.stack(columns, axis=1)
  if np.ptp(weights) < 1e-12:
    h = np.eye(len(weights)) - 1.0 / len(weights)  # As in the paper.
  else:
    h = len(weights) * (np.diag(weights) - np.outer(weights, weights))
  identity = np.eye(len(m))
  return _STEP_SIZE**2 * (_NOISE_SCALE**2 * identity + m @ h @ m.T)


def _draws(seed, num_draws=_NUM_POINTS):
  return np.random.default_rng(seed).normal(size=(num_draws, 3))


@pytest.mark.parametrize('weighted', [False, True])
def test_the_correction_is_that_of_the_dense_normal_densities(weighted):
  weights = np.linspace(0.5, 1.5, _NUM_POINTS) if weighted else None
  params = _params(_draws(0), 1.5, _NUM_EMPTY, weights)
  kernel = _proposal(targets.standard_normal, params)
  x = tf.constant(_draws(1, 5))
  y, results = kernel.one_step(x, kernel.bootstrap_results(x), seed=(1, 2))
  for i in range(5):
    start, end = x[i].numpy(), y[i].numpy()
    at_x, at_y = (
      _dense_covariance(start, params),
      _dense_covariance(end, params),
    )
    # The move is the Cholesky factor at x on the noise.
    np.testing.assert_allclose(
      end - start,
      np.linalg.cholesky(at_x) @ results.noise[i].numpy(),
      rtol=1e-10,
    )
    normal = stats.multivariate_normal
    expected = normal(end, at_y).logpdf(start) - normal(start, at_x).logpdf(end)
    np.testing.assert_allclose(
      results.log_acceptance_correction[i], expected, atol=1e-10, rtol=0.0
    )
    assert abs(expected) > 1e-3  # Else the proposal is symmetric.


def test_without_draws_it_is_a_random_walk_and_needs_no_correction():
  kernel = UncalibratedKernelAdaptive(
    targets.standard_normal,
    kernel_subsample(_NUM_POINTS),
    _STEP_SIZE,
    _NOISE_SCALE,
  )
  x = tf.constant(_draws(1, 5))
  y, results = kernel.one_step(x, kernel.bootstrap_results(x), seed=(1, 2))
  np.testing.assert_allclose(
    y, x + _STEP_SIZE * _NOISE_SCALE * results.noise, rtol=1e-12
  )
  np.testing.assert_allclose(results.log_acceptance_correction, 0.0, atol=1e-12)


def test_with_a_wide_bandwidth_it_is_adaptive_metropolis():
  # grad k(x, z) -> 2 (z - x) / sigma: M H M^T -> n (4 / sigma)^2 Cov(z).
  points, bandwidth = _draws(0), 1e8
  covariance = _local_covariance(
    _params(points, bandwidth), tf.constant(_draws(1, 5))
  )
  limit = (4.0 / bandwidth) ** 2 * len(points) * np.cov(points.T, bias=True)
  np.testing.assert_allclose(
    covariance, np.broadcast_to(limit, [5, 3, 3]), rtol=1e-5
  )


def test_a_stochastic_target_keeps_states_and_held_estimates_invariant():
  target = pseudo_marginal.NoisyGaussian()
  history = target.draw(15, seed=1)[0]
  kernel = tfpa.MetropolisHastings(
    _proposal(
      target.estimate,
      _params(history, 4.0),
      step_size=1.0,
      noise_scale=0.5,
      target_is_stochastic=True,
    )
  )
  state, results = target.start(kernel, _NUM_CHAINS, seed=2)
  state, results = targets.stepper(kernel, 'graph')(
    state, results, tf.constant([5, 6])
  )
  assert 0.15 < np.mean(results.is_accepted) < 0.8
  p_values = target.p_values(state, results)
  assert pseudo_marginal.smallest_p_value(p_values) > 1e-3, p_values
  assert target.num_calls == 2  # The start and the traced step.
  with pytest.raises(ValueError, match='Write `target_is_stochastic=True`'):
    _proposal(target.estimate, _params(history, 4.0))


def _kernel(num_adaptation_steps, **options):
  return baselines.kernel_adaptive_metropolis(
    targets.standard_normal,
    num_adaptation_steps,
    surrogate=kernel_subsample(30),
    **options,
  )


@pytest.mark.full
def test_kamh_keeps_the_history_as_its_draws_and_tunes_its_step():
  kernel = _kernel(100)
  start = learning.start()
  states, results = learning.run(kernel, 110)
  fits = learning.changes([learning.params_of(r)[:1] for r in results])
  assert fits[-1] == 80 and len(fits) >= 3
  held = results[79].inner_results.history
  np.testing.assert_array_equal(
    learning.params_of(results[-1]).points, history.in_order(held)[0]
  )
  sizes = [tfp_private.get_innermost(r, 'step_size') for r in results]
  assert learning.changes([[s] for s in sizes])[-1] <= 102
  assert float(sizes[-1]) != 1.0
  assert np.any(states[-1] != start)


# The kernel subsample: bandwidth, density and score against dense algebra.


_SEED = (1, 2)


def _draws_subsample(num_points=17, num_empty=0, event_size=3, seed=0):
  """Returns draws [n, d] and weights [n] that differ, some 0."""
  rng = np.random.default_rng(seed)
  points = rng.normal(size=(num_points, event_size)) * [1.0, 2.0, 0.5]
  weights = rng.uniform(0.5, 1.5, size=num_points)
  weights[:num_empty] = 0.0
  return tf.constant(points), tf.constant(weights / weights.sum())


def _fitted(points, weights):
  surrogate = kernel_subsample(len(points))
  params = surrogate.init(points.shape[1], points.dtype, _SEED)
  return surrogate, surrogate.fit(params, points, weights, _SEED)


def _square_distances(points):
  return np.sum((points[:, np.newaxis] - points) ** 2, axis=-1)


def test_the_bandwidth_is_twice_the_median_of_all_square_distances():
  # 15 draws have 7 * 15 pairs: all of them are used.
  points, _ = _draws_subsample(15)
  _, params = _fitted(points, tf.fill([15], tf.constant(1 / 15, tf.float64)))
  distances = _square_distances(points.numpy())[np.triu_indices(15, 1)]
  np.testing.assert_allclose(
    params.bandwidth, 2.0 * np.median(distances), rtol=1e-12
  )


def test_rows_without_a_draw_and_repeated_draws_do_not_count():
  points, _ = _draws_subsample(12)
  ones = tf.fill([12], tf.constant(1.0 / 12.0, tf.float64))
  _, alone = _fitted(points, ones)
  # Repeats: every draw 3 times has the same medians of distances above 0; its
  # random pairs are some of them.
  _, repeated = _fitted(tf.repeat(points, 3, axis=0), tf.repeat(ones, 3) / 3.0)
  distances = _square_distances(points.numpy())
  assert 0.6 < repeated.bandwidth / alone.bandwidth < 1.6
  assert float(repeated.bandwidth) / 2.0 in distances
  far = tf.concat([points, 1e6 + tf.zeros([5, 3], tf.float64)], axis=0)
  _, padded = _fitted(far, tf.concat([ones, tf.zeros([5], tf.float64)], 0))
  assert np.min(np.abs(distances - padded.bandwidth / 2.0)) < 1e-12


def test_log_prob_is_the_kernel_density_and_a_floor():
  points, weights = _draws_subsample(num_empty=4)
  surrogate, params = _fitted(points, weights)
  x = np.random.default_rng(1).normal(size=(5, 3))
  expected = [
    np.log(
      np.sum(
        weights.numpy()
        * np.exp(-np.sum((row - points.numpy()) ** 2, 1) / params.bandwidth)
      )
      + _FLOOR
    )
    for row in x
  ]
  np.testing.assert_allclose(
    surrogate.log_prob(params, tf.constant(x)), expected, rtol=1e-12
  )


def test_score_is_the_gradient():
  points, weights = _draws_subsample(num_empty=4)
  surrogate, params = _fitted(points, weights)
  # The draws themselves are constants.
  _, score = targets.value_and_gradient(
    lambda x: surrogate.log_prob(params, x), tf.identity(points)
  )
  np.testing.assert_allclose(
    surrogate.score(params, points), score, rtol=1e-9, atol=1e-12
  )
