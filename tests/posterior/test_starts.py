"""Starts, and densities that are none of each chain."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.posterior import problem as problem_lib
from tfp_adaptive.posterior import starts as starts_lib

_NUM_CHAINS, _SIZE = 4, 3
_SEED = tf.constant([1, 2])


def _drawn(log_prob, **replaced):
  problem = problem_lib.of_density(
    log_prob, tf.TensorSpec([_SIZE], tf.float64), None, _NUM_CHAINS
  )._replace(**replaced)
  evaluate = starts_lib.Evaluate(problem.target_log_prob_fn, _NUM_CHAINS)
  return starts_lib.draw(problem, evaluate, _NUM_CHAINS, _SEED)


def _normal(x):
  return -0.5 * tf.reduce_sum(x**2, axis=-1)


def test_starts_lie_apart():
  starts, num_redrawn = _drawn(_normal)
  assert starts.shape == (_NUM_CHAINS, _SIZE) and num_redrawn == 0
  assert np.ptp(starts, axis=0).min() > 0.1 and np.abs(starts).max() <= 2.0


def test_starts_without_a_finite_density_are_drawn_again_and_counted():
  half = lambda x: tf.where(x[..., 0] > 0.0, _normal(x), np.nan)
  starts, num_redrawn = _drawn(half)
  assert np.all(starts[:, 0] > 0.0) and num_redrawn > 0


def test_starts_where_no_step_can_be_told_are_drawn_again_and_counted():
  # Below 1 - 2^26 / 1e9: most of the starts drawn first.
  def cliff(x):
    return _normal(x) + 1e9 * tf.minimum(x[..., 0] - 1.0, 0.0)

  starts, num_redrawn = _drawn(cliff)
  assert np.all(starts[:, 0] > 0.91) and num_redrawn > 0
  # What the user gave stays.
  given = tf.constant([[-2.0] * 3, [1.0] * 3, [0.5] * 3, [0.0] * 3], tf.float64)
  starts, num_redrawn = _drawn(cliff, draw_starts=lambda *_: given)
  np.testing.assert_array_equal(starts, given)
  assert num_redrawn == 0


def test_where_none_is_near_zero_the_prior_is_drawn_from():
  far = lambda x: tf.where(x[..., 0] > 5.0, _normal(x), -np.inf)
  prior = lambda num_chains, seed: tf.fill(
    [num_chains, _SIZE], tf.constant(6.0, tf.float64)
  )
  starts, _ = _drawn(far, draw_prior=prior)
  np.testing.assert_array_equal(starts, 6.0)
  with pytest.raises(ValueError, match='not finite at the starts of 4 of 4'):
    _drawn(far)


def _fails(num_chains, seed):
  raise ValueError('must be wrapped in `Root`')


@pytest.mark.parametrize(
  'prior', [_fails, lambda *_: tf.zeros([1, _SIZE], tf.float64)]
)
def test_a_prior_that_cannot_be_drawn_of_chains_hides_nothing(prior):
  far = lambda x: tf.where(x[..., 0] > 5.0, _normal(x), -np.inf)
  with pytest.raises(ValueError, match='not finite at the starts of 4 of 4'):
    _drawn(far, draw_prior=prior)
  # Far out, but finite: they go.
  steep = lambda x: _normal(x) + 1e12 * tf.minimum(x[..., 0] - 1.99, 0.0)
  starts, _ = _drawn(steep, draw_prior=prior)
  assert np.ptp(starts, axis=0).min() > 0.1


@pytest.mark.parametrize(
  'log_prob, message',
  [
    (lambda x: -0.5 * tf.reduce_sum(x**2), r'shape \(\) for 4 chains'),
    (lambda x: -0.5 * x**2, r'shape \(4, 3\) for 4 chains'),
    (
      lambda x: _normal(x) + tf.reduce_sum(x),
      'another chain moves: it mixes chains',
    ),
    (
      lambda x: _normal(x) + tf.range(4.0, dtype=x.dtype) * x[::-1, 0],
      'another chain moves: it mixes chains',
    ),
  ],
  ids=['sums all', 'sums none', 'adds all chains', 'takes another chain'],
)
def test_a_density_that_is_none_of_each_chain_is_refused(log_prob, message):
  with pytest.raises(ValueError, match=message):
    _drawn(log_prob)


def test_chains_that_are_mixed_are_seen_where_the_first_two_start_alike():
  mixed = lambda x: _normal(x) - tf.reduce_mean(x) ** 2
  given = tf.constant([[1.0] * 3, [1.0] * 3, [2.0] * 3, [5.0] * 3], tf.float64)
  with pytest.raises(ValueError, match='it mixes chains'):
    _drawn(mixed, draw_starts=lambda *_: given)


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_a_small_term_that_mixes_chains_is_told_beside_a_large_one(dtype):
  large = lambda x: 1e6 - 1e6 * tf.reduce_sum(x**2, axis=-1)
  mixed = lambda x: large(x) - 100.0 * tf.reduce_sum(x**2)
  given = dtype(0.1 * np.random.default_rng(0).normal(size=[4, _SIZE]))
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    starts_lib._check(starts_lib.Evaluate(large, _NUM_CHAINS), given)
  with pytest.warns(UserWarning, match='changes by .* it mixes chains'):
    starts_lib._check(starts_lib.Evaluate(mixed, _NUM_CHAINS), given)


def test_evaluations_are_in_batches_of_chains_and_counted():
  evaluate = starts_lib.Evaluate(_normal, _NUM_CHAINS)
  rows = np.random.default_rng(0).normal(size=(11, _SIZE))
  values, gradients = evaluate(rows)
  np.testing.assert_allclose(values, -0.5 * np.sum(rows**2, axis=1))
  np.testing.assert_allclose(gradients, -rows)
  assert evaluate.num_calls == 3
  # Fewer than there are chains.
  np.testing.assert_allclose(evaluate(rows[:2])[1], -rows[:2])
