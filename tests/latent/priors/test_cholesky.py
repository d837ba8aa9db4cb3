"""The factor of a covariance that hardly has one, or has none."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive import gaussian_priors

_NUM_POINTS = 60


def _kernel(length_scale, dtype):
  points = np.random.default_rng(0).normal(size=[_NUM_POINTS, 1])
  points[1] = points[0]
  squares = ((points - points[:, 0]) ** 2).astype(dtype)
  return np.exp(-squares / np.asarray(2.0 * length_scale**2, dtype))


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
@pytest.mark.parametrize('length_scale', [0.1, 1.0, 1e3])
def test_a_singular_kernel_has_a_factor_to_rounding(length_scale, dtype):
  matrix = _kernel(length_scale, dtype)
  with np.testing.assert_raises(np.linalg.LinAlgError):
    np.linalg.cholesky(matrix)
  prior = gaussian_priors.cholesky(tf.constant(matrix))
  covariance = prior.covariance(prior.params).multiply(
    np.eye(_NUM_POINTS, dtype=dtype)
  )
  rounding = _NUM_POINTS * np.finfo(dtype).eps
  np.testing.assert_allclose(covariance, matrix, atol=3 * rounding)
  assert np.all(np.isfinite(gaussian_priors.sample(prior, [3], seed=0)))


@pytest.mark.parametrize('entry', [np.nan, np.inf])
def test_a_covariance_that_overflows_has_no_density_and_raises_nothing(entry):
  @tf.function
  def densities(corner):
    matrix = tf.linalg.set_diag(
      tf.eye(3, batch_shape=[2], dtype=tf.float64),
      tf.stack([tf.stack([corner, 1.0, 1.0]), tf.ones([3], tf.float64)]),
    )
    prior = gaussian_priors.cholesky(matrix)
    rows = tf.ones([2, 3], tf.float64)
    smoother = prior.smoother(prior.params, tf.constant(0.3, tf.float64))
    return (
      prior.covariance(prior.params).log_prob(rows),
      smoother.log_marginal(rows),
      smoother.draw_marginal(rows, rows)[:, 0],
    )

  for value in densities(tf.constant(entry, tf.float64)):
    np.testing.assert_array_equal(np.isfinite(value), [False, True])
