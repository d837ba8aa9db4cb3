"""The builders without gradients: runs from start to draws."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.targets import banana
from tests.contracts import targets
from tests.surrogate import surrogates
from tfp_adaptive.core import tfp_private

_SIZE = 5
_FACTOR = targets.correlated_factor(_SIZE, condition=100.0)
_MEAN = np.arange(1.0, _SIZE + 1.0)


def _log_prob(x):
  inverse = tf.constant(np.linalg.inv(_FACTOR), x.dtype)
  return targets.standard_normal(tf.linalg.matvec(inverse, x - _MEAN))


def _far_start(num_chains=10):
  """Returns starts 20 standard deviations away."""
  rng = np.random.default_rng(0)
  direction = rng.normal(size=(num_chains, _SIZE))
  direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
  return tf.constant(_MEAN + 20.0 * direction @ _FACTOR.T)


def _sample(kernel, start, num_results, **options):
  arguments = dict(seed=(1, 2), progress=False, jit_compile=False) | options
  return tfpa.sample(kernel, start, num_results, **arguments)


def _surrogate(name):
  return {
    'gaussian': lambda: surrogates.gaussian(200),
    'finite': lambda: tfpa.surrogates.kernel_exponential_family_finite(200, 50),
  }[name]()


@functools.cache
def _learned(name, **options):
  kernel = tfpa.kernel_hamiltonian(
    _log_prob, 2000, surrogate=_surrogate(name), **options
  )
  return kernel, _sample(kernel, _far_start(), 2000)


each_surrogate = pytest.mark.parametrize(
  'name', ['gaussian', pytest.param('finite', marks=pytest.mark.nightly)]
)


@pytest.mark.full
@each_surrogate
def test_a_gaussian_is_learned_from_a_far_start(name):
  _, result = _learned(name)
  z = np.linalg.solve(_FACTOR, (result.states - _MEAN).reshape(-1, _SIZE).T)
  z = z.T.reshape(result.states.shape)
  size = tfp.mcmc.effective_sample_size(tf.constant(z), cross_chain_dims=1)
  squares = tfp.mcmc.effective_sample_size(
    tf.constant(z**2), cross_chain_dims=1
  )
  assert np.min(size) > 500.0 and np.min(squares) > 500.0
  # Standard errors of means, and of variances: z^2 has variance 2.
  error = np.asarray(size) ** -0.5
  assert np.all(np.abs(z.mean(axis=(0, 1))) < 4.0 * error)
  error = (2.0 / np.asarray(squares)) ** 0.5
  assert np.all(np.abs((z**2).mean(axis=(0, 1)) - 1.0) < 4.0 * error)
  reduction = tfp.mcmc.potential_scale_reduction(
    tf.constant(result.states), independent_chain_ndims=1
  )
  assert np.max(reduction) < 1.05


@pytest.mark.full
def test_the_step_size_settles_at_the_acceptance_asked_for():
  _, result = _learned('gaussian', num_leapfrog_steps=(1, 10))
  # The mean of min(1, exp(r)), which dual averaging steers.
  ratio = result.trace['log_accept_ratio']
  rate = np.mean(np.exp(np.minimum(ratio, 0.0)))
  assert abs(rate - 0.65) < 0.1
  steps = tfp_private.get_innermost(result.final_kernel_results, 'step_size')
  assert float(steps) != 0.3


@pytest.mark.full
@each_surrogate
def test_steps_are_long_and_most_of_them_follow(name):
  _, result = _learned(name)
  z = np.linalg.solve(_FACTOR, (result.states - _MEAN).reshape(-1, _SIZE).T)
  moved = np.diff(z.T.reshape(result.states.shape), axis=0)
  # Independent draws move by 2 per coordinate, walks by a tenth of it.
  assert np.mean(moved**2) > 1.0
  params = tfp_private.get_innermost(result.final_kernel_results, 'walk_params')
  # They earn more than walks.
  assert abs(float(params.share) - 0.1) < 1e-6


@pytest.mark.full
def test_frozen_is_the_learned_kernel():
  kernel, result = _learned('gaussian')
  fixed = tfpa.frozen(kernel, result.final_kernel_results)
  state = result.final_state
  start = fixed.bootstrap_results(state)
  walked = set()
  for seed in targets.seeds(20):
    expected, _ = kernel.one_step(state, result.final_kernel_results, seed=seed)
    moved, results = fixed.one_step(state, start, seed=seed)
    np.testing.assert_allclose(moved, expected, rtol=1e-12)
    walked.add(bool(results.proposed_results.trajectory.has_walked))
  assert walked == {True, False}
  assert tfpa.cost_per_step(kernel, adapting=False)[:3] == (1, 0, 0)


# The 8-D banana of Strathmann et al., and exact draws of it.
_BANANA = banana.banana_target(8, bend=0.03, dtype='float64')


def _banana_acceptance(history_seed, surrogate=None):
  """Returns the mean acceptance of a step of 20 leapfrog steps of 0.5."""
  kernel = tfpa.kernel_hamiltonian(
    _BANANA.target_log_prob_fn,
    0,
    surrogate=surrogate,
    preconditioner=tfpa.preconditioners.diagonal(init_scale=1.0),
    num_leapfrog_steps=20,
    step_size=0.5,
    history=_BANANA.exact_draws_fn(1000, history_seed),
    walk_share=0.0,
  ).inner_kernel.copy(learn_momentum_scale=False)
  start = tf.constant(_BANANA.exact_draws_fn(1000, 999))
  state, results = targets.stepper(kernel, 'graph')(
    start, kernel.bootstrap_results(start), tf.constant([1, 2])
  )
  ratio = results.inner_results.log_accept_ratio
  return float(np.mean(np.exp(np.minimum(ratio, 0.0))))


@pytest.mark.nightly
def test_draws_known_beforehand_make_a_good_sampler_without_adaptation():
  acceptances = [_banana_acceptance(seed) for seed in range(3)]
  assert np.mean(acceptances) > 0.75, acceptances
  # Power: what knows mean and covariance only.
  assert _banana_acceptance(0, surrogates.gaussian(1000)) < 0.5


def _with_history(shift, surrogate=None):
  draws = np.random.default_rng(2).normal(size=(100, _SIZE))
  kernel = tfpa.kernel_hamiltonian(
    targets.standard_normal,
    0,
    surrogate=surrogate or surrogates.gaussian(),
    history=draws,
  )
  start = np.zeros([3, _SIZE])
  start[1] += shift
  return kernel, tf.constant(start)


@pytest.mark.full
def test_chains_that_start_outside_of_the_history_are_named(recwarn):
  lite = surrogates.gaussian()._replace(name='kernel_exponential_family_lite')
  for quiet in (_with_history(0.0), _with_history(100.0, lite)):
    _sample(*quiet, 2)
  assert not [w for w in recwarn if 'history' in str(w.message)]
  kernel, start = _with_history(100.0)
  with pytest.warns(UserWarning, match='the start of chain 1. The sur.*_lite'):
    _sample(kernel, start, 2)
  with pytest.warns(UserWarning, match='the start of the chain. The'):
    _sample(kernel, start[1], 2)


@pytest.mark.full
def test_a_surrogate_that_was_never_fitted_is_said():
  kernel, start = _with_history(0.0, surrogates.failing(num_good_fits=0))
  with pytest.warns(UserWarning, match='could not be fitted to `history`'):
    _sample(kernel, start, 2)
  short = tfpa.kernel_hamiltonian(
    targets.standard_normal, 3, surrogate=surrogates.gaussian()
  )
  with pytest.warns(UserWarning, match='never fitted'):
    _sample(short, start[0], 2)
