"""Optimizers against the same rules written in numpy."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import parts
from tfp_adaptive.linear import schedule

_DENSE = tfpa.preconditioners.cholesky()
_GRADS = [
  np.tril(np.random.default_rng(seed).normal(size=(3, 3))) for seed in range(6)
]


def _run(
  optimizer, grads=_GRADS, params=None, preconditioner=_DENSE, **feedback
):
  """Returns params after each of the gradients."""
  params = tf.constant(np.eye(3) if params is None else params)
  state = optimizer.init(params, parts.PROBLEM)
  path = []
  for gradient in grads:
    params, state = parts.update_optimizer(
      optimizer,
      tf.constant(gradient),
      state,
      params,
      preconditioner,
      **feedback,
    )
    path.append(params.numpy())
  return path


def test_rmsprop_is_the_rule_of_the_paper():
  expected, mean_square = np.eye(3), _GRADS[0] ** 2
  path = _run(tfpa.optimizers.rmsprop(0.01, decay=0.9))
  for gradient, params in zip(_GRADS, path):
    mean_square = 0.9 * mean_square + 0.1 * gradient**2
    expected = expected + 0.01 * gradient / (1.0 + np.sqrt(mean_square))
    np.testing.assert_allclose(params, expected, rtol=1e-12)


def test_adam_is_algorithm_one_of_its_paper():
  rate, decay, square_decay, epsilon = 0.01, 0.9, 0.999, 1e-8
  expected, mean, square = np.eye(3), np.zeros([3, 3]), np.zeros([3, 3])
  path = _run(tfpa.optimizers.adam(rate))
  for count, (gradient, params) in enumerate(zip(_GRADS, path), start=1):
    mean = decay * mean + (1 - decay) * gradient
    square = square_decay * square + (1 - square_decay) * gradient**2
    unbiased = mean / (1 - decay**count)
    unbiased_square = square / (1 - square_decay**count)
    expected = expected + rate * unbiased / (np.sqrt(unbiased_square) + epsilon)
    np.testing.assert_allclose(params, expected, rtol=1e-6, atol=1e-12)


def test_adam_clips_the_entries_of_the_gradient_summed_over_chains():
  most = 0.5 / parts.PROBLEM.num_chains
  cut = _run(tfpa.optimizers.adam(0.01, clip_value=0.5))
  expected = _run(
    tfpa.optimizers.adam(0.01), [np.clip(g, -most, most) for g in _GRADS]
  )
  np.testing.assert_allclose(cut, expected, rtol=1e-12)
  assert np.abs(cut[-1] - _run(tfpa.optimizers.adam(0.01))[-1]).max() > 1e-3


@pytest.mark.parametrize('factory', ['rmsprop', 'adam'])
def test_raw_steps_are_projected_on_the_structure(factory):
  optimizer = getattr(tfpa.optimizers, factory)(100.0)
  dense = tfpa.preconditioners.cholesky(min_scale=1e-3)
  for params in _run(optimizer, [-np.ones([3, 3])] * 3, preconditioner=dense):
    np.testing.assert_array_equal(np.triu(params, 1), 0.0)
    assert np.all(np.diag(params) >= 1e-3)


def test_a_relative_step_moves_the_covariance_by_the_rate():
  # C C^T <- C (I + rho A) C^T to first order, A in units of the objective,
  # rho_0 = min(1/2, k / (2 k (1 + p / d) / B)) = 1/2 for these sizes.
  factor = np.tril(np.random.default_rng(7).normal(size=(3, 3))) + 3 * np.eye(3)
  gradient, rate, scale = _GRADS[0] + _GRADS[0].T, 0.5, 1e5
  (moved,) = _run(
    tfpa.optimizers.relative_gradient(),
    [gradient],
    params=factor,
    objective_scale=scale,
  )
  change = (moved @ moved.T - factor @ factor.T) * scale / rate
  expected = factor @ gradient @ factor.T
  np.testing.assert_allclose(change, expected, rtol=1e-3, atol=1e-3)


def test_summed_steps_move_the_factor_as_single_steps_do():
  # One chain and 64 params: moves are summed over p / (d B) = 8 gradients.
  size, scale = 8, 1e5
  optimizer = tfpa.optimizers.relative_gradient()
  rng = np.random.default_rng(0)
  grads = [rng.normal(size=(size, size)) for _ in range(8)]
  grads = [tf.constant(g + g.T) for g in grads]
  covariances = {}
  for num_chains in (1, 4):
    problem = parts.PROBLEM._replace(
      event_size=size, num_params=size**2, num_chains=num_chains
    )
    params = tf.eye(size, dtype=tf.float64)
    state, path = optimizer.init(params, problem), []
    for gradient in grads:
      params, state = parts.update_optimizer(
        optimizer,
        gradient,
        state,
        params,
        _DENSE,
        objective_scale=scale,
        problem=problem,
      )
      path.append(params.numpy())
    covariances[num_chains] = [p @ p.T - np.eye(size) for p in path]
  moves = [np.any(c != 0.0) for c in covariances[1]]
  assert moves == [False] * 7 + [True]
  # To first order the sum is that of rho_t A_t, rho_t = 4 / (t + 72 / B).
  for num_chains in (1, 4):
    expected = sum(
      min(0.5, 4.0 / (t + 72.0 / num_chains)) * gradient.numpy()
      for t, gradient in enumerate(grads)
    )
    np.testing.assert_allclose(
      covariances[num_chains][-1] * scale, expected, rtol=1e-2, atol=1e-2
    )


@pytest.mark.parametrize('num_chains', [1, 4])
def test_summed_forces_move_the_scale_by_all_of_them(num_chains):
  # Moves are summed over p / (d B) = 8 or 2 gradients.
  size, force, num_steps = 8, 0.05, 8
  problem = parts.PROBLEM._replace(
    event_size=size, num_params=size**2, num_chains=num_chains
  )
  optimizer = tfpa.optimizers.relative_gradient()
  params = tf.eye(size, dtype=tf.float64)
  state = optimizer.init(params, problem)
  for _ in range(num_steps):
    params, state = parts.update_optimizer(
      optimizer,
      tf.zeros([size, size], tf.float64),
      state,
      params,
      _DENSE,
      scale_force=force,
      problem=problem,
    )
  rates = (1.0 + np.arange(num_steps) / num_chains**0.5) ** -0.6
  expected = np.exp(force * np.sum(rates))
  np.testing.assert_allclose(params, expected * np.eye(size), rtol=1e-12)


@pytest.mark.parametrize('size', [1e-3, 1.0, 1e6])
def test_relative_steps_never_make_a_dense_factor_singular(size):
  optimizer = tfpa.optimizers.relative_gradient()
  before = np.eye(3)
  for params in _run(optimizer, [size * g for g in _GRADS]):
    assert np.all(np.diag(params) > 0.0)
    # No direction changes by more than a factor of about two.
    singular = np.linalg.svd(np.linalg.solve(before, params), compute_uv=False)
    assert np.all(singular < 2.5) and np.all(singular > 0.25)
    before = params


# Rates that need no tuning: their formula and their limits.


def _rates(num_steps, **sizes):
  problem = parts.PROBLEM._replace(**sizes)
  return np.array(
    [
      float(schedule.covariance_rate(tf.constant(t, tf.float64), problem))
      for t in np.arange(num_steps, dtype=np.float64)
    ]
  )


@pytest.mark.parametrize('num_chains', [1, 10, 1000])
def test_the_rate_is_the_documented_one(num_chains):
  rates = _rates(50, event_size=10, num_params=100, num_chains=num_chains)
  expected = 4.0 / (np.arange(50) + 8.0 * (1.0 + 10.0) / num_chains)
  np.testing.assert_allclose(rates, np.minimum(expected, 0.5), rtol=1e-12)


def test_means_follow_five_times_faster_than_the_covariance():
  t = np.array([0.0, 12.0, 32.0, 92.0, 1e6])
  weights = schedule.smoothing_weight(
    tf.constant(t), parts.PROBLEM, tf.constant(False)
  )
  # Three params per coordinate and four chains: 4 / (t + 8).
  expected = [1.0, 1.0, 0.5, 0.2, 20.0 / (1e6 + 8.0)]
  np.testing.assert_allclose(weights, expected, rtol=1e-12)


def test_what_came_first_is_averaged_where_the_covariance_waits():
  t = np.array([0.0, 1.0, 9.0])
  problem = parts.PROBLEM._replace(num_params=9000)
  weights = schedule.smoothing_weight(
    tf.constant(t), problem, tf.constant(False)
  )
  np.testing.assert_allclose(weights, [1.0, 0.5, 0.1], rtol=1e-12)


@pytest.mark.parametrize(
  'sizes, period',
  [
    (dict(event_size=100, num_params=100, num_chains=1), 1),
    (dict(event_size=100, num_params=10_000, num_chains=1), 16),
    (dict(event_size=100, num_params=10_000, num_chains=10), 10),
    (dict(event_size=100, num_params=10_000, num_chains=1000), 1),
  ],
)
def test_moves_are_summed_only_where_they_are_dear(sizes, period):
  problem = parts.PROBLEM._replace(**sizes)
  assert float(schedule.update_period(problem)) == period
