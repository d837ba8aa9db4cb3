"""Stationary fields on grids: the torus that is chosen, and what is refused."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tfp_adaptive import gaussian_priors
from tfp_adaptive.latent.priors import circulant_embedding

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


def test_fast_sizes_are_products_of_2_3_and_5():
  sizes = [circulant_embedding.fast_size(n) for n in (1, 7, 11, 61, 97, 127)]
  assert sizes == [1, 8, 12, 64, 100, 128]


def test_an_iteration_makes_two_transforms():
  prior = gaussian_priors.stationary((3, 4), _exponential(0.5))
  seen = []

  def log_likelihood(x):
    seen.append(x.shape)
    return -tf.reduce_sum(tf.exp(x), axis=[-2, -1])

  kernel = tfpa.marginal_gradient(log_likelihood, 0, prior=prior)
  state = gaussian_priors.sample(prior, [2], seed=1)
  results = kernel.bootstrap_results(state)
  step = tf.function(lambda x, r: kernel.one_step(x, r, seed=(1, 2)))
  graph = step.get_concrete_function(state, results).graph
  operations = [op.type for op in graph.get_operations()]
  transforms = [kind for kind in operations if 'FFT' in kind]
  assert sorted(transforms) == ['IRFFT2D', 'RFFT2D']
  assert set(map(tuple, seen)) == {(2, 3, 4)}


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


def test_a_torus_that_is_too_small_is_refused():
  with pytest.raises(ValueError, match=r'on the torus \(1, 5\)'):
    gaussian_priors.stationary(4, _exponential(2.0), torus_shape=5)
  with pytest.raises(ValueError, match='at least the grid'):
    gaussian_priors.stationary(4, _exponential(2.0), torus_shape=3)


def test_what_is_no_stationary_kernel_is_refused():
  linear = _psd_kernels.Linear(np.asarray(1.0, np.float64))
  with pytest.raises(ValueError, match='not stationary'):
    gaussian_priors.stationary(4, linear)
  with pytest.raises(TypeError, match='function of distance'):
    gaussian_priors.stationary(4, 3.0)
  with pytest.raises(ValueError, match='largest there'):
    gaussian_priors.stationary(4, lambda r: r)
  with pytest.raises(ValueError, match='not finite'):
    gaussian_priors.stationary(4, lambda r: 1.0 / r)
  with pytest.raises(ValueError, match='one number for every distance'):
    gaussian_priors.stationary(4, tf.reduce_sum)


def test_shapes_that_make_no_sense_are_refused():
  kernel = _exponential(1.0)
  with pytest.raises(ValueError, match='one or two positive ints'):
    gaussian_priors.stationary((3, 3, 3), kernel)
  with pytest.raises(ValueError, match='spacing'):
    gaussian_priors.stationary(4, kernel, spacing=-1.0)
  with pytest.raises(ValueError, match=r'`mean` must be .*\[..., 4\]'):
    gaussian_priors.stationary(4, kernel, mean=np.zeros(3))


@pytest.mark.full
def test_prior_inside_a_function_is_the_one_outside():
  outside = gaussian_priors.stationary(
    5, _exponential(0.5), torus_shape=20, tolerance=1e-6
  )

  @tf.function(jit_compile=True)
  def eigenvalues(length_scale):
    prior = gaussian_priors.stationary(
      5, _psd_kernels.MaternOneHalf(None, length_scale), torus_shape=20
    )
    return prior.params.eigenvalues

  inside = eigenvalues(tf.constant(0.5, tf.float64))
  np.testing.assert_allclose(inside, outside.params.eigenvalues, atol=1e-7)
  # Any length scale has a prior there: the periodic sum is a covariance.
  assert np.min(eigenvalues(tf.constant(4.0, tf.float64))) > 0.0

  @tf.function
  def without_torus(length_scale):
    kernel = _psd_kernels.MaternOneHalf(None, length_scale)
    return gaussian_priors.stationary(5, kernel).params.eigenvalues

  with pytest.raises(ValueError, match='Give `torus_shape`'):
    without_torus(tf.constant(0.5, tf.float64))
