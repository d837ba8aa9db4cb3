"""Every function of every prior, against dense algebra with numpy.

A prior's coordinates are its own: x = A s + mean with the matrix A that its
`from_coordinates` makes of unit rows, so that the covariance of s is
A^-1 C A^-T, and all that follows from it is known.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.latent.priors import structures
from tfp_adaptive import gaussian_priors
from tfp_adaptive.core import random
from tfp_adaptive.core import tfp_private

_VARIANCE = 0.3
_TOLERANCE = 1e-9

each_structure = pytest.mark.parametrize('name', structures.STRUCTURES)


class Dense:
  """A prior's functions as matrices, and what they must be."""

  def __init__(self, name, dtype=tf.float64):
    self.structure = structures.STRUCTURES[name]
    self.prior = self.structure.build(dtype)
    self.dtype = dtype
    self.size = self.structure.covariance.shape[-1]
    self.chains = self.structure.covariance.shape[:-2]
    params = self.prior.params
    self.covariance = self.prior.covariance(params)
    variance = tf.constant(_VARIANCE, dtype)
    self.smoother = self.prior.smoother(params, variance)
    self.origin = self.from_coordinates(self.zeros())
    self.basis = self.matrix(lambda s: self.from_coordinates(s) - self.origin)
    inverse = np.linalg.inv(self.basis)
    self.c = inverse @ self.structure.covariance @ _transpose(inverse)
    self.identity = np.eye(self.size)
    self.gain = self.c @ np.linalg.inv(self.c + _VARIANCE * self.identity)

  def from_coordinates(self, s):
    return self.prior.from_coordinates(self.prior.params, s)

  def zeros(self):
    return tf.zeros([*self.chains, self.size], self.dtype)

  def rows(self, num=4, seed=0):
    """Returns arbitrary rows, [num, chains..., d]."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(num, *self.chains, self.size))
    return tf.constant(rows, self.dtype)

  def matrix(self, function):
    """Returns the matrix of a linear function of rows, [chains..., d, d]."""
    unit = np.eye(self.size).reshape(
      [self.size, *(1 for _ in self.chains), self.size]
    )
    unit = np.broadcast_to(unit, [self.size, *self.chains, self.size])
    return np.moveaxis(function(tf.constant(unit, self.dtype)).numpy(), 0, -1)


@functools.cache
def dense(name, dtype=tf.float64):
  return Dense(name, dtype)


def _transpose(matrix):
  return np.swapaxes(matrix, -1, -2)


def _times(matrix, rows):
  return np.einsum('...ij,...j->...i', matrix, rows)


def _log_normal(rows, covariance):
  """Returns log N(rows | 0, C), on the range of C where it is singular."""
  values, vectors = np.linalg.eigh(covariance)
  is_positive = values > 1e-10 * np.max(values, axis=-1, keepdims=True)
  values = np.where(is_positive, values, 1.0)
  white = _times(_transpose(vectors), rows) ** 2 / values
  terms = np.where(is_positive, white + np.log(2.0 * np.pi * values), 0.0)
  return -0.5 * np.sum(terms, axis=-1)


def _assert_equal(actual, expected, tolerance=_TOLERANCE):
  expected = np.asarray(expected)
  np.testing.assert_allclose(
    actual, expected, rtol=tolerance, atol=tolerance * np.max(np.abs(expected))
  )


@each_structure
def test_coordinates_are_inverted_and_centered_at_the_mean(name):
  d = dense(name)
  x = d.rows()
  s = d.prior.to_coordinates(d.prior.params, x)
  assert s.shape == x.shape
  _assert_equal(d.from_coordinates(s), x)
  _assert_equal(d.origin, np.broadcast_to(d.structure.mean, d.origin.shape))


@each_structure
def test_pull_is_the_adjoint_of_from_coordinates(name):
  d = dense(name)
  s, g = d.rows(seed=1), d.rows(seed=2)
  x = d.from_coordinates(s) - d.origin
  pulled = d.prior.pull(d.prior.params, g)
  _assert_equal(np.sum(s * pulled, axis=-1), np.sum(x * g, axis=-1))


@each_structure
def test_covariance_is_that_of_dense_algebra(name):
  d = dense(name)
  _assert_equal(d.matrix(d.covariance.multiply), d.c)
  factor = d.matrix(d.covariance.draw)
  _assert_equal(factor @ _transpose(factor), d.c)
  inverse = np.linalg.pinv(d.c, rcond=1e-10, hermitian=True)
  _assert_equal(d.matrix(d.covariance.solve), inverse)
  assert d.prior.is_singular == d.structure.is_singular


@pytest.mark.parametrize(
  'build, num_copies',
  [
    (gaussian_priors.spectral, 1),
    (lambda c: gaussian_priors.kronecker([c, np.eye(1, dtype=c.dtype)]), 1),
    (lambda c: gaussian_priors.block(gaussian_priors.spectral(c), 2), 2),
    (lambda c: gaussian_priors.block([gaussian_priors.spectral(c)] * 2), 2),
  ],
)
def test_densities_to_compare_count_every_direction_or_none(build, num_copies):
  # 50 eps is within the rounding that `log_prob` drops, 100 eps, but known.
  for least, is_invertible in ((50.0, True), (4.0, False)):
    values = np.full(100, least * np.finfo(np.float32).eps, np.float32)
    values[0] = 1.0
    prior = build(np.diag(values))
    covariance = prior.covariance(prior.params)
    deviation = covariance.draw(tf.ones([1, 100 * num_copies]))
    found = covariance.log_prob_if_invertible(deviation)[0]
    expected = -0.5 * np.sum(1.0 + np.log(2.0 * np.pi * values), dtype=float)
    if is_invertible:
      np.testing.assert_allclose(found, num_copies * expected, rtol=1e-5)
    else:
      assert np.isnan(found)
    in_range = covariance.log_prob(deviation)[0]
    assert abs(in_range - num_copies * expected) > 100.0


@each_structure
def test_smoother_is_that_of_dense_algebra(name):
  d = dense(name)
  _assert_equal(d.matrix(d.smoother.gain), d.gain)
  _assert_equal(
    d.matrix(d.smoother.solve_marginal), np.linalg.inv(d.identity + d.gain)
  )
  for draw, covariance in (
    (d.smoother.draw, _VARIANCE * d.gain),
    (d.smoother.draw_marginal, _VARIANCE * d.gain @ (d.identity + d.gain)),
  ):
    spread = d.matrix(lambda e, draw=draw: draw(tf.zeros_like(e), e))
    _assert_equal(spread @ _transpose(spread), covariance)
    shift = d.matrix(lambda v, draw=draw: draw(v, tf.zeros_like(v)))
    _assert_equal(shift, d.gain)


@each_structure
def test_log_densities_are_those_of_dense_algebra(name):
  d = dense(name)
  # Draws, for a singular C has its density where it draws.
  s = d.covariance.draw(d.rows())
  x = d.from_coordinates(s)
  expected = _log_normal((x - d.origin).numpy(), d.structure.covariance)
  _assert_equal(d.covariance.log_prob(s), expected)
  states = tf.reshape(x, [*x.shape[:-1], *d.prior.event_shape])
  _assert_equal(gaussian_priors.log_prob(d.prior, states), expected)
  z = d.rows(seed=1)
  _, log_volume = np.linalg.slogdet(d.basis)
  marginal = _log_normal(z.numpy(), d.c + _VARIANCE * d.identity)
  _assert_equal(d.smoother.log_marginal(z), marginal - log_volume)


@pytest.mark.full
@each_structure
def test_functions_are_the_same_compiled(name):
  d = dense(name)
  rows, noise = d.rows(seed=3), d.rows(seed=4)
  function = functools.partial(
    structures.all_functions, d.prior, variance=_VARIANCE
  )
  compiled = tf.function(function, jit_compile=True)(rows, noise)
  for actual, expected in zip(compiled, function(rows, noise)):
    assert actual.shape == expected.shape
    _assert_equal(actual, expected)


@each_structure
def test_single_precision_agrees_with_dense_algebra_in_double(name):
  d = dense(name, tf.float32)
  covariance, basis = d.structure.covariance, d.basis
  multiply = d.matrix(d.covariance.multiply)
  _assert_equal(basis @ multiply @ _transpose(basis), covariance, 1e-4)
  factor = basis @ d.matrix(d.covariance.draw)
  _assert_equal(factor @ _transpose(factor), covariance, 1e-4)
  _assert_equal(d.matrix(d.smoother.gain), d.gain, 1e-4)
  z = d.rows(seed=1)
  _, log_volume = np.linalg.slogdet(basis)
  marginal = _log_normal(z.numpy(), d.c + _VARIANCE * d.identity)
  _assert_equal(d.smoother.log_marginal(z), marginal - log_volume, 1e-4)


# Under a Gaussian likelihood, mGrad finds every prior's exact posterior.


_NOISE = 1.0
_NUM_STEPS = 60
_NUM_COPIES = 3000


def _observed(prior):
  """Returns the flat indices of the state that the likelihood sees."""
  size = int(np.prod(prior.event_shape))
  state = tf.reshape(tf.range(size), prior.event_shape)
  seen = state if prior.restrict is None else prior.restrict(state)
  return seen.numpy().reshape(-1)


def _posterior(covariance, mean, observed, data):
  """Returns mean and covariance of the field given noisy data of a part."""
  seen = covariance[..., observed]
  noise = _NOISE * np.eye(len(observed))
  gain = seen @ np.linalg.inv(seen[..., observed, :] + noise)
  miss = data - np.broadcast_to(mean, covariance.shape[:-1])[..., observed]
  shift = np.einsum('...ij,...j->...i', gain, miss)
  return mean + shift, covariance - gain @ np.swapaxes(seen, -1, -2)


def _sample(prior, data, chains):
  """Returns final states of many chains, [num, chains..., d], and f's mean."""
  num_chain_dims = 1 + len(chains)

  def log_likelihood(seen):
    shape = [*seen.shape[:num_chain_dims], -1]
    miss = tf.reshape(seen, shape) - tf.constant(data)
    return -0.5 / _NOISE * tf.reduce_sum(miss**2, axis=-1)

  kernel = tfpa.marginal_gradient(log_likelihood, 0, prior=prior, delta=1.0)

  @tf.function(autograph=False)
  def run(states):
    def body(step, states, results):
      seed = random.fold_in(tf.constant([1, 2]), step)
      return (step + 1, *kernel.one_step(states, results, seed=seed))

    start = (0, states, kernel.bootstrap_results(states))
    return tf.while_loop(lambda step, *_: step < _NUM_STEPS, body, start)[1:]

  lead = [_NUM_COPIES, *chains]
  states, results = run(tfpa.gaussian_priors.sample(prior, lead, seed=3))
  accepted = np.mean(tfp_private.get_innermost(results, 'is_accepted'))
  return states.numpy().reshape([*lead, -1]), accepted


def _is_consistent(states, mean, covariance):
  """Returns whether moments agree within five standard errors."""
  num = len(states)
  centered = np.moveaxis(states - mean, 0, -1)
  variances = np.diagonal(covariance, axis1=-2, axis2=-1)
  mean_error = np.sqrt(variances / num)
  products = variances[..., :, None] * variances[..., None, :]
  error = np.sqrt((products + covariance**2) / num)
  actual = centered @ np.swapaxes(centered, -1, -2) / num
  return np.all(np.abs(np.mean(centered, axis=-1)) < 5.0 * mean_error) and (
    np.all(np.abs(actual - covariance) < 5.0 * error)
  )


# Those that stand for the others by day.
_BY_DAY = ('spectral', 'stationary_plane', 'side_by_side', 'cholesky_by_chain')


def _by_tier(name):
  return pytest.param(name, marks=[pytest.mark.nightly] * (name not in _BY_DAY))


@pytest.mark.full
@pytest.mark.parametrize('name', map(_by_tier, structures.STRUCTURES))
def test_marginal_gradient_finds_the_exact_posterior(name):
  structure = structures.STRUCTURES[name]
  prior = structure.build(tf.float64)
  observed = _observed(prior)
  chains = structure.covariance.shape[:-2]
  data = np.random.default_rng(0).normal(scale=1.5, size=len(observed))
  states, accepted = _sample(prior, data, chains)
  assert accepted > 0.3
  exact = _posterior(structure.covariance, structure.mean, observed, data)
  assert _is_consistent(states, *exact)
  # Twice the prior's covariance would be noticed, and so would another mean.
  wide = _posterior(2.0 * structure.covariance, structure.mean, observed, data)
  assert not _is_consistent(states, *wide)
  moved = _posterior(structure.covariance, structure.mean + 1.0, observed, data)
  assert not _is_consistent(states, *moved)


# The factor of a covariance that hardly has one, or has none.


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
