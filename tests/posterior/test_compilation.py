"""XLA is left out where a density's operations are slow in it, or not there."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tfp_adaptive.posterior import compilation
from tfp_adaptive.posterior.density import Density
from tfp_adaptive.posterior.model import problem as problem_lib


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


def _with_states_summed_out(x):
  """A hidden Markov model, whose density loops over steps without a bound."""
  law = tfp.distributions.HiddenMarkovModel(
    tfp.distributions.Categorical(logits=[0.0, 0.0]),
    tfp.distributions.Categorical(logits=[[1.0, 0.0], [0.0, 1.0]]),
    tfp.distributions.Normal(tf.stack([x[..., 0], x[..., 1]], -1), 1.0),
    num_steps=5,
  )
  return law.log_prob(tf.zeros([5])) - 0.5 * tf.reduce_sum(x**2, axis=-1)


@tfp.distributions.JointDistributionCoroutineAutoBatched
def _elimination():
  """An ordinary differential equation, written for one chain."""
  rate = yield tfp.distributions.LogNormal(0.0, 1.0, name='rate')

  def turn(amount, _):
    return amount - 0.1 * rate * amount / (1.0 + amount)

  curve = tf.scan(turn, tf.zeros([5]), initializer=rate)
  yield tfp.distributions.Independent(
    tfp.distributions.Normal(curve, 0.1), 1, name='y'
  )


def _density(log_prob, num_chains=4):
  problem = problem_lib.of_density(
    log_prob, tf.TensorSpec([2]), None, num_chains
  )
  return Density(problem, num_chains)


def _obstacle(log_prob):
  density = _density(log_prob)
  with_xla, found = compilation.choose(None, density)
  assert with_xla == (not found)
  # What the user asks for counts.
  assert compilation.choose(True, density) == (True, '')
  return found


def test_a_large_factor_is_an_obstacle_and_a_small_one_is_none(monkeypatch):
  monkeypatch.setattr(
    tf.config, 'list_logical_devices', lambda kind: [kind] * (kind == 'CPU')
  )
  assert 'Cholesky of 60 x 60' in _obstacle(_process(60))
  assert _obstacle(_process(6)) == ''
  assert _obstacle(_in_a_loop) == ''
  assert _obstacle(_with_states_summed_out) == ''
  assert _obstacle(lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1)) == ''


def test_a_loop_in_a_model_for_one_chain_is_compiled_in_float64():
  problem = problem_lib.of_joint(_elimination, dict(y=tf.ones([5])))
  density = Density(problem, num_chains=4)
  assert compilation.choose(None, density) == (True, '')
  assert density.dtype == tf.float64 or tf.config.list_logical_devices('GPU')


def _log_determinant(x):
  matrix = tf.linalg.diag(tf.exp(x))
  return tf.linalg.slogdet(matrix)[1] - tf.reduce_sum(x**2, axis=-1)


def _log_determinant_in_a_loop(x):
  return tf.map_fn(lambda row: _log_determinant(row[tf.newaxis])[0], x)


def _root_of_a_matrix(x):
  root = tf.linalg.sqrtm(tf.linalg.diag(tf.exp(x)))
  return -tf.reduce_sum(root, axis=[-2, -1])


@tf.custom_gradient
def _in_numpy(x):
  value = tf.numpy_function(
    lambda rows: -0.5 * np.sum(rows**2, axis=-1), [x], x.dtype
  )
  value.set_shape(x.shape[:1])
  return value, lambda upstream: -x * upstream[:, tf.newaxis]


def _until_it_is_small(x):
  """A loop whose gradient keeps as many values as it has turns."""

  def halved(value):
    return 0.5 * value

  value = tf.while_loop(lambda v: tf.reduce_max(tf.abs(v)) > 1e-3, halved, [x])
  return -tf.reduce_sum(x**2 + value[0] ** 2, axis=-1)


def _value_and_gradient(log_prob):
  return lambda rows: tfp.math.value_and_gradient(log_prob, rows)


@pytest.mark.parametrize(
  'log_prob, reason',
  [
    (
      _until_it_is_small,
      'it says XLA compilation requires a fixed tensor list',
    ),
    (_log_determinant, 'LogMatrixDeterminant'),
    (_log_determinant_in_a_loop, 'LogMatrixDeterminant'),
    (_root_of_a_matrix, 'MatrixSquareRoot'),
    (_in_numpy, 'PyFunc'),
  ],
)
def test_what_xla_does_not_know_is_an_obstacle(log_prob, reason):
  assert reason in _obstacle(log_prob)
  # As XLA says itself.
  with pytest.raises((tf.errors.OpError, ValueError)):
    tf.function(_value_and_gradient(log_prob), jit_compile=True)(
      tf.zeros([4, 2])
    )


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
