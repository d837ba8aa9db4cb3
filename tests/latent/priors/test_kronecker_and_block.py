"""What Kronecker products and blocks promise beside the common contract."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import gaussian_priors

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
