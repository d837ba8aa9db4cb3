"""Under a Gaussian likelihood, mGrad finds every prior's exact posterior."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.latent.priors import structures
from tfp_adaptive.core import random
from tfp_adaptive.core import tfp_private

_NOISE = 1.0
_NUM_STEPS = 60
_NUM_COPIES = 3000


def _observed(prior):
  """Returns the flat indices of the state that the likelihood sees."""
  size = int(np.prod(prior.event_shape))
  state = tf.reshape(tf.range(size), prior.event_shape)
  seen = state if prior.restrict is None else prior.restrict(state)
  return seen.numpy().reshape(-1)


def _posterior(covariance, mean, observed, data):
  """Returns mean and covariance of the field given noisy data of a part."""
  seen = covariance[..., observed]
  noise = _NOISE * np.eye(len(observed))
  gain = seen @ np.linalg.inv(seen[..., observed, :] + noise)
  miss = data - np.broadcast_to(mean, covariance.shape[:-1])[..., observed]
  shift = np.einsum('...ij,...j->...i', gain, miss)
  return mean + shift, covariance - gain @ np.swapaxes(seen, -1, -2)


def _sample(prior, data, chains):
  """Returns final states of many chains, [num, chains..., d], and f's mean."""
  num_chain_dims = 1 + len(chains)

  def log_likelihood(seen):
    shape = [*seen.shape[:num_chain_dims], -1]
    miss = tf.reshape(seen, shape) - tf.constant(data)
    return -0.5 / _NOISE * tf.reduce_sum(miss**2, axis=-1)

  kernel = tfpa.marginal_gradient(log_likelihood, 0, prior=prior, delta=1.0)

  @tf.function(autograph=False)
  def run(states):
    def body(step, states, results):
      seed = random.fold_in(tf.constant([1, 2]), step)
      return (step + 1, *kernel.one_step(states, results, seed=seed))

    start = (0, states, kernel.bootstrap_results(states))
    return tf.while_loop(lambda step, *_: step < _NUM_STEPS, body, start)[1:]

  lead = [_NUM_COPIES, *chains]
  states, results = run(tfpa.gaussian_priors.sample(prior, lead, seed=3))
  accepted = np.mean(tfp_private.get_innermost(results, 'is_accepted'))
  return states.numpy().reshape([*lead, -1]), accepted


def _is_consistent(states, mean, covariance):
  """Returns whether moments agree within five standard errors."""
  num = len(states)
  centered = np.moveaxis(states - mean, 0, -1)
  variances = np.diagonal(covariance, axis1=-2, axis2=-1)
  mean_error = np.sqrt(variances / num)
  products = variances[..., :, None] * variances[..., None, :]
  error = np.sqrt((products + covariance**2) / num)
  actual = centered @ np.swapaxes(centered, -1, -2) / num
  return np.all(np.abs(np.mean(centered, axis=-1)) < 5.0 * mean_error) and (
    np.all(np.abs(actual - covariance) < 5.0 * error)
  )


# Those that stand for the others by day.
_BY_DAY = ('spectral', 'stationary_plane', 'side_by_side', 'cholesky_by_chain')


def _by_tier(name):
  return pytest.param(name, marks=[pytest.mark.nightly] * (name not in _BY_DAY))


@pytest.mark.full
@pytest.mark.parametrize('name', map(_by_tier, structures.STRUCTURES))
def test_marginal_gradient_finds_the_exact_posterior(name):
  structure = structures.STRUCTURES[name]
  prior = structure.build(tf.float64)
  observed = _observed(prior)
  chains = structure.covariance.shape[:-2]
  data = np.random.default_rng(0).normal(scale=1.5, size=len(observed))
  states, accepted = _sample(prior, data, chains)
  assert accepted > 0.3
  exact = _posterior(structure.covariance, structure.mean, observed, data)
  assert _is_consistent(states, *exact)
  # Twice the prior's covariance would be noticed, and so would another mean.
  wide = _posterior(2.0 * structure.covariance, structure.mean, observed, data)
  assert not _is_consistent(states, *wide)
  moved = _posterior(structure.covariance, structure.mean + 1.0, observed, data)
  assert not _is_consistent(states, *moved)
