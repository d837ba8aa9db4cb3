"""Acceptance ratios of the latent Gaussian proposals, against dense densities.

The proposal's mean and covariance are written here from the paper's formulas,
with inverses; the kernels never form one.
"""

import collections

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers.baselines.prior_langevin import (
  UncalibratedPriorLangevin,
)
from tests.latent.hyperparameter_model import log_normal as _log_normal
from tfp_adaptive.core import random
from tfp_adaptive.latent import auxiliary_langevin
from tfp_adaptive.linalg import banded_scan

_D = 6
_DELTA = 0.7
_NUM_DRAWS = 40_000
_IDENTITY = np.eye(_D)


def _covariance():
  factor = np.random.default_rng(0).normal(size=(_D, _D))
  return factor @ factor.T / _D + 0.1 * _IDENTITY


_C = _covariance()
_C_INV = np.linalg.inv(_C)
_A = np.linalg.inv(_C_INV + 2.0 / _DELTA * _IDENTITY)
_MEAN = np.linspace(-1.0, 1.0, _D)


def _log_likelihood(x):
  weights = tf.constant(np.linspace(0.5, 2.0, _D))
  return tf.reduce_sum(tf.sin(weights * x) - 0.3 * x**4, axis=-1)


def _gradient(x):
  weights = np.linspace(0.5, 2.0, _D)
  return weights * np.cos(weights * x) - 1.2 * x**3


def _shrunk(covariance):
  return 2.0 / _DELTA * covariance


def _marginal(x, g):
  mean = _shrunk(_A) @ (x + 0.5 * _DELTA * g)
  return mean, _shrunk(_A @ _A) + _A


def _crank_nicolson(x, g):
  inner = np.linalg.inv(2.0 * _C + _DELTA * _IDENTITY)
  mean = inner @ (2.0 * _C - _DELTA * _IDENTITY) @ x
  mean += 2.0 * _DELTA * inner @ _C @ g
  return mean, 8.0 * _DELTA * inner @ _C @ _C @ inner


def _preconditioned(x, g):
  mean = (2.0 * x + _DELTA * _C @ g) / (2.0 + _DELTA)
  return mean, _DELTA * (_DELTA + 4.0) / (2.0 + _DELTA) ** 2 * _C


def _prior_langevin(x, g):
  mean = (1.0 - 0.5 * _DELTA) * x + 0.5 * _DELTA * _C @ g
  return mean, _DELTA * _C


def _without_gradient(moments):
  return lambda x, g: moments(x, 0.0 * g)


def _build(name, prior, log_likelihood=_log_likelihood):
  proposals = tfpa.proposals
  crank_nicolson = proposals.UncalibratedCrankNicolson
  builders = dict(
    marginal=(proposals.UncalibratedMarginalGradient, {}),
    aux_z=(proposals.UncalibratedAuxiliaryGradient, dict(auxiliary='z')),
    aux_u=(proposals.UncalibratedAuxiliaryGradient, dict(auxiliary='u')),
    pcnl=(crank_nicolson, dict(langevin=True)),
    pcn=(crank_nicolson, {}),
    cnl=(crank_nicolson, dict(langevin=True, preconditioned=False)),
    cn=(crank_nicolson, dict(preconditioned=False)),
    pmala=(UncalibratedPriorLangevin, {}),
  )
  build, options = builders[name]
  return build(log_likelihood, prior, delta=_DELTA, **options)


MOMENTS = dict(
  marginal=_marginal,
  pcnl=_preconditioned,
  pcn=_without_gradient(_preconditioned),
  cnl=_crank_nicolson,
  cn=_without_gradient(_crank_nicolson),
  pmala=_prior_langevin,
)


@pytest.fixture(scope='module')
def prior():
  return tfpa.gaussian_priors.spectral(_C, mean=_MEAN)


def _states(num=5, seed=1):
  return np.random.default_rng(seed).normal(size=(num, _D))


def _step(kernel, states, seed=(3, 4)):
  states = tf.constant(states)
  results = kernel.bootstrap_results(states)
  return kernel.one_step(states, results, seed=seed)


def _check_corrections(states, proposed, results, moments, covariance, mean):
  """Compares corrections of steps with those of dense densities."""
  for x, y, correction in zip(
    states, proposed.numpy(), results.log_acceptance_correction.numpy()
  ):
    ratio = _log_normal(x, *moments(y)) - _log_normal(y, *moments(x))
    change = _log_normal(y, mean, covariance)
    change -= _log_normal(x, mean, covariance)
    assert correction == pytest.approx(change + ratio, abs=1e-10)


def _check_moments(proposed, mean, covariance):
  """Checks that proposals have this mean and covariance."""
  num_draws = len(proposed)
  whitened = np.linalg.solve(
    np.linalg.cholesky(covariance), (proposed.numpy() - mean).T
  )
  error = 1.0 / np.sqrt(num_draws)
  assert np.all(np.abs(np.mean(whitened, axis=1)) < 4.5 * error)
  excess = whitened @ whitened.T / num_draws - _IDENTITY
  assert np.all(np.abs(excess) < 4.5 * np.sqrt(2.0) * error)
  # A covariance 5 % off would be seen.
  assert 0.05 > 4.5 * np.sqrt(2.0) * error


def _centered(moments):
  """Returns x -> moments of what is proposed, from those of x - mean."""

  def of_state(x):
    mean, covariance = moments(x - _MEAN, _gradient(x))
    return _MEAN + mean, covariance

  return of_state


@pytest.mark.parametrize('name', MOMENTS)
def test_correction_is_that_of_the_dense_proposal_density(name, prior):
  states = _states()
  moved = _step(_build(name, prior), states)
  _check_corrections(states, *moved, _centered(MOMENTS[name]), _C, _MEAN)


# Auxiliary MALA is the limit of a flat prior.
@pytest.mark.parametrize('is_flat', [False, True], ids=['prior', 'mala'])
@pytest.mark.parametrize('auxiliary', ['z', 'u'])
def test_correction_is_that_of_the_extended_target(auxiliary, is_flat, prior):
  kernel = _build(f'aux_{auxiliary}', prior)
  noise = 0.5 * _DELTA * _IDENTITY
  rotation, mean, spread = _IDENTITY, 0.0, noise
  if is_flat:
    prior = auxiliary_langevin.FLAT
    kernel = tfpa.proposals.UncalibratedAuxiliaryLangevin(
      _log_likelihood, _DELTA, auxiliary
    )
  else:
    rotation, mean, spread = prior.params.basis[0].numpy(), _MEAN, _A
  states = tf.constant(_states())
  start = kernel.bootstrap_results(states)
  proposed, results = kernel.one_step(states, start, seed=(3, 4))
  drawn = _drawn(kernel, prior, start, seed=(3, 4))
  for x, y, u, z, correction in zip(
    states.numpy() - mean,
    proposed.numpy() - mean,
    *(row.numpy() @ rotation.T for row in drawn),
    results.log_acceptance_correction.numpy(),
  ):
    ratio = 0.0
    for sign, here, there in ((1.0, y, x), (-1.0, x, y)):
      # log pi(here, auxiliary) + log q(there | here, auxiliary).
      pull = 0.5 * _DELTA * _gradient(here + mean)
      ratio += 0.0 if is_flat else sign * _log_normal(here, 0.0, _C)
      if auxiliary == 'z':
        ratio += sign * _log_normal(z, here + pull, noise)
        ratio += sign * _log_normal(there, _shrunk(spread) @ z, spread)
      else:
        ratio += sign * _log_normal(u, here, noise)
        ratio += sign * _log_normal(there, _shrunk(spread) @ (u + pull), spread)
    assert correction == pytest.approx(ratio, abs=1e-10)


def _drawn(kernel, prior, start, seed):
  """Returns the auxiliary variables u and z of a step, by its own seed."""
  smoother = prior.smoother(prior.params, tf.constant(0.5 * _DELTA, tf.float64))
  current = (start.coordinates, start.grads_coordinates)
  point = collections.namedtuple('Point', ['state', 'grads'])(*current)
  sanitized = random.sanitize(seed)
  _, drawn = kernel._propose(smoother, start.step_size, point, sanitized)
  return drawn


@pytest.mark.parametrize('name', ['marginal', 'aux_z', 'pcnl', 'cnl', 'pmala'])
def test_proposals_have_the_mean_and_covariance_of_the_paper(name, prior):
  moments = _centered(dict(MOMENTS, aux_z=_marginal)[name])
  x = _states(1)[0]
  proposed, _ = _step(_build(name, prior), np.tile(x, (_NUM_DRAWS, 1)))
  _check_moments(proposed, *moments(x))


@pytest.mark.parametrize('is_prior', [False, True], ids=['diagonal', 'prior'])
def test_marginal_proposal_with_auxiliary_covariance_is_that_of_equation_8(
  is_prior,
):
  sigma = _C if is_prior else np.diag(np.linspace(0.5, 2.0, _D))
  sigma_inv = np.linalg.inv(sigma)
  b = np.linalg.inv(2.0 / _DELTA * sigma_inv + _C_INV)
  prior = tfpa.gaussian_priors.spectral(_C, auxiliary_covariance=sigma)
  states = _states()

  def moments(x):
    gain = 2.0 / _DELTA * b @ sigma_inv
    covariance = gain @ (0.5 * _DELTA * sigma) @ gain.T + b
    return gain @ (x + 0.5 * _DELTA * sigma @ _gradient(x)), covariance

  moved = _step(_build('marginal', prior), states)
  _check_corrections(states, *moved, moments, _C, 0.0)
  # With the prior's covariance it is pCNL, and with another one it is not.
  pcnl = _preconditioned(states[0], _gradient(states[0]))
  pairs = zip(moments(states[0]), pcnl)
  assert all(np.allclose(*pair, atol=1e-12) for pair in pairs) == is_prior


# MALA is the marginal of auxiliary MALA.


def _mala(x):
  """Returns mean and covariance of what MALA proposes."""
  return x + 0.5 * _DELTA * _gradient(x), _DELTA * _IDENTITY


def _flat_marginal():
  return tfpa.proposals.UncalibratedMarginalGradient(
    _log_likelihood, auxiliary_langevin.FLAT, _DELTA
  )


def test_the_marginal_of_auxiliary_mala_is_mala():
  states = _states()
  proposed, results = _step(_flat_marginal(), states)
  expected = [
    _log_normal(x, *_mala(y)) - _log_normal(y, *_mala(x))
    for x, y in zip(states, proposed.numpy())
  ]
  np.testing.assert_allclose(
    results.log_acceptance_correction, expected, atol=1e-12
  )


def test_both_draw_with_the_mean_and_variance_of_mala():
  x = _states(1)[0]
  for kernel in (
    tfpa.proposals.UncalibratedAuxiliaryLangevin(_log_likelihood, _DELTA),
    _flat_marginal(),
  ):
    proposed, _ = _step(kernel, np.tile(x, (_NUM_DRAWS, 1)))
    _check_moments(proposed, *_mala(x))


# The second-order proposal: acceptance ratios against dense densities.


_NOISE = 0.3
_DATA = np.linspace(2.0, -2.0, _D)


def _prior(coefficients=(0.6, 0.2)):
  return tfpa.gaussian_priors.autoregression(
    np.array(coefficients), 0.8, _D, mean=_MEAN
  )


def _precision():
  prior = _prior()
  solve = prior.covariance(prior.params).solve
  return solve(tf.constant(_IDENTITY)).numpy()


def _log_likelihood_second(x):
  # Convex where the sine bends up: curvature is clipped there.
  return tf.reduce_sum(tf.sin(2.0 * x) - 0.05 * x**4, axis=-1)


def _gradient_second(x):
  return 2.0 * np.cos(2.0 * x) - 0.2 * x**3


def _curvature(x):
  return -4.0 * np.sin(2.0 * x) - 0.6 * x**2


def _gaussian(x):
  return tf.reduce_sum(-0.5 * (x - _DATA) ** 2 / _NOISE, axis=-1)


def _moments(x):
  """Mean and covariance of proposals, from the formulas with inverses."""
  hessian = np.diag(np.minimum(_curvature(x), 0.0))
  a = np.linalg.inv(_precision() + 2.0 / _DELTA * _IDENTITY - hessian)
  s = x - _MEAN
  pulled = s + 0.5 * _DELTA * (_gradient_second(x) - hessian @ s)
  return _MEAN + 2.0 / _DELTA * a @ pulled, a + 2.0 / _DELTA * a @ a


def _step_second(kernel, states, seed=(3, 4), jit_compile=True):
  @tf.function(jit_compile=jit_compile, autograph=False)
  def step(states):
    results = kernel.bootstrap_results(states)
    return kernel.one_step(states, results, seed=seed)

  return step(tf.constant(states))


def _proposal(function=_log_likelihood_second):
  return tfpa.proposals.UncalibratedSecondOrderGradient(
    function, _prior(), delta=_DELTA
  )


@pytest.mark.full
def test_the_second_order_correction_is_that_of_the_dense_proposal_density():
  states = _states()
  assert np.any(_curvature(states) > 0.0) and np.any(_curvature(states) < 0.0)
  moved = _step_second(_proposal(), states)
  covariance = np.linalg.inv(_precision())
  _check_corrections(states, *moved, _moments, covariance, _MEAN)


@pytest.mark.full
def test_proposals_have_the_mean_and_covariance_of_the_formula():
  x = _states(1)[0]
  proposed, _ = _step_second(_proposal(), np.tile(x, (_NUM_DRAWS, 1)))
  _check_moments(proposed, *_moments(x))


@pytest.mark.full
def test_a_gaussian_likelihood_accepts_every_proposal():
  states = _states()
  kernel = _proposal(_gaussian)
  start = kernel.bootstrap_results(tf.constant(states))
  _, results = _step_second(kernel, states)
  ratio = results.target_log_prob - start.target_log_prob
  ratio += results.log_acceptance_correction
  np.testing.assert_allclose(ratio, 0.0, atol=1e-10)
  # The first-order proposal does not.
  first_order = tfpa.proposals.UncalibratedMarginalGradient(
    _gaussian, _prior(), delta=_DELTA
  )
  _, results = _step_second(first_order, states)
  ratio = results.target_log_prob - start.target_log_prob
  assert np.max(np.abs(ratio + results.log_acceptance_correction)) > 0.1


@pytest.mark.full
def test_modes_and_forms_agree(monkeypatch):
  expected, _ = _step_second(_proposal(), _states())
  found, _ = _step_second(_proposal(), _states(), jit_compile=False)
  np.testing.assert_allclose(found, expected, rtol=1e-10)
  monkeypatch.setattr(banded_scan, 'is_preferred', lambda _: True)
  found, _ = _step_second(_proposal(), _states())
  np.testing.assert_allclose(found, expected, rtol=1e-8)
