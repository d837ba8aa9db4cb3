"""Two surrogates in turn: whose score is followed."""

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.surrogate import surrogates

_POINTS = tf.constant(np.random.default_rng(0).normal(size=(64, 3)))
_WEIGHTS = tf.fill([64], tf.constant(1.0 / 64, tf.float64))


def _pair(num_first_fits):
  first = surrogates.known(lambda x: 7.0 * x, num_points=64)
  return tfpa.surrogates.in_turn(first, surrogates.gaussian(), num_first_fits)


def test_the_second_is_followed_once_the_first_had_its_fits():
  surrogate = _pair(num_first_fits=2)
  gaussian = surrogates.gaussian()
  x, seed = _POINTS[:5], tf.constant([0, 1])
  params = surrogate.init(3, tf.float64, seed)
  alone = gaussian.fit(
    gaussian.init(3, tf.float64, seed), _POINTS, _WEIGHTS, seed
  )
  fit = tf.function(surrogate.fit, jit_compile=True)
  score = tf.function(surrogate.score, jit_compile=True)
  for num_fits in range(1, 5):
    params = fit(params, _POINTS, _WEIGHTS, seed)
    expected = 7.0 * x if num_fits <= 2 else gaussian.score(alone, x)
    np.testing.assert_allclose(score(params, x), expected, rtol=1e-10)
    np.testing.assert_allclose(surrogate.score(params, x), expected, rtol=1e-10)
  np.testing.assert_allclose(
    surrogate.log_prob(params, x), gaussian.log_prob(alone, x), rtol=1e-10
  )
  assert np.all(surrogate.is_inside(params, x) == gaussian.is_inside(alone, x))


def test_draws_are_added_to_the_fit_that_is_followed():
  surrogate = tfpa.surrogates.in_turn(
    surrogates.gaussian(), surrogates.gaussian(online=True), num_first_fits=1
  )
  seed = tf.constant([0, 1])
  params = surrogate.init(3, tf.float64, seed)
  update = tf.function(surrogate.update, jit_compile=True)
  counts = []
  for _ in range(3):
    params = surrogate.fit(params, _POINTS, _WEIGHTS, seed)
    params = update(params, _POINTS[:4])
    counts.append((int(params.first.num_updates), int(params.then.num_updates)))
  assert counts == [(0, 0), (0, 1), (0, 2)]
  assert _pair(1).update is None
