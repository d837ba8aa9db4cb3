"""Methods without gradients, built from configs: parts, labels, costs."""

import numpy as np
import pytest

from experiments.papers import cell
from experiments.papers import config as configs
from experiments.papers import config_study
from experiments.run.errors import ConfigError
from experiments.samplers.base import find_field

_BANANA = {'name': 'banana', 'event_size': 3, 'bend': 0.03}
_SIMULATED = {'name': 'skew_normal_abc', 'event_size': 2, 'num_simulations': 7}


def _plan(method, target=_BANANA, **values):
  config = configs.parse_config(
    {
      'name': 'x',
      'target': target,
      'methods': [method],
      'num_chains': 3,
      'num_adaptation_steps': 0,
      'num_results': 4,
      'dtype': 'float64',
      'init': {'kind': 'target_normal'},
      **values,
    }
  )
  return config, config_study.make_plan(config)


@pytest.mark.parametrize(
  'parameters, name, label',
  [
    ({}, 'kernel_exponential_family_finite', 'KMC finite'),
    (
      {'surrogate': 'lite', 'settings': 'paper'},
      'kernel_exponential_family_lite',
      'KMC lite, paper',
    ),
  ],
)
def test_either_surrogate_can_be_asked_for(parameters, name, label):
  config, plan = _plan(
    {'name': 'kernel_hamiltonian', 'num_points': 33, **parameters}
  )
  assert config.labels() == [label]
  kernel = plan.methods[0].kernel
  proposal = getattr(kernel, 'inner_kernel', kernel)
  while not hasattr(proposal, 'surrogate'):
    proposal = proposal.inner_kernel
  assert proposal.surrogate.name == name
  assert proposal.surrogate.num_points == 33


@pytest.mark.full
@pytest.mark.parametrize(
  'method', ['kernel_hamiltonian', 'kernel_adaptive_metropolis']
)
def test_exact_draws_are_known_before_the_first_step(method):
  counts = {'num_points': 40, 'history_draws': 40, 'history_seed': 3}
  if method == 'kernel_hamiltonian':
    counts['num_features'] = 20
  _, plan = _plan({'name': method, **counts})
  starts = plan.target.exact_draws_fn(3, 0)
  results = plan.methods[0].kernel.bootstrap_results(starts)
  history = find_field(results, 'history')
  np.testing.assert_array_equal(
    history.points, plan.target.exact_draws_fn(40, 3)
  )
  assert np.all(history.is_filled)
  assert find_field(results, 'num_fits') > 0


def test_draws_beforehand_need_a_target_that_has_them():
  target = {'name': 'stochastic_volatility', 'num_days': 10}
  with pytest.raises(ConfigError, match='cannot be drawn from exactly'):
    _plan(
      {'name': 'kernel_hamiltonian', 'history_draws': 10},
      target,
      init={'kind': 'normal'},
    )


@pytest.mark.parametrize(
  'parameters, message',
  [
    ({'surrogate': 'lite', 'num_features': 5}, 'leave num_features'),
    ({'fewest_leapfrog_steps': 11}, 'above most_leapfrog_steps: 10'),
  ],
)
def test_parameters_that_contradict_are_refused(parameters, message):
  with pytest.raises(ConfigError, match=message):
    _plan({'name': 'kernel_hamiltonian', **parameters})


@pytest.mark.full
@pytest.mark.parametrize('method', ['am', 'rwm', 'kernel_adaptive_metropolis'])
def test_estimates_and_simulations_of_a_run_are_recorded(method):
  config, plan = _plan(
    {'name': method}, _SIMULATED, num_adaptation_steps=2, jit_compile=False
  )
  record = cell.run_cell(
    config, 0, plan.methods[0], plan.target, 0, None, progress=False
  ).record
  assert record['calls']['sampling']['target'] == 4 * 3
  assert record['num_simulations'] == (4 + 2) * 3 * 7
  expected = record['ess']['min'] / 12
  assert record['min_ess_per_target_call'] == pytest.approx(expected)


@pytest.mark.full
def test_a_density_without_a_simulator_has_no_simulations():
  config, plan = _plan({'name': 'rwm'}, jit_compile=False)
  record = cell.run_cell(
    config, 0, plan.methods[0], plan.target, 0, None, progress=False
  ).record
  assert record['num_simulations'] is None
