"""Exact draws of states, momenta and uniforms, and what steps make of them."""

import numpy as np
import tensorflow as tf

FACTOR = np.array([[1.0, 0.0], [0.8, 0.6]])
NUM_CHAINS = 100_000
_DEGREES = 9.0


def log_prob(x):
  """A correlated Student-t of covariance FACTOR FACTOR^T 9 / 7."""
  white = tf.linalg.matvec(np.linalg.inv(FACTOR), x)
  square = tf.reduce_sum(white**2, axis=-1)
  return -0.5 * (_DEGREES + 2.0) * tf.math.log1p(square / _DEGREES)


def draws(rng):
  """Returns independent draws of it, [NUM_CHAINS, 2]."""
  normals = rng.normal(size=(NUM_CHAINS, 2))
  chi = rng.chisquare(_DEGREES, size=(NUM_CHAINS, 1))
  return normals * (_DEGREES / chi) ** 0.5 @ FACTOR.T


def worst(state, velocity, uniform, rng):
  """Returns the largest z of statistics of chains against those of draws.

  Args:
    state: What steps have made of exact draws, [NUM_CHAINS, 2].
    velocity: Momenta, normal if the steps are right, [NUM_CHAINS, 2].
    uniform: Uniform on (-1, 1) then, [NUM_CHAINS].
    rng: A `numpy.random.Generator`.
  """
  found = statistics(state, velocity, uniform)
  fresh = draws(rng)
  expected = statistics(
    fresh, rng.normal(size=fresh.shape), rng.uniform(-1.0, 1.0, NUM_CHAINS)
  )
  error = (found.var(0) + expected.var(0)) / NUM_CHAINS
  return np.abs((found.mean(0) - expected.mean(0)) / error**0.5).max()


def statistics(x, v, u):
  """Bounded functions of x, v and u of each chain, [chains, n]."""
  white = x @ np.linalg.inv(FACTOR).T
  radius = np.sqrt(np.sum(white**2, axis=-1, keepdims=True))
  parts = [np.tanh(white), np.tanh(v), u[:, np.newaxis], np.tanh(radius)]
  flat = np.concatenate(parts, axis=-1)
  pairs = flat[:, :, np.newaxis] * flat[:, np.newaxis]
  rows, columns = np.triu_indices(flat.shape[1])
  thresholds = radius < np.array([0.5, 1.0, 1.5, 2.5])
  height = np.abs(u)[:, np.newaxis] * np.concatenate([radius < 1.0, v**2], -1)
  return np.concatenate(
    [flat, pairs[:, rows, columns], thresholds, height], axis=-1
  )
