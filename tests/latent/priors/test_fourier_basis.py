"""The real Fourier basis against matrices."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.latent.priors import fourier_basis

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
