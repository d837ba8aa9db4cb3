"""Methods built from configs: parts, labels, costs, refusals."""

import numpy as np
import pytest

from experiments.papers import cell
from experiments.papers import config as configs
from experiments.papers import shrinkage
from experiments.samplers.base import BuildOptions
from experiments.samplers.base import find_field
from experiments.targets.base import BuildContext

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


# Methods as a config asks for them, built without a run.


def built(methods, target, **values):
  """Returns the config of these dicts, its target and its methods."""
  config = configs.parse_config(
    {
      'name': 'x',
      'target': target,
      'methods': methods,
      'num_chains': 2,
      'num_adaptation_steps': 40,
      'num_results': 20,
      **values,
    }
  )
  target = config.target.build(BuildContext(config.dtype))
  found = []
  for index, method in enumerate(config.methods):
    method.check_target(target)
    steps = method.num_adaptation_steps
    if steps is None:
      steps = config.num_adaptation_steps
    options = BuildOptions(steps, config.num_chains, config.jit_compile)
    found.append(config.methods[index].build(target, options))
  return config, target, found


# Methods of latent Gaussian models: built, refused, counted, measured.


@pytest.fixture(scope='module')
def ran():
  """Results of a small regression whose posterior is known."""
  config, target, methods = built(
    [{'name': 'marginal_gradient'}, {'name': 'elliptical_slice'}],
    {'name': 'gp_regression', 'num_points': 12, 'noise_variance': 0.1},
    dtype='float64',
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
