"""Steps of hyperparameters, learned from those visited, against numpy."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.core import tfp_private

# Without data theta follows its prior N(_LOC, _COVARIANCE): known exactly.
_LOC = np.array([0.3, -0.2, 0.5])
_SHAPE = np.array([[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [-0.5, 0.1, 0.3]])


def _no_data(x):
  return 0.0 * tf.reduce_sum(x, axis=-1)


def _hyper_log_prob(theta):
  whitened = tf.linalg.matvec(
    tf.constant(np.linalg.inv(0.5 * _SHAPE), theta.dtype),
    theta - tf.constant(_LOC, theta.dtype),
  )
  return -0.5 * tf.reduce_sum(whitened**2, axis=-1)


def _prior_fn(theta):
  variance = tf.exp(0.4 * tf.reduce_sum(theta, axis=-1))
  return tfpa.gaussian_priors.spectral(
    variance[..., tf.newaxis, tf.newaxis]
    * tf.constant([[1.0, 0.5], [0.5, 1.0]], theta.dtype)
  )


def _kernel(num_adaptation_steps, **options):
  return tfpa.adaptation.HyperparameterAdaptation(
    tfpa.proposals.LatentGaussianHyperparameters(
      _no_data,
      _prior_fn,
      _hyper_log_prob,
      lambda *args: tfpa.MetropolisHastings(
        tfpa.proposals.UncalibratedAuxiliaryGradient(*args)
      ),
      **{'delta': 2.0, 'hyper_step_size': 0.4, **options},
    ),
    num_adaptation_steps,
  )


def _start(chains, dtype=np.float64):
  rng = np.random.default_rng(2)
  return (
    tf.constant(rng.normal(size=(*chains, 2)), dtype),
    tf.constant(_LOC + 0.1 * rng.normal(size=(*chains, 3)), dtype),
  )


def _learned(results, name):
  return tfp_private.get_innermost(results, name).numpy()


@pytest.mark.parametrize('chains', [(), (2, 2)])
def test_mean_covariance_and_factor_follow_their_recursions(chains):
  kernel = _kernel(6)
  start = _start(chains)
  before = kernel.bootstrap_results(start)
  states, all_results = targets.run(kernel, start, 6, results=before)
  num_chains = int(np.prod(chains))
  mean = start[1].numpy().reshape(-1, 3).mean(axis=0)
  covariance = np.zeros([3, 3])
  np.testing.assert_array_equal(_learned(before, 'hyper_factor'), np.eye(3))
  for step, (state, results) in enumerate(zip(states, all_results), start=1):
    weight = 2.0 / (step + 2.0)
    centered = state[1].numpy().reshape(-1, 3) - mean
    covariance = (1.0 - weight) * covariance + weight * (
      centered.T @ centered / num_chains
    )
    mean = mean + weight * centered.mean(axis=0)
    variance = np.trace(covariance) / 3.0
    shrunk = covariance + variance * 15.0 / (step * num_chains) * np.eye(3)
    if variance == 0.0:
      shrunk = np.eye(3)
    shrunk /= np.linalg.det(shrunk) ** (1.0 / 3.0)
    np.testing.assert_allclose(results.hyper_mean, mean, rtol=1e-9)
    np.testing.assert_allclose(
      results.hyper_covariance, covariance, rtol=1e-9, atol=1e-15
    )
    np.testing.assert_allclose(
      _learned(results, 'hyper_factor'),
      np.linalg.cholesky(shrunk),
      rtol=1e-9,
      atol=1e-12,
    )


def test_nothing_accepted_leaves_the_identity():
  kernel = _kernel(5, hyper_step_size=30.0)
  start = _start(())
  _, all_results = targets.run(kernel, start, 3)
  for results in all_results:
    assert not _learned(results, 'hyper_is_accepted')
    np.testing.assert_array_equal(_learned(results, 'hyper_factor'), np.eye(3))
