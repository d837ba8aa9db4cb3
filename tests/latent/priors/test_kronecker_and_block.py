"""What Kronecker products and blocks promise beside the common contract."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.latent.priors import structures
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


def test_factors_that_do_not_fit_are_refused():
  with pytest.raises(ValueError, match='one matrix for every axis'):
    gaussian_priors.kronecker()
  with pytest.raises(ValueError, match='one entry for every axis'):
    gaussian_priors.kronecker(kernels=[_kernel(1.0)], index_points=[])
  with pytest.raises(ValueError, match='one dtype'):
    gaussian_priors.kronecker([_MATRIX, _MATRIX.astype(np.float32)])
  with pytest.raises(ValueError, match='That is factor 1'):
    gaussian_priors.kronecker([_MATRIX, _MATRIX - 2.0 * np.eye(2)])
  with pytest.raises(ValueError, match='symmetric'):
    gaussian_priors.kronecker([_MATRIX, np.triu(_MATRIX)])
  with pytest.raises(ValueError, match=r'\[..., 2, 2\]'):
    gaussian_priors.kronecker([_MATRIX, _MATRIX], mean=np.zeros(4))


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


def test_the_state_of_a_list_may_be_a_list():
  rows = gaussian_priors.kronecker([_MATRIX, _MATRIX])
  dense = gaussian_priors.spectral(_MATRIX)
  prior = gaussian_priors.block([rows, dense])
  joined = gaussian_priors.sample(prior, [3], seed=1)
  parts = [tf.reshape(joined[:, :4], [3, 2, 2]), joined[:, 4:]]
  kernel = tfpa.marginal_gradient(
    lambda x, y: -tf.reduce_sum(x**4, axis=[-2, -1]) * tf.reduce_sum(y**2, -1),
    0,
    prior=prior,
  )
  alone = tfpa.marginal_gradient(
    lambda x: (
      -tf.reduce_sum(x[:, :4] ** 4, -1) * tf.reduce_sum(x[:, 4:] ** 2, -1)
    ),
    0,
    prior=prior,
  )
  moved, _ = kernel.one_step(parts, kernel.bootstrap_results(parts), (1, 2))
  expected, _ = alone.one_step(joined, alone.bootstrap_results(joined), (1, 2))
  assert np.any(expected != joined)
  np.testing.assert_allclose(moved[0], tf.reshape(expected[:, :4], [3, 2, 2]))
  np.testing.assert_allclose(moved[1], expected[:, 4:])


def test_blocks_that_make_no_sense_are_refused():
  dense = gaussian_priors.spectral(_MATRIX)
  single = gaussian_priors.spectral(_MATRIX.astype(np.float32))
  with pytest.raises(ValueError, match='block\\(prior, num_blocks=3\\)'):
    gaussian_priors.block(dense)
  with pytest.raises(ValueError, match='Leave it out'):
    gaussian_priors.block([dense, dense], num_blocks=2)
  with pytest.raises(ValueError, match='list of at least one'):
    gaussian_priors.block([dense, _MATRIX])
  with pytest.raises(ValueError, match='one dtype'):
    gaussian_priors.block([dense, single])


def test_log_prob_of_a_state_of_another_shape_is_refused():
  prior = _line()
  with pytest.raises(ValueError, match=r'event shape \(6,\).*restrict'):
    gaussian_priors.log_prob(prior, np.zeros([4, 3]))


@pytest.mark.full
def test_draws_are_the_same_compiled_and_of_any_shape():
  prior = structures.STRUCTURES['kronecker'].build(tf.float64)
  draw = lambda: gaussian_priors.sample(prior, [2, 3], seed=(1, 2))
  compiled = tf.function(draw, jit_compile=True)()
  np.testing.assert_allclose(compiled, draw(), rtol=1e-10)
  assert gaussian_priors.sample(prior, seed=1).shape == [3, 2]
  assert gaussian_priors.log_prob(prior, compiled).shape == [2, 3]
