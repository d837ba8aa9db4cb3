"""Methods built from configs: parts, labels, costs."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.papers import config as configs
from experiments.papers import config_study
from experiments.run.errors import ConfigError
from experiments.samplers import tfp_kernels

VALUES = {
  'name': 'methods',
  'target': {'name': 'stochastic_volatility', 'num_days': 10},
  'num_chains': 2,
  'num_adaptation_steps': 40,
  'num_results': 20,
}


def _plan(**method):
  method = {'name': 'entropy_adaptive_hmc', 'num_leapfrog_steps': 3, **method}
  config = configs.parse_config({**VALUES, 'methods': [method]})
  return config, config_study.make_plan(config)


@pytest.mark.parametrize(
  'name, constants',
  [
    ('arrow', {'num_globals': 3}),
    ('banded', {'num_superdiagonals': 2}),
    ('cholesky', {}),
    ('diagonal', {}),
    ('low_rank', {'rank': 2}),
    ('tridiagonal', {}),
  ],
)
@pytest.mark.parametrize('settings', ['default', 'paper'])
@pytest.mark.parametrize(
  'method', ['entropy_adaptive_hmc', 'gadmala_fast', 'gadrwm']
)
def test_every_structure_can_be_asked_for(method, settings, name, constants):
  values = {'name': method, 'settings': settings, 'preconditioner': name}
  if method == 'entropy_adaptive_hmc':
    values['num_leapfrog_steps'] = 3
  config = configs.parse_config(
    {**VALUES, 'methods': [{**values, **constants}]}
  )
  target = config_study.make_plan(config).target
  kernel = config_study.make_plan(config).methods[0].kernel
  results = kernel.bootstrap_results(tf.zeros([2, target.event_size]))
  assert results is not None
  assert kernel.proposal.preconditioner.name == name


@pytest.mark.parametrize(
  'criterion, label',
  [
    (None, 'GSM HMC-3, paper'),
    ('expected_squared_jump_distance', 'ESJD HMC-3, paper'),
    ('l2hmc', 'L2HMC HMC-3, paper'),
  ],
)
def test_every_criterion_can_be_asked_for(criterion, label):
  config, plan = _plan(
    criterion=criterion,
    settings='paper',
    target_accept_prob=0.6,
    learning_rate=0.05,
  )
  assert config.labels() == [label]
  kernel = plan.methods[0].kernel
  assert kernel.criterion.name == (criterion or 'generalized_speed_measure')
  assert kernel.criterion.target_accept_prob == 0.6
  assert kernel.optimizer.name == 'adam'


@pytest.mark.parametrize('share', [None, 0.1])
@pytest.mark.parametrize(
  'name', ['fisher_mala', 'fisher_divergence_mala', 'variance_ratio_mala']
)
def test_closed_forms_start_as_the_papers_do(name, share):
  method = {'name': name, 'settings': 'paper', 'short_step_share': share}
  config = configs.parse_config({**VALUES, 'methods': [method]})
  plan = config_study.make_plan(config)
  kernel, size = plan.methods[0].kernel, plan.target.event_size
  results = kernel.bootstrap_results(tf.zeros([2, size]))
  np.testing.assert_allclose(
    tfpa.learned_factor(kernel, results),
    0.1 / size**0.5 * np.eye(size),
    rtol=1e-6,
  )
  has_short = 'short_step_share' in kernel.inner_kernel.parameters
  assert has_short == (share is not None)
  if name == 'fisher_mala':
    assert kernel.parameters['gain'] == 1.0


def test_hamiltonians_of_least_divergence_take_every_structure():
  method = dict(name='fisher_divergence_hmc', preconditioner='low_rank', rank=1)
  config = configs.parse_config({**VALUES, 'methods': [method]})
  assert config.labels() == ['Fisher-divergence HMC-5, low rank']
  built = config_study.make_plan(config).methods[0]
  assert built.kernel.preconditioner.name == 'low_rank'
  assert built.frozen_cost.gradient == 3.0  # The mean of 1, ..., 5.


def test_constants_of_the_paper_are_for_its_settings_and_its_criterion():
  _, plan = _plan(
    settings='paper', entropy_weight_rate=0.5, penalty_threshold=0.95
  )
  parameters = plan.methods[0].kernel.proposal.parameters
  assert parameters['num_fixed_terms'] == 3
  for given in (
    {'learning_rate': 0.1},
    {'criterion': 'l2hmc'},
    {'penalty_threshold': 0.95},
  ):
    with pytest.raises(ConfigError, match='write settings: paper'):
      _plan(**given)
  with pytest.raises(ConfigError, match='penalty_threshold or the criterion'):
    _plan(settings='paper', criterion='l2hmc', penalty_threshold=0.95)


def test_labels_tell_structure_and_settings():
  config, _ = _plan(preconditioner='diagonal', settings='paper')
  assert config.labels() == ['GSM HMC-3, diagonal, paper']


def test_hessian_products_are_counted_apart_from_gradients():
  _, plan = _plan()
  adapting, frozen = plan.methods[0].adapting_cost, plan.methods[0].frozen_cost
  assert frozen[:3] == (3, 3, 0)
  assert adapting.hessian_vector > 2 and adapting.gradient == 3
  _, plan = _plan(hessian_product='finite_difference')
  adapting = plan.methods[0].adapting_cost
  assert adapting.hessian_vector == 0 and adapting.gradient > 5


def test_a_given_metric_is_the_inverse_mass_matrix():
  factor = np.array([[2.0, 0.0], [1.0, 0.5]])
  part = tfp_kernels.fixed_preconditioner(factor)
  params = part.init(2, tf.float64, 7.0)
  np.testing.assert_array_equal(part.operator(params).to_dense(), factor)


def test_an_order_of_globals_without_their_number_is_refused():
  for preconditioner in ('arrow', 'cholesky'):
    with pytest.raises(ConfigError, match='globals_first: it belongs to num_g'):
      _plan(preconditioner=preconditioner, globals_first=True)
  _plan(preconditioner='arrow', num_globals=3, globals_first=True)


def test_the_transport_of_the_paper_is_the_only_one():
  for name in ('transport_adaptive_hmc', 'conditional_gaussian_hmc'):
    method = {'name': name, 'num_leapfrog_steps': 3, 'settings': 'paper'}
    with pytest.raises(ConfigError, match="settings: .*'default'"):
      configs.parse_config({**VALUES, 'methods': [method]})
