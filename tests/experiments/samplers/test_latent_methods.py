"""Methods of latent Gaussian models: built, refused, counted, measured."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.papers import cell
from experiments.papers import shrinkage
from experiments.samplers import latent
from experiments.targets import gp_regression
from experiments.targets.base import LatentGaussian
from tests.experiments.samplers.building import built

_TARGET = {'name': 'gp_regression', 'num_points': 12}


def _built(*methods, target=_TARGET, **values):
  return built(list(methods), target, dtype='float64', **values)


@pytest.mark.parametrize(
  'name, options, label, proposal, gradients',
  [
    ('marginal_gradient', {}, 'mGrad', 'MarginalGradient', 1),
    ('auxiliary_gradient', {}, 'aGrad-z', 'AuxiliaryGradient', 1),
    (
      'auxiliary_gradient',
      {'auxiliary': 'u'},
      'aGrad-u',
      'AuxiliaryGradient',
      1,
    ),
    ('crank_nicolson', {}, 'pCN', 'CrankNicolson', 0),
    ('crank_nicolson', {'langevin': True}, 'pCNL', 'CrankNicolson', 1),
    ('prior_preconditioned_langevin', {}, 'pMALA', 'PriorLangevin', 1),
  ],
)
def test_every_sampler_can_be_asked_for(
  name, options, label, proposal, gradients
):
  values = {'name': name, **options}
  constants = dict(target_accept_prob=0.4, step_size=0.02)
  config, _, (_, method) = _built(values, {**values, **constants})
  assert config.labels() == [label, f'{label}, 0.4']
  assert method.frozen_cost[:3] == (1, gradients, 0)
  kernel = method.kernel
  assert kernel.parameters['target_accept_prob'] == 0.4
  assert kernel.num_adaptation_steps == 40
  while hasattr(kernel, 'inner_kernel'):
    kernel = kernel.inner_kernel
  assert type(kernel).__name__ == f'Uncalibrated{proposal}'
  assert kernel.delta == 0.02


@pytest.fixture(scope='module')
def ran():
  """Results of a small regression whose posterior is known."""
  config, target, methods = _built(
    {'name': 'marginal_gradient'},
    {'name': 'elliptical_slice'},
    target={**_TARGET, 'noise_variance': 0.1},
    num_adaptation_steps=500,
    num_results=2000,
    num_chains=4,
  )
  return [
    cell.run_cell(config, index, method, target, 0, None, False)
    for index, method in enumerate(methods)
  ]


@pytest.mark.full
def test_runs_agree_with_the_exact_posterior(ran):
  for result in ran:
    record = result.record
    # Five standard errors of 12 coordinates.
    assert record['max_mean_z_score'] < 5
    assert abs(record['moments']['field']['worst_mean_z']) < 5
    assert abs(record['moments']['field']['worst_deviation_z']) < 5


@pytest.mark.full
def test_records_hold_delta_and_calls(ran):
  marginal, slices = (result.record for result in ran)
  # Near the noise variance, as section 3.4 has it.
  assert 0.05 < marginal['step_size'] < 0.5
  assert slices['step_size'] is None
  assert marginal['calls']['sampling']['gradient'] == 4 * 2000
  calls = slices['calls']['sampling']
  # One call draws the slice, and this posterior is narrow in its prior.
  assert calls['gradient'] == 0 and calls['target'] > 1.5 * 4 * 2000


@pytest.mark.full
def test_the_spectrum_of_the_draws_is_that_of_the_posterior(ran):
  arrays = ran[0].arrays
  exact = shrinkage.posterior_variance(arrays['prior_eigenvalues'], 0.1)
  # 8000 draws, an ESS of at least 1000: five standard errors of a variance.
  error = np.abs(arrays['sampled_variances'] / exact - 1)
  assert np.all(error < 5 * np.sqrt(2 / 1000))


def test_proposal_variances_are_those_of_the_priors_smoother():
  gamma, delta = np.array([1e-3, 0.2, 4.0]), 0.3
  gain = gamma / (gamma + delta / 2)
  np.testing.assert_allclose(
    shrinkage.marginal_variance(gamma, delta), delta / 2 * gain * (1 + gain)
  )
  spread = 1 - (2 / (2 + delta)) ** 2
  np.testing.assert_allclose(
    shrinkage.crank_nicolson_variance(gamma, delta), spread * gamma
  )
  # At delta = noise the ratio to the posterior is between 1 and 1.13.
  wide = np.logspace(-4, 4, 200)
  ratio = shrinkage.marginal_variance(wide, 0.1)
  ratio /= shrinkage.posterior_variance(wide, 0.1)
  assert 1.0 < ratio.min() and 1.12 < ratio.max() < 1.13


@pytest.mark.nightly
def test_elliptical_slice_moves_a_field_with_a_mean():
  mean = np.array([3.0, -2.0, 1.0])
  covariance = np.array([[1.0, 0.5, 0.1], [0.5, 1.0, 0.5], [0.1, 0.5, 1.0]])
  prior = tfpa.gaussian_priors.spectral(covariance, mean=mean)
  model = LatentGaussian(
    lambda x: -2.0 * tf.reduce_sum(tf.square(x - 1.0), axis=-1), prior
  )
  result = latent.elliptical_slice_method(model).sample_fn(
    init_state=np.zeros([20, 3]),
    trace_fn=None,
    num_results=500,
    num_burnin_steps=50,
    seed=(0, 1),
    progress=False,
  )
  expected, posterior = gp_regression.posterior_moments(
    covariance, 1.0 - mean, 0.25
  )
  draws = result.states.reshape(-1, 3)
  # 10000 draws, an ESS of at least 1000.
  error = 5 * np.sqrt(np.diag(posterior) / 1000)
  assert np.all(np.abs(draws.mean(0) - mean - expected) < error)
  assert np.all(np.abs(draws.mean(0) - expected) > error)
  assert result.trace['extra']['num_target_calls'] > 1
