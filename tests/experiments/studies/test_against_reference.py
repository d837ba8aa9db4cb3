"""Distances of kept states from exact draws, and who may be compared."""

import numpy as np
import pytest

from experiments.framework import config as configs
from experiments.framework import runner
from experiments.framework import storage
from experiments.studies import against_reference


def test_ks_counts_independent_draws_only():
  rng = np.random.default_rng(0)
  exact = rng.normal(size=20000)
  draws = rng.normal(size=(500, 2))
  distance, p_value = against_reference.kolmogorov_smirnov(draws, exact)
  assert distance < 0.06 and p_value > 0.01
  # The same draws, each ten times over, are no more evidence.
  repeated = np.repeat(draws, 10, axis=0) + 0.04
  _, kept = against_reference.kolmogorov_smirnov(repeated, exact)
  assert kept > 0.01
  _, off = against_reference.kolmogorov_smirnov(draws + 0.3, exact)
  assert off < 1e-6


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  config = configs.parse_config(
    {
      'name': 'x',
      'target': {'name': 'skew_normal_abc', 'event_size': 2},
      'methods': [{'name': 'rwm'}],
      'num_chains': 2,
      'num_adaptation_steps': 8,
      'num_results': 600,
      'jit_compile': False,
      'dtype': 'float64',
      'init': {'kind': 'suggested'},
      'save_draws': False,
      'keep_states': True,
    }
  )
  path = tmp_path_factory.mktemp('runs') / 'run'
  folder = storage.RunFolder.create(path, config)
  plan = runner.make_plan(config)
  runner.run_plan(plan, folder, _Silent(), progress=False)
  return folder


class _Silent:
  def print(self, *args, **kwargs):
    pass


def test_all_steps_are_kept_and_adapting_ones_told_apart(run):
  states = run.read_arrays(0, 'RWM', 0)['states']
  assert states.shape == (608, 2, 2)
  reference = against_reference.reference_states(run)
  np.testing.assert_array_equal(reference, states[8:].reshape(-1, 2))


def test_a_run_is_compared_with_exact_draws_or_with_another(run):
  (row,) = against_reference.compare(run)
  assert row['num_calls'] == 608 * 2
  assert row['num_simulations'] == 608 * 2 * 100
  expected = row['min_ess'] / (600 * 2)
  assert row['min_ess_per_call'] == pytest.approx(expected)
  assert set(row['mmd']) == {500}
  # Of a reference that is far from them, no draw is right.
  far = against_reference.reference_states(run) + 5.0
  (other,) = against_reference.compare(run, far, first=100)
  assert other['mmd'][500] > 5 * row['mmd'][500]
  assert other['ks_first'][0] > 0.8 > row['ks_first'][0]
  table = against_reference.to_markdown([row])
  assert '| RWM |' in table and 'MMD at 500' in table


@pytest.mark.full
def test_a_target_without_exact_draws_needs_a_reference(tmp_path):
  config = configs.parse_config(
    {
      'name': 'x',
      'target': {'name': 'stochastic_volatility', 'num_days': 5},
      'methods': [{'name': 'rwm'}],
      'num_adaptation_steps': 0,
      'num_results': 4,
    }
  )
  folder = storage.RunFolder.create(tmp_path / 'run', config)
  with pytest.raises(ValueError, match='name a reference'):
    against_reference.compare(folder)
