"""Log densities against dense numpy formulas; moments against draws."""

import numpy as np
import pytest
import tensorflow as tf

from experiments import config as configs
from experiments.targets import gaussians
from experiments.targets import logistic_regression
from experiments.targets.base import BuildContext


def _build(dtype='float64', **target):
  values = {
    'name': 'x',
    'target': target,
    'methods': [{'name': 'mala'}],
    'num_adaptation_steps': 0,
    'num_results': 4,
  }
  config = configs.parse_config(values)
  return config.target.build(BuildContext(dtype))


@pytest.mark.parametrize(
  'target',
  [
    dict(name='gaussian_2d', rho=-0.9),
    dict(name='kernel_gaussian', num_points=12),
    dict(name='neals_gaussian', event_size=7),
    dict(name='rotated_gaussian', event_size=5, condition_number=1e3),
    dict(name='spectrum_gaussian', variances=[1.0, 4.0, 9.0], rotation_seed=3),
  ],
  ids=lambda target: target['name'],
)
def test_gaussian_log_density_is_the_dense_formula(target):
  built = _build(**target)
  x = np.random.default_rng(0).normal(size=(3, built.event_size))
  expected = -0.5 * np.einsum(
    'bi,ij,bj->b', x, np.linalg.inv(built.covariance), x
  )
  actual = built.target_log_prob_fn(tf.constant(x))
  np.testing.assert_allclose(actual, expected, rtol=1e-9)
  single = built.target_log_prob_fn(tf.constant(x[0]))
  np.testing.assert_allclose(single, expected[0], rtol=1e-9)


def test_kernel_gaussian_has_the_spectrum_of_the_paper():
  eigenvalues = np.linalg.eigvalsh(_build(name='kernel_gaussian').covariance)
  # Section 4.1: "eigenvalues ranging from 0.01 to 12.07".
  np.testing.assert_allclose(eigenvalues[0], 0.01, rtol=1e-3)
  np.testing.assert_allclose(eigenvalues[-1], 12.07, atol=5e-3)


def test_neals_gaussian_has_scales_from_a_hundredth_to_one():
  scales = np.sqrt(np.diag(_build(name='neals_gaussian').covariance))
  np.testing.assert_allclose(scales, np.arange(1, 101) / 100)


def test_rotation_keeps_the_spectrum_and_mixes_coordinates():
  variances = np.array([1.0, 0.1, 1e-4])
  covariance = gaussians.rotated_covariance(variances, seed=1)
  np.testing.assert_allclose(
    np.sort(np.linalg.eigvalsh(covariance)), np.sort(variances), rtol=1e-8
  )
  assert np.abs(covariance[0, 1]) > 1e-3


def test_logistic_regression_log_density_is_the_formula():
  rng = np.random.default_rng(1)
  inputs = logistic_regression.design_matrix(rng.normal(2, 3, size=(20, 3)))
  labels = rng.integers(0, 2, size=20)
  weights = rng.normal(size=(5, 4))
  target = logistic_regression.logistic_regression_target(
    'x', inputs, labels, 'float64'
  )
  probability = 1 / (1 + np.exp(-weights @ inputs.T))
  likelihood = np.where(labels, probability, 1 - probability)
  expected = np.log(likelihood).sum(-1) - 0.5 * (weights**2).sum(-1)
  np.testing.assert_allclose(
    target.target_log_prob_fn(tf.constant(weights)), expected, rtol=1e-10
  )


def test_design_matrix_standardizes_and_appends_the_bias():
  raw = np.random.default_rng(2).normal(5, 2, size=(50, 3))
  raw[:, 1] = 7.0
  design = logistic_regression.design_matrix(raw)
  np.testing.assert_allclose(design.mean(0), [0, 0, 0, 1], atol=1e-12)
  np.testing.assert_allclose(design.std(0), [1, 0, 1, 0], atol=1e-12)


def test_gym_target_is_the_density_of_the_unconstrained_vector():
  built = _build('float32', name='VectorizedStochasticVolatilitySP500Small')
  assert built.event_size == 103
  states = 0.1 * np.random.default_rng(3).normal(size=(2, 103))
  states = tf.constant(states, tf.float32)
  assert np.all(np.isfinite(built.target_log_prob_fn(states)))
  values = built.constrain(states)
  assert values['log_volatility'].shape == (2, 100)
  assert np.all(np.abs(values['persistence_of_volatility']) < 1)
  assert np.all(values['white_noise_shock_scale'] > 0)


def test_gym_density_counts_the_jacobian_of_the_bijector():
  built = _build('float32', name='EightSchools')
  draws = built.sample_prior(4, 0)
  assert draws.shape == (4, 10)
  x = tf.constant(draws)
  with tf.GradientTape() as tape:
    tape.watch(x)
    value = built.target_log_prob_fn(x)
  gradient = tape.gradient(value, x).numpy()
  step = 1e-2 * np.eye(10, dtype=np.float32)[2]
  difference = (
    built.target_log_prob_fn(x + step) - built.target_log_prob_fn(x - step)
  ) / 2e-2
  np.testing.assert_allclose(gradient[:, 2], difference, rtol=0.05, atol=0.05)
