"""Every function of every prior, against dense algebra with numpy.

A prior's coordinates are its own: x = A s + mean with the matrix A that its
`from_coordinates` makes of unit rows, so that the covariance of s is
A^-1 C A^-T, and all that follows from it is known.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.latent.priors import structures
from tfp_adaptive import gaussian_priors

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


def _all_functions(prior, rows, noise):
  """Returns what every function of a prior makes of rows."""
  params = prior.params
  s = prior.to_coordinates(params, rows)
  covariance = prior.covariance(params)
  smoother = prior.smoother(params, tf.constant(_VARIANCE, rows.dtype))
  return [
    s,
    prior.from_coordinates(params, noise),
    prior.pull(params, noise),
    covariance.multiply(s),
    covariance.draw(noise),
    covariance.solve(covariance.multiply(s)),
    covariance.log_prob(covariance.draw(noise)),
    smoother.gain(s),
    smoother.draw(s, noise),
    smoother.draw_marginal(s, noise),
    smoother.solve_marginal(s),
    smoother.log_marginal(s),
  ]


@pytest.mark.full
@each_structure
def test_functions_are_the_same_compiled(name):
  d = dense(name)
  rows, noise = d.rows(seed=3), d.rows(seed=4)
  function = functools.partial(_all_functions, d.prior)
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
