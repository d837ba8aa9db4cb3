"""The kernel subsample: bandwidth, density and score against dense algebra."""

import numpy as np
import tensorflow as tf

from experiments.samplers.baselines.kernel_subsample import _FLOOR
from experiments.samplers.baselines.kernel_subsample import kernel_subsample

_SEED = (1, 2)


def _draws(num_points=17, num_empty=0, event_size=3, seed=0):
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
  points, _ = _draws(15)
  _, params = _fitted(points, tf.fill([15], tf.constant(1 / 15, tf.float64)))
  distances = _square_distances(points.numpy())[np.triu_indices(15, 1)]
  np.testing.assert_allclose(
    params.bandwidth, 2.0 * np.median(distances), rtol=1e-12
  )


def test_rows_without_a_draw_and_repeated_draws_do_not_count():
  points, _ = _draws(12)
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
  points, weights = _draws(num_empty=4)
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
  points, weights = _draws(num_empty=4)
  surrogate, params = _fitted(points, weights)
  x = tf.identity(points)  # The draws themselves are constants.
  with tf.GradientTape() as tape:
    tape.watch(x)
    values = surrogate.log_prob(params, x)
  score = tape.gradient(values, x)
  np.testing.assert_allclose(
    surrogate.score(params, x), score, rtol=1e-9, atol=1e-12
  )
