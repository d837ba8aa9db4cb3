"""The factor of a Markov path's precision, against dense algebra."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.linalg import markov_factor

_SIZE = 9


def _path(rng, slack_scale=0.1):
  """Returns r, w and s of three paths, one with a cut, and dense P."""
  slack = slack_scale * rng.exponential(size=(3, _SIZE))
  weight = rng.exponential(size=(3, _SIZE))
  weight[:, -1] = weight[0, 3] = 0.0
  sign = rng.choice([-1.0, 1.0], size=(3, _SIZE))
  dense = np.zeros((3, _SIZE, _SIZE))
  for n in range(3):
    dense[n] = np.diag(slack[n])
    for t in range(_SIZE - 1):
      step = np.zeros(_SIZE)
      step[t], step[t + 1] = 1.0, -sign[n, t]
      dense[n] += weight[n, t] * np.outer(step, step)
  return (slack, weight, sign), dense


@pytest.mark.parametrize('jit_compile', [False, True])
def test_it_is_the_cholesky_factor_and_solves(jit_compile):
  rng = np.random.default_rng(0)
  path, dense = _path(rng)
  rows = rng.normal(size=(3, _SIZE))

  @tf.function(jit_compile=jit_compile, autograph=False)
  def run(rows, *path):
    lower = markov_factor.factor(*path)
    return (
      *lower,
      markov_factor.solve(lower, rows),
      markov_factor.solve_adjoint(lower, rows),
    )

  diagonal, below, solved, adjoint = run(*map(tf.constant, (rows, *path)))
  exact = np.linalg.cholesky(dense)
  np.testing.assert_allclose(
    diagonal, np.diagonal(exact, axis1=1, axis2=2), rtol=1e-12
  )
  np.testing.assert_allclose(
    below[:, :-1], np.diagonal(exact, -1, 1, 2), atol=1e-12
  )
  np.testing.assert_array_equal(below[:, -1], 0.0)
  np.testing.assert_allclose(
    solved, np.linalg.solve(exact, rows[..., np.newaxis])[..., 0], rtol=1e-8
  )
  np.testing.assert_allclose(
    adjoint,
    np.linalg.solve(np.swapaxes(exact, 1, 2), rows[..., np.newaxis])[..., 0],
    rtol=1e-8,
  )


def test_single_precision_keeps_a_slack_that_subtraction_loses():
  # sum_t log L[t, t]^2 = log |P|: with r_1 alone, |P| = r_1 prod w.
  slack = np.zeros((1, _SIZE), np.float32)
  slack[0, 0] = 1e-9
  weight = np.ones((1, _SIZE), np.float32)
  weight[0, -1] = 0.0
  ones = np.ones_like(weight)
  diagonal, _ = markov_factor.factor(*map(tf.constant, (slack, weight, ones)))
  assert np.sum(2.0 * np.log(diagonal)) == pytest.approx(np.log(1e-9), rel=1e-5)
  dense = 2.0 * np.eye(_SIZE) - np.eye(_SIZE, k=1) - np.eye(_SIZE, k=-1)
  dense[0, 0], dense[-1, -1] = 1.0 + 1e-9, 1.0
  lost = np.linalg.slogdet(dense.astype(np.float32))[1]
  assert not abs(lost - np.log(1e-9)) < 1.0


def _dense(slack, weight, sign):
  """Returns P of paths [n, d], in differentiable algebra."""
  before = tf.concat([tf.zeros_like(weight[:, :1]), weight[:, :-1]], axis=-1)
  beside = -(sign * weight)[:, :-1]
  diagonals = tf.linalg.diag(slack + weight + before)
  return diagonals + tf.linalg.diag(beside, k=1) + tf.linalg.diag(beside, k=-1)


def _markov_value(rows, slack, weight, sign):
  lower = markov_factor.factor(slack, weight, sign)
  first = markov_factor.solve(lower, rows)
  second = markov_factor.solve_adjoint(lower, tf.sin(first))
  return tf.reduce_sum(tf.cos(second) + first**3 + tf.math.log(lower[0]))


def _dense_value(rows, slack, weight, sign):
  lower = tf.linalg.cholesky(_dense(slack, weight, sign))
  solve = lambda x, adjoint: tf.linalg.triangular_solve(
    lower, x[..., tf.newaxis], adjoint=adjoint
  )[..., 0]
  first = solve(rows, False)
  second = solve(tf.sin(first), True)
  logs = tf.math.log(tf.linalg.diag_part(lower))
  return tf.reduce_sum(tf.cos(second) + first**3 + logs)


@pytest.mark.full
def test_gradients_of_first_and_second_order_are_those_of_dense_algebra():
  rng = np.random.default_rng(1)
  (slack, weight, sign), _ = _path(rng, slack_scale=1.0)
  point = [rng.normal(size=(3, _SIZE)), slack, weight]
  point = list(map(tf.constant, point))
  along = [tf.constant(rng.normal(size=(3, _SIZE))) for _ in point]
  # The last weight is none: dense algebra has no place for it.
  along[2] *= tf.constant([1.0] * (_SIZE - 1) + [0.0], tf.float64)

  def gradients(value):
    @tf.function(autograph=False)
    def run(*point):
      point = list(point)
      with tf.GradientTape() as outer:
        outer.watch(point)
        with tf.GradientTape() as inner:
          inner.watch(point)
          total = value(*point, tf.constant(sign))
        first = inner.gradient(total, point)
        slope = sum(tf.reduce_sum(f * a) for f, a in zip(first, along))
      return [g[:, :-1] for g in (*first, *outer.gradient(slope, point))]

    return run(*point)

  for got, exact in zip(gradients(_markov_value), gradients(_dense_value)):
    np.testing.assert_allclose(got, exact, rtol=1e-8, atol=1e-9)
