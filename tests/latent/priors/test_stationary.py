"""Stationary fields on grids: the torus that is chosen, and what is refused."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import gaussian_priors

_psd_kernels = tfp.math.psd_kernels


def _seen_covariance(prior):
  """Returns the covariance of the grid's points, from that of the torus."""
  size = int(np.prod(prior.event_shape))
  unit = tf.eye(size, dtype=prior.params.eigenvalues.dtype)
  rows = prior.to_coordinates(prior.params, unit) - prior.to_coordinates(
    prior.params, tf.zeros_like(unit)
  )
  scaled = prior.covariance(prior.params).multiply(rows)
  torus = rows.numpy() @ scaled.numpy().T
  state = tf.reshape(tf.range(size), prior.event_shape)
  restrict = prior.restrict or tf.identity
  seen = restrict(state).numpy().reshape(-1)
  return torus[np.ix_(seen, seen)]


def _points(shape, spacing=1.0):
  axes = np.meshgrid(*(np.arange(n) for n in shape), indexing='ij')
  return np.stack(axes, axis=-1).reshape([-1, len(shape)]) * spacing


def _exponential(length_scale):
  return _psd_kernels.MaternOneHalf(
    length_scale=np.asarray(length_scale, np.float64)
  )


CASES = dict(
  line=((9,), _exponential(2.0), 1.0, 0.0),
  long_range_line=((9,), _exponential(100.0), 1.0, 0.0),
  plane=((5, 6), _exponential(1.0), 0.5, 1e-6),
  smooth_plane=(
    (5, 4),
    _psd_kernels.ExponentiatedQuadratic(
      length_scale=np.asarray(3.0, np.float64)
    ),
    1.0,
    1e-8,
  ),
  tilted_plane=(
    (5, 6),
    _psd_kernels.FeatureTransformed(
      _exponential(1.0),
      lambda x, feature_ndims, example_ndims: tf.linalg.matvec(
        tf.constant([[1.0, 0.6], [0.0, 1.0]], tf.float64), x
      ),
    ),
    np.array([1.0, 2.0]),
    1e-4,
  ),
  column=((5, 1), _exponential(2.0), 1.0, 0.0),
)


@pytest.mark.parametrize('name', CASES)
def test_covariance_on_the_grid_is_the_one_asked_for(name):
  shape, kernel, spacing, tolerance = CASES[name]
  prior = gaussian_priors.stationary(
    shape, kernel, spacing, tolerance=tolerance
  )
  points = _points(shape, spacing)
  wanted = kernel.matrix(points, points).numpy()
  np.testing.assert_allclose(
    _seen_covariance(prior), wanted, atol=max(tolerance, 1e-12)
  )


def test_torus_is_as_small_as_the_range_of_the_kernel_allows():
  kernel = lambda r: 1.91 * tf.exp(-r * 33 / 64)
  build = lambda tolerance: gaussian_priors.stationary(
    (64, 64), kernel, tolerance=tolerance, dtype=tf.float64
  )
  # exp(-33 / 64 h) < 1e-6 from h = 26.8 on: 63 + 27 cells.
  assert build(1e-6).event_shape == (90, 90)
  # Twice the grid, rounded up to a fast size.
  assert build(0.0).event_shape == (128, 128)
  assert build(1e-3).event_shape == (80, 80)


def test_torus_grows_until_the_embedding_is_positive():
  kernel = _psd_kernels.ExponentiatedQuadratic(
    length_scale=np.asarray(4.0, np.float64)
  )
  prior = gaussian_priors.stationary(8, kernel, tolerance=1e-8)
  assert prior.event_shape[0] > 15
  points = _points([8])
  np.testing.assert_allclose(
    _seen_covariance(prior), kernel.matrix(points, points), atol=1e-8
  )


def test_embedding_that_is_not_positive_is_refused_with_advice():
  kernel = _exponential(40.0)
  with pytest.raises(ValueError, match='tolerance=.*torus_shape.*kronecker'):
    gaussian_priors.stationary((6, 6), kernel)
  # The advice is good.
  with pytest.raises(ValueError) as error:
    gaussian_priors.stationary((6, 6), kernel)
  tolerance = float(str(error.value).split('tolerance=')[1].split('`')[0])
  assert tolerance < 0.05
  gaussian_priors.stationary((6, 6), kernel, tolerance=tolerance)
