"""Priors of banded precision: both forms, laws and theorems."""

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.latent.priors import structures
from tfp_adaptive.linalg import banded_scan

_D = 9
_T = 0.35  # Variance of the smoother.
_MEAN = np.linspace(-1.0, 1.0, _D)
priors = tfpa.gaussian_priors


def _rows(seed=0, shape=(2, _D)):
  return np.random.default_rng(seed).normal(size=shape)


def _choose_form(monkeypatch, parallel):
  """Takes the forms of depth O(log d), or the loops, on any device."""
  monkeypatch.setattr(banded_scan, 'is_preferred', lambda _: parallel)


@pytest.mark.parametrize('order, batch', [(1, ()), (2, (2,)), (3, ())])
def test_parallel_form_gives_the_numbers_of_the_loop(order, batch, monkeypatch):
  x, e = tf.constant(_rows(1)), tf.constant(_rows(2))
  found = []
  for parallel in (False, True):
    _choose_form(monkeypatch, parallel)
    bands = structures.bands(structures.precision(order, batch, _D), order)
    prior = priors.markov(bands, mean=_MEAN)
    found.append(structures.all_functions(prior, x, e, _T))
  for by_loop, by_scan in zip(*found, strict=True):
    np.testing.assert_allclose(by_scan, by_loop, rtol=1e-8, atol=1e-8)


def _dense_covariance(prior):
  functions = prior.covariance(prior.params)
  size = int(np.prod(prior.event_shape))
  return functions.multiply(tf.eye(size, dtype=tf.float64)).numpy()


@pytest.mark.parametrize(
  'coefficients', [(0.9,), (0.5, 0.3), (1.6, -0.9, 0.2)], ids=len
)
@pytest.mark.parametrize('num_steps', [4, 9])
def test_stationary_process_has_its_toeplitz_covariance(
  coefficients, num_steps
):
  prior = priors.autoregression(np.array(coefficients), 0.7, num_steps)
  np.testing.assert_allclose(
    _dense_covariance(prior),
    structures.stationary_covariance(coefficients, 0.7, num_steps),
    rtol=1e-9,
  )


def test_started_processes_follow_their_recursion():
  cases = (
    (priors.autoregression(np.array([0.9]), 0.7, 6, initial_scale=2.0), (0.9,)),
    (priors.random_walk(np.float64(0.7), 6, initial_scale=2.0), (1.0,)),
    (
      priors.random_walk(np.float64(0.7), 6, initial_scale=2.0, order=2),
      (2.0, -1.0),
    ),
  )
  for prior, coefficients in cases:
    order = len(coefficients)
    recursion = np.eye(6)
    for k, a in enumerate(coefficients, start=1):
      recursion -= a * np.eye(6, k=-k)
    recursion[:order, :order] = np.eye(order)
    scales = np.where(np.arange(6) < order, 2.0, 0.7)
    factor = np.linalg.inv(recursion) * scales
    np.testing.assert_allclose(
      _dense_covariance(prior), factor @ factor.T, rtol=1e-9, atol=1e-10
    )


def test_state_space_paths_have_the_covariance_of_their_recursion():
  transition = np.array([[0.9, 0.3], [-0.2, 0.7]])
  noise = np.array([[0.5, 0.1], [0.1, 0.2]])
  start = np.array([[2.0, 0.3], [0.3, 1.0]])
  prior = priors.state_space(transition, noise, start, num_steps=4)
  assert prior.event_shape == (4, 2)
  recursion = np.eye(8) - np.kron(np.eye(4, k=-1), transition)
  inner = np.linalg.inv(recursion)
  blocks = scipy.linalg.block_diag(start, noise, noise, noise)
  np.testing.assert_allclose(
    _dense_covariance(prior), inner @ blocks @ inner.T, rtol=1e-9
  )


def test_indefinite_precision_inside_a_chain_has_no_density_and_no_nan():
  @tf.function(jit_compile=True, autograph=False)
  def compute(persistence, x):
    prior = priors.autoregression(persistence[:, tf.newaxis], 1.0, _D)
    covariance = prior.covariance(prior.params)
    smoother = prior.smoother(prior.params, tf.constant(_T, tf.float64))
    return dict(
      log_prob=covariance.log_prob(x),
      log_marginal=smoother.log_marginal(x),
      draw=covariance.draw(x),
      draw_marginal=smoother.draw_marginal(x, x),
    )

  persistence = tf.constant([1.5, 0.5, np.nan], tf.float64)
  x = tf.constant(_rows(1, (3, _D)))
  found = compute(persistence, x)
  alone = priors.autoregression(np.float64(0.5), 1.0, _D)
  expected = alone.covariance(alone.params).log_prob(x)[1]
  np.testing.assert_allclose(
    found['log_prob'], [-np.inf, expected, -np.inf], rtol=1e-10
  )
  assert np.isneginf(found['log_marginal'].numpy()).tolist() == [1, 0, 1]
  for name in ('draw', 'draw_marginal'):
    assert np.all(np.isfinite(found[name])), name


def test_long_paths_keep_their_digits(monkeypatch):
  # Condition number of P about 1e12: a dense inverse would have lost it.
  size = 2000
  noise = np.random.default_rng(0).normal(size=size)
  path = np.concatenate([noise[:1], noise[1:2], np.zeros(size - 2)])
  for i in range(2, size):
    path[i] = 2.0 * path[i - 1] - path[i - 2] + noise[i]
  expected = -0.5 * (noise @ noise + size * np.log(2.0 * np.pi))
  for parallel in (False, True):
    _choose_form(monkeypatch, parallel)
    prior = priors.random_walk(
      np.float64(1.0), size, initial_scale=1.0, order=2
    )
    found = prior.covariance(prior.params).log_prob(tf.constant(path))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
