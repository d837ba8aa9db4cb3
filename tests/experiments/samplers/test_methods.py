"""Methods built from configs: parts, labels, costs, refusals."""

import numpy as np
import pytest
import tensorflow as tf

from experiments.papers import cell
from experiments.samplers import tfp_kernels
from experiments.samplers.base import find_field
from tests.experiments.samplers.building import built

_VOLATILITY = {'name': 'stochastic_volatility', 'num_days': 10}
_BANANA = {'name': 'banana', 'event_size': 3, 'bend': 0.03}
_SIMULATED = {'name': 'skew_normal_abc', 'event_size': 2, 'num_simulations': 7}


def _entropy(**method):
  """Returns the config and the entropy-adapted HMC of some parameters."""
  method = {'name': 'entropy_adaptive_hmc', 'num_leapfrog_steps': 3, **method}
  config, _, (method,) = built([method], _VOLATILITY)
  return config, method


def _gradient_free(method, target=_BANANA, **values):
  """Returns config, target and method of a sampler without gradients."""
  values = {
    'num_chains': 3,
    'num_adaptation_steps': 0,
    'num_results': 4,
  } | values
  config, target, (method,) = built(
    [method], target, dtype='float64', init={'kind': 'target_normal'}, **values
  )
  return config, target, method


def _innermost(kernel, name):
  while not hasattr(kernel, name):
    kernel = kernel.inner_kernel
  return kernel


def test_constants_of_the_paper_are_for_its_settings_and_its_criterion():
  config, method = _entropy(
    settings='paper', criterion='l2hmc', learning_rate=0.05
  )
  assert config.labels() == ['L2HMC HMC-3, paper']
  assert method.kernel.criterion.name == 'l2hmc'
  _, method = _entropy(
    settings='paper', entropy_weight_rate=0.5, penalty_threshold=0.95
  )
  assert method.kernel.proposal.parameters['num_fixed_terms'] == 3
  for given in (
    {'learning_rate': 0.1},
    {'criterion': 'l2hmc'},
    {'penalty_threshold': 0.95},
  ):
    with pytest.raises(ValueError, match='Write settings: paper'):
      _entropy(**given)
  with pytest.raises(ValueError, match='penalty_threshold or the criterion'):
    _entropy(settings='paper', criterion='l2hmc', penalty_threshold=0.95)


def test_a_given_metric_is_the_inverse_mass_matrix():
  factor = np.array([[2.0, 0.0], [1.0, 0.5]])
  part = tfp_kernels.fixed_preconditioner(factor)
  params = part.init(2, tf.float64, 7.0)
  np.testing.assert_array_equal(part.operator(params).to_dense(), factor)


def test_exact_draws_are_known_before_the_first_step():
  counts = {'num_points': 40, 'history_draws': 40}
  lite = {'name': 'kernel_hamiltonian', 'surrogate': 'lite'}
  config, _, method = _gradient_free({**lite, 'settings': 'paper', **counts})
  assert config.labels() == ['KMC lite, paper']
  proposal = _innermost(method.kernel, 'surrogate')
  assert proposal.surrogate.name == 'kernel_exponential_family_lite'
  assert proposal.surrogate.num_points == 40
  _, target, method = _gradient_free(
    {'name': 'kernel_adaptive_metropolis', **counts}
  )
  starts = target.exact_draws_fn(3, 1)
  results = method.kernel.bootstrap_results(starts)
  history = find_field(results, 'history')
  np.testing.assert_array_equal(history.points, target.exact_draws_fn(40, 0))
  assert np.all(history.is_filled)
  assert find_field(results, 'num_fits') > 0


@pytest.mark.full
def test_estimates_and_simulations_of_a_run_are_recorded():
  config, target, method = _gradient_free(
    {'name': 'rwm'}, _SIMULATED, num_adaptation_steps=2, jit_compile=False
  )
  record = cell.run_cell(config, 0, method, target, 0, None, False).record
  assert record['calls']['sampling']['target'] == 4 * 3
  assert record['num_simulations'] == (4 + 2) * 3 * 7
  expected = record['ess']['min'] / 12
  assert record['min_ess_per_target_call'] == pytest.approx(expected)
