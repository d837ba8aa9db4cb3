"""Posteriors on which the best length of a trajectory differs.

Regressions, whose directions are all alike behind a learned metric; and random
effects, item responses and heavy tails, where some are slow. Behind a map:
funnels. Data are simulated where none are named.
"""

import numpy as np
import tensorflow as tf

from experiments.data import datasets
from experiments.targets.gaussians import rotated_covariance
from experiments.targets.logistic_regression import design_matrix
from experiments.targets.logistic_regression import logistic_regression_target

__all__ = ['MAP_TARGETS', 'TARGETS']


def _regression(inputs, labels):
  target = logistic_regression_target('', inputs, labels, 'float64')
  return target.target_log_prob_fn, target.event_size


def _named_regression(name):
  """Returns a build of the logistic regression on a data set."""

  def build(data_dir):
    inputs, labels = datasets.load(name, data_dir)
    return _regression(design_matrix(inputs), labels)

  return build


def _simulated_regression(data_dir):
  """690 rows and 15 weights, inputs of several kinds, as australian's."""
  del data_dir
  rng = np.random.default_rng(690)
  common = rng.normal(size=(690, 3)) @ rng.normal(size=(3, 14))
  inputs = common + rng.normal(size=(690, 14))
  inputs[:, :4] = inputs[:, :4] > 0.5
  inputs[:, 4:8] = np.exp(0.7 * inputs[:, 4:8])
  inputs = design_matrix(inputs)
  weights = rng.normal(size=15) * np.append(rng.uniform(size=14) < 0.6, 1.0)
  labels = rng.uniform(size=690) < 1.0 / (1.0 + np.exp(-inputs @ weights))
  return _regression(inputs, labels)


def _varying_slopes(data_dir):
  """A line for each of 40 groups of 3 to 37 rows, d = 85.

    y ~ N(m_a + t_a a_j + (m_b + t_b b_j) x, s^2),   a_j, b_j ~ N(0, 1)

  States are (a, b, m_a, m_b, log t_a, log t_b, log s).
  """
  del data_dir
  rng = np.random.default_rng(40)
  group = np.repeat(np.arange(40), rng.integers(3, 38, size=40))
  x = rng.normal(size=len(group))
  a, b = rng.normal(size=(2, 40))
  y = 1.0 + 0.4 * a[group] + (0.5 + 0.2 * b[group]) * x
  y += 0.8 * rng.normal(size=len(group))

  def log_prob(state):
    a, b, rest = tf.split(state, [40, 40, 5], axis=-1)
    m_a, m_b, t_a, t_b, s = tf.split(rest, 5, axis=-1)
    effects = tf.concat([a, b, m_a, m_b], axis=-1)
    line_a = tf.gather(m_a + tf.exp(t_a) * a, group, axis=-1)
    line_b = tf.gather(m_b + tf.exp(t_b) * b, group, axis=-1)
    error = (y - line_a - line_b * x) * tf.exp(-s)
    scales = tf.concat([t_a, t_b, s], axis=-1)
    # log N(0, 1) for the scales' logs and for the means.
    return (
      -0.5 * tf.reduce_sum(error**2, axis=-1)
      - len(y) * s[..., 0]
      - 0.5 * tf.reduce_sum(effects**2, axis=-1)
      - 0.5 * tf.reduce_sum(scales**2, axis=-1)
    )

  return log_prob, 85


def _item_response(data_dir):
  """100 persons answer 20 items, d = 143.

    logit p_ij = e^(s_k k_j) (a_i - m_b - s_b b_j),   all N(0, 1)

  States are (a, k, b, m_b, log s_k, log s_b).
  """
  del data_dir
  rng = np.random.default_rng(143)
  sizes = [100, 20, 20]
  ability, slope, difficulty = (rng.normal(size=size) for size in sizes)
  slope = np.exp(0.5 * slope)
  logits = slope * (ability[:, np.newaxis] - difficulty)
  answers = (
    rng.uniform(size=logits.shape) < 1.0 / (1.0 + np.exp(-logits))
  ) * 1.0

  def log_prob(state):
    a, k, b, rest = tf.split(state, [*sizes, 3], axis=-1)
    m_b, s_k, s_b = tf.split(rest, 3, axis=-1)
    slope = tf.exp(tf.exp(s_k) * k)
    place = m_b + tf.exp(s_b) * b
    logits = slope[..., tf.newaxis, :] * (
      a[..., tf.newaxis] - place[..., tf.newaxis, :]
    )
    return tf.reduce_sum(
      answers * logits - tf.math.softplus(logits), axis=[-2, -1]
    ) - 0.5 * tf.reduce_sum(state**2, axis=-1)

  return log_prob, sum(sizes) + 3


def _student(data_dir):
  """A rotated Student-t of 5 degrees of freedom, d = 50, condition 1e4."""
  del data_dir
  covariance = rotated_covariance(np.geomspace(1.0, 1e4, 50), seed=5)
  precision = np.linalg.inv(covariance)

  def log_prob(state):
    square = tf.reduce_sum(state * tf.linalg.matvec(precision, state), axis=-1)
    return -0.5 * (5.0 + 50.0) * tf.math.log1p(square / 5.0)

  return log_prob, 50


def _funnel(data_dir):
  """Neal's: v ~ N(0, 9), nine x_i ~ N(0, e^v)."""
  del data_dir

  def log_prob(state):
    v, square = state[..., 0], tf.reduce_sum(state[..., 1:] ** 2, axis=-1)
    return -(v**2) / 18.0 - 4.5 * v - 0.5 * square * tf.exp(-v)

  return log_prob, 10


def _eight_schools(data_dir):
  """Centered: m ~ N(0, 100), log t ~ N(5, 1), x_j ~ N(m, t^2); d = 10."""
  del data_dir
  effects = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
  errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

  def log_prob(state):
    mean, log_scale, schools = tf.split(state, [1, 1, 8], axis=-1)
    terms = [
      mean / 10.0,
      log_scale - 5.0,
      (schools - mean) * tf.exp(-log_scale),
      (effects - schools) / errors,
    ]
    square = tf.reduce_sum(tf.concat(terms, axis=-1) ** 2, axis=-1)
    return -0.5 * square - 8.0 * log_scale[..., 0]

  return log_prob, 10


# Name -> (folder of data) -> (log density, event size).
TARGETS = {
  'heart': _named_regression('heart'),
  'german': _named_regression('german'),
  'regression, simulated': _simulated_regression,
  'varying slopes': _varying_slopes,
  'item response': _item_response,
  'Student-t': _student,
}

# The same, for maps.
MAP_TARGETS = {'funnel': _funnel, 'eight schools': _eight_schools}
