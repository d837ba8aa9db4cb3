"""Methods of latent Gaussian models: built, refused, counted, measured."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.papers import config as configs
from experiments.papers import shrinkage
from experiments.papers.config_study import make_plan
from experiments.run import store
from experiments.run.errors import ConfigError
from experiments.samplers import latent
from experiments.targets import gp_regression
from experiments.targets.base import LatentGaussian
from tests.experiments.papers.runs import run_here

VALUES = {
  'name': 'latent',
  'target': {'name': 'gp_regression', 'num_points': 12},
  'methods': [{'name': 'marginal_gradient'}],
  'num_chains': 2,
  'num_adaptation_steps': 40,
  'num_results': 20,
  'dtype': 'float64',
}


def _config(**changes):
  return configs.parse_config({**VALUES, **changes})


@pytest.mark.parametrize(
  'method, label, proposal, gradients',
  [
    (dict(name='marginal_gradient'), 'mGrad', 'MarginalGradient', 1),
    (dict(name='auxiliary_gradient'), 'aGrad-z', 'AuxiliaryGradient', 1),
    (
      dict(name='auxiliary_gradient', auxiliary='u'),
      'aGrad-u',
      'AuxiliaryGradient',
      1,
    ),
    (dict(name='crank_nicolson'), 'pCN', 'CrankNicolson', 0),
    (dict(name='crank_nicolson', langevin=True), 'pCNL', 'CrankNicolson', 1),
    (
      dict(name='prior_preconditioned_langevin'),
      'pMALA',
      'PriorLangevin',
      1,
    ),
  ],
)
def test_every_sampler_can_be_asked_for(method, label, proposal, gradients):
  constants = dict(target_accept_prob=0.4, step_size=0.02)
  plain = _config(methods=[method])
  assert plain.labels() == [label]
  config = _config(methods=[{**method, **constants}])
  assert config.labels() == [f'{label}, 0.4']
  built = make_plan(config).methods[0]
  assert built.frozen_cost[:3] == (1, gradients, 0)
  kernel = built.kernel
  assert kernel.parameters['target_accept_prob'] == 0.4
  assert kernel.num_adaptation_steps == 40
  innermost = kernel
  while hasattr(innermost, 'inner_kernel'):
    innermost = innermost.inner_kernel
  assert type(innermost).__name__ == f'Uncalibrated{proposal}'
  assert innermost.step_size == 0.02


@pytest.mark.parametrize(
  'changes, words',
  [
    (
      {'target': {'name': 'gaussian_2d'}},
      ['methods.0 (marginal_gradient)', 'gaussian_2d', 'gp_regression', 'nuts'],
    ),
    (
      {
        'target': {'name': 'gaussian_2d'},
        'methods': [{'name': 'elliptical_slice'}],
      },
      ['methods.0 (elliptical_slice)', 'gaussian_2d'],
    ),
    (
      {'target': {**VALUES['target'], 'coordinates': 'white'}},
      ['methods.0', 'coordinates: field'],
    ),
    (
      {
        'target': {'name': 'gp_regression', 'num_points': 40},
        'methods': [{'name': 'nuts'}],
      },
      ['methods.0 (nuts)', 'no inverse', 'coordinates: white'],
    ),
    (
      {
        'target': {'name': 'gp_regression', 'num_points': 40},
        'methods': [{'name': 'crank_nicolson', 'preconditioned': False}],
      },
      ['methods.0 (crank_nicolson)', 'singular'],
    ),
    (
      {
        'target': {
          'name': 'log_gaussian_cox',
          'num_cells_per_side': 4,
          'simulated_cells_per_side': 6,
        }
      },
      ['num_cells_per_side', '4', 'divisor'],
    ),
    (
      {
        'target': {'name': 'gp_regression', 'num_points': 40},
        'init': {'kind': 'climb'},
      },
      ['init.kind', "'climb'", "'prior'"],
    ),
  ],
)
def test_mismatches_are_refused_while_planning(changes, words):
  with pytest.raises(ConfigError) as refusal:
    make_plan(_config(**changes))
  for word in words:
    assert word in str(refusal.value)


def test_a_list_of_acceptances_is_one_method_each():
  method = {'name': 'marginal_gradient', 'target_accept_prob': [0.25, 0.5]}
  config = _config(methods=[method, {**method, 'label': 'mine'}])
  assert config.labels() == [
    'mGrad, 0.25',
    'mGrad, 0.5',
    'mine, 0.25',
    'mine, 0.5',
  ]
  again = configs.parse_config(config.model_dump(mode='json'))
  assert again == config
  with pytest.raises(ConfigError, match='methods.1.target_accept_prob'):
    _config(methods=[{**method, 'target_accept_prob': [0.5, 1.5]}])


@pytest.fixture(scope='module')
def ran(tmp_path_factory):
  """A run of a small regression whose posterior is known."""
  values = {
    **VALUES,
    'target': {
      'name': 'gp_regression',
      'num_points': 12,
      'noise_variance': 0.1,
    },
    'methods': [
      {'name': 'marginal_gradient'},
      {'name': 'elliptical_slice'},
      {
        'name': 'marginal_gradient',
        'label': 'fixed',
        'step_size': 0.05,
        'num_adaptation_steps': 0,
      },
    ],
    'num_adaptation_steps': 500,
    'num_results': 2000,
    'num_chains': 4,
  }
  config = configs.parse_config(values)
  folder = tmp_path_factory.mktemp('latent')
  return folder, run_here(config, folder)


@pytest.mark.full
def test_runs_agree_with_the_exact_posterior(ran):
  _, records = ran
  assert [one.error for one in records] == [None] * 3
  for record in (one.record for one in records):
    # Five standard errors of 12 coordinates.
    assert record['max_mean_z_score'] < 5
    assert abs(record['moments']['field']['worst_mean_z']) < 5
    assert abs(record['moments']['field']['worst_deviation_z']) < 5


@pytest.mark.full
def test_records_hold_delta_and_calls(ran):
  marginal, slices, fixed = (one.record for one in ran[1])
  # Near the noise variance, as section 3.4 has it.
  assert 0.05 < marginal['step_size'] < 0.5
  assert fixed['step_size'] == pytest.approx(0.05)
  assert slices['step_size'] is None
  assert marginal['calls']['sampling']['gradient'] == 4 * 2000
  calls = slices['calls']['sampling']
  # One call draws the slice, and this posterior is narrow in its prior.
  assert calls['gradient'] == 0 and calls['target'] > 1.5 * 4 * 2000


def test_the_spectrum_of_the_draws_is_drawn_beside_the_posterior(ran):
  folder, records = ran
  arrays = store.read_arrays(folder, records[0])
  gamma = arrays['prior_eigenvalues']
  exact = shrinkage.posterior_variance(gamma, 0.1)
  # 8000 draws, an ESS of at least 1000: five standard errors of a variance.
  error = np.abs(arrays['sampled_variances'] / exact - 1)
  assert np.all(error < 5 * np.sqrt(2 / 1000))
  assert (folder / 'figures' / 'shrinkage.png').is_file()


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


@pytest.mark.full
def test_elliptical_slice_moves_a_field_with_a_mean():
  mean = np.array([3.0, -2.0, 1.0])
  covariance = np.array([[1.0, 0.5, 0.1], [0.5, 1.0, 0.5], [0.1, 0.5, 1.0]])
  prior = tfpa.gaussian_priors.spectral(covariance, mean=mean)
  model = LatentGaussian(
    lambda x: -2.0 * tf.reduce_sum(tf.square(x - 1.0), axis=-1), prior
  )
  method = latent.elliptical_slice_method(model)
  result = method.sample_fn(
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
