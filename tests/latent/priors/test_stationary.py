"""Stationary fields on grids: the torus that is chosen, and what is refused."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import gaussian_priors
from tfp_adaptive.latent.priors import fourier_basis

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
  words = 'tolerance=.*torus_shape.*kronecker'
  with pytest.raises(ValueError, match=words) as error:
    gaussian_priors.stationary((6, 6), kernel)
  # The advice is good.
  tolerance = float(str(error.value).split('tolerance=')[1].split('`')[0])
  assert tolerance < 0.05
  gaussian_priors.stationary((6, 6), kernel, tolerance=tolerance)


# The real Fourier basis against matrices.


each_shape = pytest.mark.parametrize(
  'shape',
  [(1, 1), (1, 2), (1, 5), (1, 6), (2, 2), (3, 4), (4, 5), (5, 3), (4, 1)],
)


def _matrix(shape):
  """Returns U, [d, d]: its columns are the fields of unit coordinates."""
  unit = tf.eye(shape[0] * shape[1], dtype=tf.float64)
  return fourier_basis.backward(unit, shape).numpy().T


@each_shape
def test_basis_is_orthonormal_and_forward_is_its_adjoint(shape):
  basis = _matrix(shape)
  identity = np.eye(len(basis))
  np.testing.assert_allclose(basis @ basis.T, identity, atol=1e-14)
  coordinates = fourier_basis.forward(tf.constant(identity), shape)
  np.testing.assert_allclose(coordinates, basis, atol=1e-14)


@each_shape
def test_basis_diagonalizes_every_stationary_covariance(shape):
  # Even, c(-h) = c(h), and nothing else: not isotropic, not symmetric by axis.
  by_lag = np.random.default_rng(0).normal(size=shape)
  opposite = np.roll(by_lag[::-1, ::-1], 1, axis=(0, 1))
  by_lag = 0.5 * (by_lag + opposite)
  rows, columns = (index.reshape(-1) for index in np.indices(shape))
  circulant = by_lag[
    (rows[:, None] - rows) % shape[0], (columns[:, None] - columns) % shape[1]
  ]
  basis = _matrix(shape)
  gamma = fourier_basis.eigenvalues(tf.constant(by_lag))
  np.testing.assert_allclose(
    basis.T @ circulant @ basis, np.diag(gamma), atol=1e-13
  )


# What Kronecker products and blocks promise beside the common contract.


_MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]])


def _kernel(length_scale):
  return tfp.math.psd_kernels.MaternThreeHalves(
    length_scale=np.asarray(length_scale, np.float64)
  )


def _line():
  return gaussian_priors.stationary(
    3, _kernel(0.5), torus_shape=6, tolerance=1.0
  )


def test_kernels_by_axis_give_the_product_kernel():
  rows, columns = np.array([0.0, 1.0, 3.0]), np.array([[0.0, 1.0], [2.0, 1.0]])
  prior = gaussian_priors.kronecker(
    kernels=[_kernel(2.0), _kernel(1.0)], index_points=[rows, columns]
  )
  assert prior.event_shape == (3, 2)
  expected = gaussian_priors.kronecker(
    [
      _kernel(2.0).matrix(rows[:, None], rows[:, None]),
      _kernel(1.0).matrix(columns, columns),
    ]
  )
  np.testing.assert_allclose(
    prior.params.eigenvalues, expected.params.eigenvalues
  )


def test_jitter_is_added_to_the_variance_of_every_point():
  prior = gaussian_priors.kronecker([_MATRIX, _MATRIX], jitter=0.1)
  singular = gaussian_priors.kronecker([np.ones([2, 2]), _MATRIX])
  lifted = gaussian_priors.kronecker([np.ones([2, 2]), _MATRIX], jitter=0.1)
  assert singular.is_singular and not lifted.is_singular
  x = tf.eye(4, dtype=tf.float64)
  s = prior.to_coordinates(prior.params, x)
  covariance = prior.from_coordinates(
    prior.params, prior.covariance(prior.params).multiply(s)
  )
  np.testing.assert_allclose(
    covariance, np.kron(_MATRIX, _MATRIX) + 0.1 * np.eye(4), atol=1e-14
  )


def test_copies_restrict_every_block():
  prior = gaussian_priors.block(_line(), num_blocks=2)
  states = gaussian_priors.sample(prior, [5], seed=1)
  assert states.shape == [5, 2, 6]
  np.testing.assert_array_equal(prior.restrict(states), states[..., :3])


def test_a_list_concatenates_what_its_priors_restrict():
  dense = gaussian_priors.spectral(_MATRIX)
  prior = gaussian_priors.block([_line(), dense])
  states = gaussian_priors.sample(prior, [5], seed=1)
  assert states.shape == [5, 8]
  np.testing.assert_array_equal(
    prior.restrict(states),
    np.concatenate([states[:, :3], states[:, 6:]], axis=-1),
  )
  assert gaussian_priors.block([dense, dense]).restrict is None
