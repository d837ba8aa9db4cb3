"""Runs of a panel: resumed, refused, failed, stopped, never repeated.

The samplers are stand-ins that draw exactly; what is run is the panel.
"""

import json
import pathlib
import shutil

import numpy as np
import pytest
import yaml

from experiments.framework.errors import ConfigError
from experiments.panel import budget
from experiments.panel import config as configs
from experiments.panel import page
from experiments.panel import pair
from experiments.panel import run
from experiments.panel import summary
from experiments.panel.cells import CellFile
from experiments.samplers import tfp_kernels
from experiments.samplers.base import Cost
from experiments.samplers.base import Method
from experiments.samplers.windowed import Result

GATES = (
  pathlib.Path(__file__).resolve().parents[3]
  / 'configs'
  / 'inference_gym'
  / 'gates.yaml'
)
VALUES = {
  'name': 'small',
  'gates': 'gates.yaml',
  'references': 'reference',
  'targets': [{'name': 'Banana'}],
  'methods': [{'name': 'mala'}, {'name': 'rwm'}, {'name': 'marginal_gradient'}],
  'num_seeds': 2,
  'num_chains': 4,
  'gradients_per_chain': 2000,
  'max_draws': 5000,
  'seconds_per_pair': 60,
}


class _Exact:
  """A sampler of the banana: independent draws, `shift` added to one."""

  def __init__(self):
    self.num_builds = 0
    self.num_runs = 0
    self.shift = 0.0
    self.error = None
    self.leapfrogs = None
    self.num_good_runs = 1000

  def build(self, parameters, target, options):
    del parameters, target, options
    self.num_builds += 1
    cost = Cost(1, 1) if self.leapfrogs is None else None
    return Method(None, cost, cost, sample_fn=self._sample)

  def _sample(self, init_state, num_results, seed, **unused):
    self.num_runs += 1
    if self.error is not None:
      raise self.error
    rng = np.random.default_rng(seed)
    draws = rng.normal(size=(num_results, *init_state.shape)) * [10, 1]
    draws[..., 1] += 0.03 * (draws[..., 0] ** 2 - 100)
    draws[..., 0] += (
      self.shift if self.num_runs <= self.num_good_runs else np.nan
    )
    traces = [{}, {}]
    if self.leapfrogs is not None:
      if callable(self.leapfrogs):
        counted = self.leapfrogs(num_results)
      else:
        counted = np.broadcast_to(self.leapfrogs, [10])[self.num_runs - 1]
      traces = [
        {'extra': {'leapfrogs_taken': np.full([9, 4], units)}}
        for units in np.broadcast_to(counted, [2])
      ]
    return Result(
      draws.astype(np.float32),
      *traces,
      None,
      {'compile': 0.5, 'adaptation': 0.25, 'sampling': 0.25},
    )


@pytest.fixture
def exact(monkeypatch):
  sampler = _Exact()
  for cls in (tfp_kernels.Mala, tfp_kernels.RandomWalk):
    monkeypatch.setattr(
      cls, 'build', lambda self, *arguments: sampler.build(self, *arguments)
    )
  return sampler


@pytest.fixture
def start(tmp_path):
  """Returns a function that runs the panel in this process."""
  shutil.copy(GATES, tmp_path / 'gates.yaml')
  path = tmp_path / 'panel.yaml'
  path.write_text(yaml.safe_dump(VALUES))

  def start(*overrides, methods=('MALA',), redo=(), check=True):
    panel = configs.load_panel(path, overrides)
    file = CellFile(tmp_path / 'out')
    if not check:
      return panel, file

    def run_pair(target_index, method_index, seconds):
      del seconds
      pair.run_pair(panel, target_index, method_index, file, redo=redo)

    chosen = run.pairs(panel, (), methods)
    options = run.Options(path, overrides, redo=redo)
    run.run_panel(panel, file, chosen, options, lambda text: None, run_pair)
    return panel, file

  return start


def test_a_cell_holds_what_the_page_needs(exact, start):
  panel, file = start('num_seeds=1')
  (record,) = file.records()
  assert record['status'] == 'finished'
  assert record['missed'] == []
  assert record['is_biased'] is False
  assert record['is_cold']
  assert record['is_peer']
  assert record['gates'] == panel.gates_digest
  assert record['gradients_per_chain'] == {'adaptation': 1e3, 'sampling': 1e3}
  # Independent draws: as many effective ones as gradients, within 10 %.
  found = {
    name: metric(record) for name, (metric, _) in summary.METRICS.items()
  }
  assert 900 < found['min_ess_per_gradient'] < 1100
  np.testing.assert_allclose(
    found['min_ess_per_gradient_in_all'], found['min_ess_per_gradient'] / 2
  )
  np.testing.assert_allclose(
    found['min_ess_per_second'], 2 * summary.least_ess(record), rtol=1e-5
  )
  curve = record['squared_bias']
  assert curve['gradients'][0] == 1001
  assert curve['gradients'][-1] == 2000
  assert exact.num_runs == 1


def test_seeds_share_one_build_and_only_missing_cells_run(exact, start):
  start('num_seeds=3')
  # Once for its cost, once with the steps that the budget allows.
  assert (exact.num_builds, exact.num_runs) == (2, 3)
  _, file = start('num_seeds=3')
  assert exact.num_runs == 3
  lines = file.path.read_text().splitlines()
  # As a killed process leaves it: the last line cut.
  file.path.write_text('\n'.join(lines[:2]) + '\n' + lines[2][:200])
  _, file = start('num_seeds=4')
  assert exact.num_runs == 5
  assert sorted(r['seed'] for r in file.records()) == [0, 1, 2, 3]
  assert [r['is_cold'] for r in file.records()] == [True, False, True, False]


def test_what_decides_a_cell_makes_it_anew_and_the_old_one_does_not_count(
  exact, start
):
  start()
  panel, file = start('gradients_per_chain=3000')
  assert exact.num_runs == 4
  records, num_stale = page.select(panel, file)
  assert len(records) == num_stale == 2
  assert {r['num_results'] for r in records} == {1500}


def test_other_gates_refuse_to_mix(exact, start, tmp_path):
  start()
  gates = tmp_path / 'gates.yaml'
  gates.write_text(gates.read_text().replace('min_ess: 400', 'min_ess: 100'))
  with pytest.raises(ConfigError, match='other gates'):
    start()
  assert exact.num_runs == 2


def test_a_method_that_fails_is_a_row_and_others_go_on(exact, start):
  exact.error = FloatingPointError('it blew up')
  panel, file = start()
  exact.error = None
  _, file = start(methods=('RWM', 'mGrad'))
  pairs = summary.summarize(page.select(panel, file)[0])
  assert pairs['Banana', 'MALA'].outcomes['failed'] == 2
  assert 'it blew up' in pairs['Banana', 'MALA'].error
  assert pairs['Banana', 'RWM'].outcomes['passed'] == 2
  # One row says that the sampler does not take the target.
  assert pairs['Banana', 'mGrad'].outcomes['refused'] == 1
  assert 'Gaussian prior' in pairs['Banana', 'mGrad'].error
  start(redo=('failed',))
  pairs = summary.summarize(page.select(panel, file)[0])
  assert pairs['Banana', 'MALA'].outcomes['passed'] == 2


def test_a_peer_that_is_not_installed_is_tried_again(exact, start):
  exact.error = ImportError('pip install it')
  panel, file = start()
  (record,) = file.records()
  assert record['status'] == 'not installed'
  exact.error = None
  start()
  pairs = summary.summarize(page.select(panel, file)[0])
  assert pairs['Banana', 'MALA'].outcomes['passed'] == 2
  assert pairs['Banana', 'MALA'].num_runs == 2


def test_draws_that_are_not_finite_are_a_failure(exact, start):
  exact.shift = np.nan
  _, file = start('num_seeds=1')
  (record,) = file.records()
  assert record['status'] == 'failed'


def test_a_biased_sampler_that_looks_converged_is_told(exact, start):
  exact.shift = 2.0
  panel, file = start('num_seeds=1')
  (record,) = file.records()
  assert record['missed'] == []
  # 4000 draws of deviation 10: two units are 12 standard errors.
  assert 10 < record['z']['worst'] < 15
  assert record['is_biased']
  assert summary.outcome(record) == 'biased'


def test_a_cost_found_by_a_pilot_sets_the_number_of_steps(exact, start):
  exact.leapfrogs = 5.0
  _, file = start('num_seeds=2')
  first, second = file.records()
  assert first['pilot'] == [5.0, 5.0]
  assert first['num_results'] == second['num_results'] == 200
  assert first['gradients_per_chain'] == {'adaptation': 1e3, 'sampling': 1e3}
  # The pilot and two cells; a new process takes the pilot's word from them.
  assert exact.num_runs == 3
  start('num_seeds=3')
  assert exact.num_runs == 4


@pytest.mark.full
def test_a_run_spends_the_gradients_of_its_target(start):
  _, file = start('gradients_of_target.Banana=800', 'num_seeds=1')
  (record,) = file.records()
  assert record['gradients_per_chain'] == {'adaptation': 400, 'sampling': 400}


def test_a_cost_that_changes_after_the_pilot_is_corrected_once(exact, start):
  # In the pilot 5 a step, then 10.
  exact.leapfrogs = [5.0] + [10.0] * 9
  _, file = start('num_seeds=2')
  first, second = file.records()
  assert first['counts'] == second['counts'] == [100, 100]
  assert first['gradients_per_chain'] == {'adaptation': 1e3, 'sampling': 1e3}
  # The pilot, a run that spent twice the budget, and the two that count.
  assert exact.num_runs == 4


@pytest.mark.parametrize(
  ('leapfrogs', 'least', 'most'),
  [
    # By the last cost alone a run would spend 1.8, then 0.4, then 6 of them.
    (lambda count: 1 + (count / 40) ** 2, 0.8, 1.25),
    # Nothing fits: fewer steps spend 0.15 at most, more of them 6 at least.
    (lambda count: 1 if count <= 150 else 40, 0.1, 0.15),
    # Only draws, not adapting steps, cost more the more of them there are.
    (lambda count: (5, 1 + (count / 40) ** 2), 0.8, 1.25),
  ],
)
def test_a_cost_that_depends_on_the_number_of_steps_is_searched(
  exact, start, leapfrogs, least, most
):
  exact.leapfrogs = leapfrogs
  _, file = start('num_seeds=1')
  (record,) = file.records()
  spent = record['gradients_per_chain']['sampling'] / 1000
  assert least <= spent <= most
  # The pilot, and no more runs than a seed may have.
  assert exact.num_runs == 1 + record['num_runs'] <= 1 + 6


def test_a_later_seed_that_spends_far_less_is_run_again(exact, start):
  # 25 in the pilot and the first seed, then 1: the second would spend a 25th.
  exact.leapfrogs = [25.0, 25.0] + [1.0] * 8
  _, file = start('num_seeds=2')
  first, second = file.records()
  assert first['counts'] == [40, 40]
  assert second['counts'] == [1000, 1000]
  assert second['gradients_per_chain'] == {'adaptation': 1e3, 'sampling': 1e3}


def test_a_pair_that_was_interrupted_ends_as_one_that_was_not(exact, start):
  # The pilot, two runs of seed 0; 50 a step in seed 1, which is run again.
  costs = [5.0, 10.0, 10.0, 50.0, 10.0]
  exact.leapfrogs = costs + [10.0] * 5
  _, file = start('num_seeds=3')
  whole = [record['counts'] for record in file.records()]
  assert whole[0] == whole[2] == [100, 100] != whole[1]
  first, second, _ = file.path.read_text().splitlines(keepends=True)
  file.path.write_text(first + second)
  exact.leapfrogs = 10.0
  _, file = start('num_seeds=3')
  assert [record['counts'] for record in file.records()] == whole


def test_a_run_that_fails_on_the_way_to_the_budget_is_a_failure(exact, start):
  exact.leapfrogs = [5.0] + [10.0] * 9
  exact.num_good_runs = 2
  _, file = start('num_seeds=1')
  (record,) = file.records()
  assert record['status'] == 'failed'


def test_draws_are_thinned_where_the_method_can(start):
  panel, _ = start('max_draws=300', check=False)
  assert budget.thinned(panel.config, (40, 1000), True) == (40, 250, 4)
  assert budget.thinned(panel.config, (40, 1000), False) == (40, 1000, 1)
  config = panel.pair_config(0, 0, (40, 250, 4))
  assert config.num_results * (config.num_steps_between_results + 1) == 1000


def test_a_pair_that_ends_early_leaves_a_row_for_each_seed(start):
  panel, file = start(check=False)
  chosen = run.pairs(panel, (), ('MALA',))
  ended = ('out of time', 'stopped after 60 s.')
  options = run.Options('none')
  run.run_panel(
    panel, file, chosen, options, lambda text: None, lambda *_: ended
  )
  assert [r['status'] for r in file.records()] == ['out of time'] * 2
  assert {r['error'] for r in file.records()} == {ended[1]}


def test_a_second_try_says_how_long_it_was_given(exact, start):
  panel, file = start(check=False)
  chosen = run.pairs(panel, (), ('MALA',))

  def try_it(seconds, reached):
    def run_pair(*_):
      if reached:
        pair.run_pair(panel, *chosen[0], file, redo=('out of time',))
      return 'out of time', f'stopped after {seconds} s.'

    options = run.Options('none', redo=('out of time',))
    run.run_panel(panel, file, chosen, options, lambda text: None, run_pair)
    return [(r['status'], r.get('error')) for r in file.records()]

  assert try_it(60, False) == [('out of time', 'stopped after 60 s.')] * 2
  assert try_it(90, False) == [('out of time', 'stopped after 90 s.')] * 2
  # What came to its end before the process was stopped stays.
  assert try_it(120, True) == [('finished', None)] * 2


def test_the_process_of_a_pair_is_stopped_in_time(start, tmp_path):
  panel, file = start('seconds_per_pair=0.2', check=False)
  options = run.Options(
    tmp_path / 'panel.yaml',
    ('seconds_per_pair=0.2',),
    data_dir='x',
    redo=('y',),
  )
  command = run.pair_command(options, file.folder, 'Banana', 'MALA')
  assert command[3:8] == [
    'panel', 'pair', str(tmp_path / 'panel.yaml'), 'Banana', 'MALA'
  ]  # fmt: skip
  said = []
  chosen = run.pairs(panel, (), ('MALA',))
  run.run_panel(panel, file, chosen, options, said.append)
  assert [r['status'] for r in file.records()] == ['out of time'] * 2
  assert any('stopped after 0.2 s' in text for text in said)


@pytest.mark.full
def test_a_pair_in_its_own_process_runs_for_real(start, tmp_path):
  overrides = ('num_seeds=2', 'gradients_per_chain=200')
  panel, file = start(*overrides, check=False)
  options = run.Options(tmp_path / 'panel.yaml', overrides)
  run.run_panel(
    panel, file, run.pairs(panel, (), ('RWM',)), options, lambda text: None
  )
  cold, warm = file.records()
  assert (cold['status'], warm['status']) == ('finished', 'finished')
  # One program for both seeds.
  assert cold['seconds']['compile'] > 10 * warm['seconds']['compile']
  assert json.loads(file.path.read_text().splitlines()[0])['calls'] == {
    'adaptation': {'target': 400, 'gradient': 0, 'hessian_vector': 0},
    'sampling': {'target': 400, 'gradient': 0, 'hessian_vector': 0},
  }
