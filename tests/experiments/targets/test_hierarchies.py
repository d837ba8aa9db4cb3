"""Latent Gaussian models with hyperparameters: their pieces fit together."""

import numpy as np
import pydantic
import pytest
import tensorflow as tf

from experiments.targets import gp_hierarchy
from experiments.targets import stochastic_volatility
from experiments.targets.base import BuildContext
from experiments.targets.registry import TARGETS


def _log_joint(hierarchy, states):
  """Returns f(x) + log N(x | theta) + log p(theta) of states, [n]."""
  x, theta = hierarchy.split(tf.constant(states))
  prior = hierarchy.prior_fn(theta)
  density = prior.covariance(prior.params).log_prob(
    prior.to_coordinates(prior.params, x)
  )
  return (
    hierarchy.log_likelihood_fn(x)
    + density
    + hierarchy.hyper_log_prob_fn(theta)
  ).numpy()


def test_pieces_of_stochastic_volatility_add_up_to_its_density():
  rng = np.random.default_rng(0)
  target = stochastic_volatility.stochastic_volatility_target(
    rng.normal(size=30), 'centered', dtype='float64'
  )
  states = target.suggested_start + 0.3 * rng.normal(size=(5, 33))
  gap = (
    _log_joint(target.hierarchy, states)
    - target.target_log_prob_fn(tf.constant(states)).numpy()
  )
  np.testing.assert_allclose(gap, gap[0], atol=1e-9)
  # The densities themselves differ between these states.
  assert np.ptp(target.target_log_prob_fn(tf.constant(states))) > 1.0


def test_pieces_of_the_gyms_cox_process_add_up_to_its_density():
  target = (
    pydantic.TypeAdapter(TARGETS.union())
    .validate_python({'name': 'SyntheticLogGaussianCoxProcess'})
    .build(BuildContext('float64'))
  )
  states = target.sample_prior(4, 0)
  gap = (
    _log_joint(target.hierarchy, states)
    - target.target_log_prob_fn(tf.constant(states)).numpy()
  )
  np.testing.assert_allclose(gap, gap[0], atol=1e-6)
  assert np.ptp(target.target_log_prob_fn(tf.constant(states))) > 1.0
  split = [part.numpy() for part in target.hierarchy.split(tf.constant(states))]
  np.testing.assert_array_equal(target.hierarchy.join(*split), states)


def test_gp_hierarchy_has_the_dense_density():
  rng = np.random.default_rng(1)
  inputs, labels = rng.normal(size=(6, 2)), np.array([0, 1, 1, 0, 1, 0])
  target = gp_hierarchy.gp_hierarchy_target(
    'tiny', inputs, labels, jitter=0.01, hyper_deviation=3.0
  )
  states = rng.normal(size=(2, 8))
  for state, got in zip(states, _log_joint(target.hierarchy, states)):
    x, theta = state[:6], state[6:]
    squares = np.sum((inputs[:, None] - inputs) ** 2, axis=-1)
    shape = np.exp(-0.5 * squares / np.exp(2.0 * theta[1]))
    matrix = np.exp(2.0 * theta[0]) * (shape + 0.01 * np.eye(6))
    expected = -0.5 * x @ np.linalg.solve(matrix, x)
    expected -= 0.5 * np.linalg.slogdet(2.0 * np.pi * matrix)[1]
    expected -= np.sum(np.log1p(np.exp(np.where(labels, -x, x))))
    expected -= 0.5 * np.sum((theta / 3.0) ** 2)
    assert got == pytest.approx(expected, abs=1e-9)
