"""What steps earn, and the share of walks that follows from it."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.surrogate import walk as walk_lib

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
