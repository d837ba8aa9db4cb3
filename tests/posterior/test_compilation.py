"""XLA is left out where a density's operations are slow in it, or not there."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tfp_adaptive.posterior import compilation
from tfp_adaptive.posterior.starts import Evaluate


def _process(size):
  points = np.linspace(0.0, 1.0, size, dtype=np.float32)[:, np.newaxis]
  kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(length_scale=0.1)
  covariance = kernel.matrix(points, points) + 1e-2 * np.eye(size)

  def log_prob(x):
    scale = tf.exp(x[..., :1])[..., tf.newaxis]
    factor = tf.linalg.cholesky(scale * covariance)
    values = tf.linalg.triangular_solve(factor, tf.ones_like(covariance[:, :1]))
    log_det = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), axis=-1)
    square = tf.reduce_sum(values**2, axis=[-2, -1])
    return -0.5 * square - log_det - 0.5 * tf.reduce_sum(x**2, axis=-1)

  return log_prob


def _in_a_loop(x):
  """A factor of 2 x 2 in the body of a loop, as filters have it."""

  def body(step, total):
    matrix = tf.eye(2, batch_shape=tf.shape(x)[:1]) * tf.exp(x[..., :1, None])
    factor = tf.linalg.cholesky(matrix)
    return step + 1, total - tf.reduce_sum(factor, axis=[-2, -1])

  total = -0.5 * tf.reduce_sum(x**2, axis=-1)
  return tf.while_loop(
    lambda step, total: step < 3, body, (0, total), maximum_iterations=3
  )[1]


def _obstacle(log_prob, num_chains=4, event_size=2):
  rows = np.zeros([num_chains, event_size], np.float32)
  return compilation.obstacle(Evaluate(log_prob, num_chains).graph(rows))


def test_a_large_factor_is_an_obstacle_and_a_small_one_is_none():
  assert 'Cholesky of 60 x 60' in _obstacle(_process(60))
  assert _obstacle(_process(6)) == ''
  assert _obstacle(_in_a_loop) == ''
  assert _obstacle(lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1)) == ''


def test_a_determinant_is_an_obstacle_of_any_size_and_in_loops():
  def log_prob(x):
    matrix = tf.linalg.diag(tf.exp(x))
    return tf.linalg.slogdet(matrix)[1] - tf.reduce_sum(x**2, axis=-1)

  assert 'LogMatrixDeterminant' in _obstacle(log_prob)
  # As XLA says itself.
  with pytest.raises(tf.errors.InvalidArgumentError):
    tf.function(log_prob, jit_compile=True)(tf.zeros([4, 2]))

  def looped(x):
    return tf.map_fn(lambda row: log_prob(row[tf.newaxis])[0], x)

  assert 'LogMatrixDeterminant' in _obstacle(looped)


@pytest.mark.full
def test_a_posterior_with_large_factors_is_sampled_without_xla():
  posterior = tfpa.sample_posterior(
    _process(60), init=tf.TensorSpec([2]), progress=False
  )
  assert 'without XLA' in posterior.report[0].found
  assert posterior.converged
  # The second coordinate is its prior.
  second = posterior.unconstrained[..., 1]
  assert abs(second.mean()) < 0.15 and abs(second.std() - 1.0) < 0.1
