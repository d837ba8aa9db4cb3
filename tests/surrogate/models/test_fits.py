"""Whole fits: a Gaussian's score, weights, precisions, places without draws."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.surrogate import weighted_points
from tfp_adaptive.surrogate.models import kernel_exponential_family_finite
from tfp_adaptive.surrogate.models import kernel_exponential_family_lite
from tfp_adaptive.surrogate.models import kernel_surrogate
from tfp_adaptive.surrogate.models import score_matching
from tfp_adaptive.surrogate.models.kernel_exponential_family_finite import (
  _basis as finite_basis,
)

_SEED = (1, 2)
_NAMES = ['lite', 'few_centers', 'finite']
# Of the long tests: few centers are fitted like all points.
_BY_NIGHT = pytest.param('few_centers', marks=pytest.mark.nightly)
_TIERED = ['lite', _BY_NIGHT, 'finite']


def _surrogate(name, num_points, num_features):
  if name == 'lite':
    return kernel_exponential_family_lite(num_points)
  if name == 'few_centers':
    return kernel_exponential_family_lite(num_points, num_points // 5)
  return kernel_exponential_family_finite(num_points, num_features)


@functools.cache
def _compiled(name, num_points, num_features=None, dtype=tf.float64, size=2):
  """Returns the surrogate, params that know nothing and its compiled fit."""
  surrogate = _surrogate(name, num_points, num_features or num_points)
  return (
    surrogate,
    surrogate.init(size, dtype, _SEED),
    tf.function(surrogate.fit, jit_compile=True, autograph=False),
  )


def _equal_weights(points):
  return tf.fill([len(points)], tf.constant(1 / len(points), points.dtype))


def _relative_error(score, params, factor, num=1000):
  """Returns |score - truth| / |truth| over the bulk of N(0, C C^T).

  In coordinates of C, so that all directions count alike; the bulk holds 90 %.
  """
  size = len(factor)
  z = np.random.default_rng(5).normal(size=(num, size))
  z = z[np.sum(z**2, axis=-1) < -2.0 * np.log(0.1)]
  actual = score(params, tf.constant(z @ factor.T)).numpy() @ factor
  return np.sqrt(np.sum((actual + z) ** 2) / np.sum(z**2))


def _rotated_and_badly_scaled():
  angle = 0.7
  rotation = np.array(
    [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
  )
  return rotation * [100.0, 1.0]


_FACTORS = {'standard': np.eye(2), 'scaled': _rotated_and_badly_scaled()}


def _normal_points(num, factor, seed=0):
  z = np.random.default_rng(seed).normal(size=(num, len(factor)))
  return tf.constant(z @ factor.T)


@pytest.mark.full
@pytest.mark.parametrize(
  'factor',
  [
    pytest.param('standard', marks=pytest.mark.nightly),
    'scaled',
  ],
)
@pytest.mark.parametrize('name', _TIERED)
def test_the_score_of_a_gaussian_is_recovered_by_free_choices(name, factor):
  factor = _FACTORS[factor]
  surrogate, start, fit = _compiled(name, 500)
  errors, floors, spoiled = [], [], []
  for seed in range(7):
    points = _normal_points(500, factor, seed)
    weights = _equal_weights(points)
    params = start
    for _ in range(2):
      params = fit(params, points, weights, tf.constant(_SEED))
    errors.append(_relative_error(surrogate.score, params, factor))
    mean, covariance = weighted_points.moments(points, weights)
    precision = tf.linalg.inv(covariance)
    floors.append(
      _relative_error(
        lambda _, x: -(x - mean) @ precision,  # noqa: B023
        None,
        factor,
      )
    )
    spoiled.append(
      _relative_error(
        lambda params, x: 1.3 * surrogate.score(params, x), params, factor
      )
    )
  assert np.mean(errors) < 0.1
  # The Gaussian of these draws' own mean and covariance has an error, too, and
  # is what a fit should come to.
  assert np.mean(errors) < 1.1 * np.mean(floors)
  assert np.median(spoiled) > 0.2


@pytest.mark.parametrize(
  'is_ring', [pytest.param(False, marks=pytest.mark.full), True]
)
def test_the_base_alone_is_chosen_where_the_kernel_adds_nothing(is_ring):
  surrogate, params, fit = _compiled('finite', 500)
  points = _normal_points(500, np.eye(2))
  if is_ring:  # No Gaussian at all.
    points = points / tf.norm(points, axis=-1, keepdims=True) + 0.1 * points
  for _ in range(2):
    params = fit(params, points, _equal_weights(points), tf.constant(_SEED))
  has_kernel = np.max(np.abs(params.coefficients)) > 1e-6
  assert has_kernel == is_ring
  assert is_ring or np.max(np.abs(params.precision)) > 0.5


@pytest.mark.parametrize('shift', [0.0, 3.0])
def test_the_base_has_the_weight_that_held_out_draws_support(shift):
  rng = np.random.default_rng(0)
  points = rng.normal(size=(512, 2))
  # A chain that has met four places once each.
  points += np.repeat(shift * rng.normal(size=(4, 2)), 128, axis=0)
  square = trace = 0.0
  for block in np.split(np.arange(512), 4):
    rest = tf.constant(np.delete(points, block, axis=0))
    mean, covariance = weighted_points.moments(rest, _equal_weights(rest))
    precision = np.linalg.inv(covariance)
    scores = (points[block] - mean) @ precision
    square += np.mean(np.sum(scores**2, axis=-1)) / 4
    trace += np.trace(precision) / 4
  held_out = score_matching._held_out_base(
    score_matching.Draws(tf.constant(points), None)
  )
  np.testing.assert_allclose(held_out, (square, trace), rtol=1e-10)
  weight = float(score_matching._supported_weight(held_out))
  np.testing.assert_allclose(weight, min(1.0, trace / square), rtol=1e-10)
  # Independent draws support nearly all of it, those of four places little.
  assert weight > 0.9 if shift == 0.0 else weight < 0.7


def test_a_narrow_bandwidth_without_a_base_spoils_the_score():
  points = _normal_points(200, np.eye(2))
  choice = kernel_surrogate.FIRST_CHOICE._replace(
    bandwidth=1e-2, base_weight=0.0
  )
  surrogate, params = _fixed(points, choice)
  assert _relative_error(surrogate.score, params, np.eye(2)) > 0.5


def _fixed(points, choice, num_features=200):
  """Returns a finite surrogate and its params at this choice, not chosen."""
  size = points.shape[-1]
  surrogate = kernel_exponential_family_finite(len(points), num_features)
  params = surrogate.init(size, points.dtype, _SEED)
  basis = finite_basis(num_features)
  draws = score_matching.Draws(points, _equal_weights(points))
  choice = score_matching.Choice(*[tf.constant(v, tf.float64) for v in choice])
  maps = tf.eye(size, dtype=tf.float64) / tf.sqrt(choice.bandwidth * size)
  coefficients, _ = score_matching.solve(
    basis, maps, params.data, choice, draws, tf.eye(size, dtype=tf.float64)
  )
  return surrogate, params._replace(map=maps, coefficients=coefficients)


_SMALL = 48


@functools.cache
def _small(name, dtype=tf.float64):
  """Returns surrogate, draws, weights, some zero, and params of a fit."""
  surrogate = _surrogate(name, _SMALL, 20)
  points = tf.cast(_normal_points(_SMALL, _FACTORS['scaled'], 3), dtype)
  points = tf.concat([points[:40], 1e3 + tf.zeros([8, 2], dtype)], axis=0)
  weights = tf.concat([tf.fill([40], 1.0 / 40.0), tf.zeros([8])], axis=0)
  weights = tf.cast(weights, dtype)
  # Of the same random frequencies in both precisions.
  start = tf.nest.map_structure(
    lambda leaf: tf.cast(leaf, dtype), surrogate.init(2, tf.float64, _SEED)
  )
  params = surrogate.fit(start, points, weights, _SEED)
  return surrogate, points, weights, params


@pytest.mark.full
@pytest.mark.parametrize('name', _NAMES)
def test_rows_of_zero_weight_do_not_matter(name):
  surrogate, points, weights, params = _small(name)
  other = tf.concat([points[:40], tf.zeros([8, 2], tf.float64)], axis=0)
  start = surrogate.init(2, tf.float64, _SEED)
  again = surrogate.fit(start, other, weights, _SEED)
  x = points[:40]
  np.testing.assert_allclose(
    surrogate.score(params, x), surrogate.score(again, x), rtol=1e-9
  )
  if name == 'lite':
    np.testing.assert_array_equal(params.coefficients[40:], np.zeros(8))


@pytest.mark.full
@pytest.mark.parametrize('name', _NAMES)
def test_float32_is_close_to_float64(name):
  surrogate, points, _, params = _small(name)
  _, _, _, single = _small(name, tf.float32)
  # Scores of two choices would differ by more.
  np.testing.assert_allclose(
    [float(v) for v in single.choice], [float(v) for v in params.choice]
  )
  x = points[:40]
  expected = surrogate.score(params, x).numpy()
  actual = surrogate.score(single, tf.cast(x, tf.float32)).numpy()
  scale = np.sqrt(np.mean(expected**2, axis=0))
  np.testing.assert_allclose(actual / scale, expected / scale, atol=2e-3)


@pytest.mark.full
@pytest.mark.parametrize('name', _TIERED)
def test_eager_graph_and_compiled_fits_agree(name):
  surrogate, points, weights, eager = _small(name)

  def fit(points, weights, seed):
    params = surrogate.init(2, tf.float64, _SEED)
    return surrogate.fit(params, points, weights, seed)

  x = points[:40]
  expected = surrogate.score(eager, x).numpy()
  scale = np.sqrt(np.mean(expected**2, axis=0))
  for options in (dict(), dict(jit_compile=True)):
    compiled = tf.function(fit, autograph=False, **options)
    params = compiled(points, weights, tf.constant(_SEED))
    np.testing.assert_allclose(
      surrogate.score(params, x) / scale, expected / scale, atol=1e-6
    )


@pytest.mark.parametrize('name', _NAMES)
def test_the_score_is_the_gradient_inside_the_draws(name):
  surrogate, points, _, params = _small(name)
  x = tf.reshape(points[:40], [4, 10, 2])
  with tf.GradientTape() as tape:
    tape.watch(x)
    values = surrogate.log_prob(params, x)
  assert values.shape == [4, 10]
  assert np.all(surrogate.is_inside(params, x))
  np.testing.assert_allclose(
    surrogate.score(params, x), tape.gradient(values, x), atol=1e-9
  )


@pytest.mark.parametrize('name', _NAMES)
def test_the_score_fades_outside_of_the_draws(name):
  surrogate, points, weights, params = _small(name)
  outside = 1e3 * points[:40]
  assert not np.any(surrogate.is_inside(params, outside))
  size = [
    np.max(np.linalg.norm(surrogate.score(params, x), axis=-1))
    for x in (points[:40], outside, 1e3 * outside)
  ]
  assert size[1] < 0.1 * size[0] and size[2] < 1e-3 * size[1] + 1e-300


@pytest.mark.parametrize('name', _NAMES)
def test_init_has_zero_score(name):
  surrogate = _surrogate(name, 20, 10)
  params = surrogate.init(3, tf.float32, _SEED)
  x = 100.0 * tf.ones([2, 4, 3])
  np.testing.assert_array_equal(surrogate.score(params, x), np.zeros((2, 4, 3)))
  assert surrogate.log_prob(params, x).shape == [2, 4]
  assert surrogate.score(params, x[0, 0]).shape == [3]


@pytest.mark.full
@pytest.mark.parametrize('num_draws', [0, 1, 3, 20])
@pytest.mark.parametrize('name', _TIERED)
def test_draws_at_one_point_or_too_few_raise_nothing(name, num_draws):
  surrogate = _surrogate(name, 20, 10)
  points = tf.ones([20, 3])
  if num_draws == 3:
    points = tf.cast(_normal_points(20, np.eye(3)), tf.float32)
  weights = tf.cast(tf.range(20) < num_draws, tf.float32) / max(num_draws, 1)
  params = surrogate.init(3, tf.float32, _SEED)
  params = surrogate.fit(params, points, weights, _SEED)
  score = surrogate.score(params, points)
  # Either a score, or params that say that the fit failed.
  is_finite = all(np.all(np.isfinite(leaf)) for leaf in tf.nest.flatten(params))
  assert is_finite == (num_draws == 3)
  assert np.all(np.isfinite(score)) or not is_finite


def _bent_points(num, seed):
  """Draws of x ~ N(0, 1), y | x ~ N(x^2, 1 / 4)."""
  x, noise = np.random.default_rng(seed).normal(size=(2, num))
  return tf.constant(np.stack([x, x**2 + 0.5 * noise], axis=1))


def _bent_error(surrogate, params):
  points = _bent_points(2000, 99)
  x, y = points.numpy().T
  pull = 4.0 * (y - x**2)
  truth = np.stack([2.0 * x * pull - x, -pull], axis=1)
  error = surrogate.score(params, points).numpy() - truth
  return np.sum(error**2) / np.sum(truth**2)


@pytest.mark.full
def test_few_centers_learn_from_all_draws():
  errors = {}
  for name, num_points, num_used in (
    ('few_centers', 500, 500),
    ('lite', 500, 500),
    ('lite', 500, 100),
  ):
    surrogate, params, fit = _compiled(name, num_points)
    assert surrogate.init(2, tf.float64, _SEED).coefficients.shape == (
      100 if name == 'few_centers' else 500
    )
    weights = np.where(np.arange(500) < num_used, 1.0 / num_used, 0.0)
    draws = _bent_points(500, 0)
    for _ in range(2):
      params = fit(params, draws, tf.constant(weights), tf.constant(_SEED))
    errors[name, num_used] = _bent_error(surrogate, params)
  # A hundred kernels at some of 500 draws: nearer to all 500 than to a hundred
  # draws alone.
  assert errors['few_centers', 500] < 3.0 * errors['lite', 500]
  assert errors['few_centers', 500] < 0.3 * errors['lite', 100]


@pytest.mark.parametrize('num_centers', [0, 11, 2.5, True])
def test_a_wrong_number_of_centers_is_refused(num_centers):
  with pytest.raises(ValueError, match='`num_points=10`.*num_centers=500'):
    kernel_exponential_family_lite(10, num_centers)


@pytest.mark.parametrize(
  'make', [kernel_exponential_family_lite, kernel_exponential_family_finite]
)
@pytest.mark.parametrize('num_points', [0, 2.5, True])
def test_a_wrong_number_of_points_is_refused(make, num_points):
  with pytest.raises(ValueError, match='num_points='):
    make(num_points=num_points)


def test_an_unknown_kernel_is_refused():
  with pytest.raises(ValueError, match="'rational_quadratic'"):
    kernel_exponential_family_finite(kernel='laplace')
