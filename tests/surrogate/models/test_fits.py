"""Whole fits: a Gaussian's score, weights, precisions, places without draws."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.surrogate import surrogates
from tfp_adaptive.surrogate import weighted_points
from tfp_adaptive.surrogate.models import kernel_exponential_family_finite
from tfp_adaptive.surrogate.models import kernel_exponential_family_lite
from tfp_adaptive.surrogate.models import score_matching
from tfp_adaptive.surrogate.models import surrogate_frame
from tfp_adaptive.surrogate.models.kernel_exponential_family_finite import (
  _basis as finite_basis,
)

_SEED = (1, 2)
_NAMES = ['lite', 'few_centers', 'finite']
# Few centers are fitted as all points are, so their long tests run at night.
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


def _normal_points(num, factor, seed=0):
  z = np.random.default_rng(seed).normal(size=(num, len(factor)))
  return tf.constant(z @ factor.T)


@pytest.mark.full
@pytest.mark.parametrize('name', _TIERED)
def test_the_score_of_a_gaussian_is_recovered_by_free_choices(name):
  factor = _rotated_and_badly_scaled()
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
    of_draws = lambda _, x, m=mean, p=precision: -(x - m) @ p
    floors.append(_relative_error(of_draws, None, factor))
    wrong = lambda params, x: 1.3 * surrogate.score(params, x)
    spoiled.append(_relative_error(wrong, params, factor))
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


@functools.cache
def _small(name):
  """Returns surrogate, draws, weights, some zero, and params of a fit."""
  surrogate = _surrogate(name, 48, 20)
  points = _normal_points(40, _rotated_and_badly_scaled(), 3)
  points = tf.pad(points, [[0, 8], [0, 0]], constant_values=1e3)
  weights = tf.constant(np.repeat([1.0 / 40.0, 0.0], [40, 8]))
  start = surrogate.init(2, tf.float64, _SEED)
  return (
    surrogate,
    points,
    weights,
    surrogate.fit(start, points, weights, _SEED),
  )


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


# Two surrogates in turn: whose score is followed.


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


# Draws added to a fit: the coefficients of all draws in one batch.


_NUM_POINTS, _NUM_FEATURES, _SIZE = 60, 30, 2


@functools.cache
def _fitted(dtype=tf.float64):
  """Returns surrogate, params of a fit and the draws [n, d] it saw."""
  surrogate = kernel_exponential_family_finite(
    _NUM_POINTS, _NUM_FEATURES, online=True
  )
  points = tf.constant(_rows(_NUM_POINTS, 0), dtype)
  weights = tf.fill([_NUM_POINTS], tf.constant(1 / _NUM_POINTS, dtype))
  params = surrogate.init(_SIZE, dtype, _SEED)
  return surrogate, surrogate.fit(params, points, weights, _SEED), points


def _rows(num, seed):
  """Returns draws of two bumps: no Gaussian, whose base needs no kernel."""
  rng = np.random.default_rng(seed)
  rows = rng.normal(size=(num, _SIZE)) * [0.6, 0.5]
  rows[:, 0] += 3.0 * rng.choice([-1.0, 1.0], size=num)
  return rows


def _batch_coefficients(params, old, new):
  """Returns coefficients at the choice of `params` for old and new draws.

  From dense sums; n r is that of the fit, n the number of its draws.
  """
  basis = finite_basis(_NUM_FEATURES)

  def sums(x):
    z = surrogate_frame.whiten(params.frame, tf.constant(x)).numpy()
    frequencies = (params.map.numpy().T @ params.data.frequencies.numpy()).T
    phases = z @ frequencies.T + params.data.phases.numpy()
    amplitude = np.sqrt(2.0 / _NUM_FEATURES)
    gram, moment = 0.0, 0.0
    for row, phase in zip(z, phases):
      slope = -amplitude * np.sin(phase)[:, np.newaxis] * frequencies
      curved = -amplitude * np.cos(phase) * np.sum(frequencies**2, axis=-1)
      gram = gram + slope @ slope.T
      moment = moment - curved + slope @ (params.precision.numpy() @ row)
    return gram, moment

  assert basis.size(params.data) == _NUM_FEATURES
  gram, moment = sums(old.numpy())
  ridge = params.choice.regularization.numpy() * np.trace(gram) / len(old)
  more_gram, more_moment = sums(new)
  return np.linalg.solve(
    gram + more_gram + ridge * np.eye(_NUM_FEATURES), moment + more_moment
  )


@pytest.mark.full
@pytest.mark.parametrize('jit_compile', [False, True])
def test_updates_agree_with_a_batch_solution(jit_compile):
  surrogate, params, old = _fitted()
  update = tf.function(
    surrogate.update, jit_compile=jit_compile, autograph=False
  )
  new = _rows(12, 1)
  updated = params
  for rows in np.split(new, 3):
    updated = update(updated, tf.constant(rows))
  expected = _batch_coefficients(params, old, new)
  np.testing.assert_allclose(updated.coefficients, expected, atol=1e-6)
  # Power: the new draws do matter, and the old ones alone are the fit.
  before = _batch_coefficients(params, old, new[:0])
  np.testing.assert_allclose(params.coefficients, before, atol=1e-6)
  assert np.max(np.abs(expected - before)) > 1e-2
  for name in ('frame', 'map', 'precision', 'choice'):
    tf.nest.map_structure(
      np.testing.assert_array_equal,
      getattr(updated, name),
      getattr(params, name),
    )


def test_rows_that_are_not_finite_are_left_out():
  surrogate, params, _ = _fitted()
  rows = _rows(4, 2)
  spoiled = np.concatenate([rows, [[np.nan, 0.0], [np.inf, -np.inf]]])
  np.testing.assert_allclose(
    surrogate.update(params, tf.constant(spoiled)).coefficients,
    surrogate.update(params, tf.constant(rows)).coefficients,
    rtol=1e-9,
  )


def test_updates_before_the_first_fit_change_nothing():
  surrogate, _, _ = _fitted()
  start = surrogate.init(_SIZE, tf.float32, _SEED)
  after = surrogate.update(start, tf.constant(_rows(4, 2), tf.float32))
  tf.nest.map_structure(np.testing.assert_array_equal, after, start)
