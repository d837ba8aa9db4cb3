"""Cells of a panel: budgets, gates, failures, and one result for one seed.

Most samplers are stand-ins that draw exactly; what is run is the panel.
"""

import json
import shutil

import numpy as np
import pytest
import yaml

from experiments.report import panel as summary
from experiments.run import store
from experiments.run.errors import Refused
from experiments.run.study import Work
from experiments.samplers import tfp_kernels
from experiments.samplers.base import Cost
from experiments.samplers.base import Method
from experiments.samplers.windowed import Result
from experiments.studies.panel import cells
from experiments.studies.panel import config as configs

GATES = configs.DEFAULT.with_name('gates.yaml')
VALUES = {
  'name': 'small',
  'gates': 'gates.yaml',
  'references': 'reference',
  'targets': [{'name': 'Banana'}],
  'methods': [{'name': 'mala'}, {'name': 'marginal_gradient'}],
  'num_seeds': 2,
  'num_chains': 4,
  'gradients_per_chain': 2000,
  'max_draws': 5000,
  'seconds_per_pair': 60,
}


class _Exact:
  """A sampler of the banana: independent draws, `shift` added to one."""

  def __init__(self):
    self.num_runs = 0
    self.shift = 0.0
    # Function of the number of results: units of a step, or of both phases.
    self.leapfrogs = None

  def build(self):
    cost = Cost(1, 1) if self.leapfrogs is None else None
    return Method(None, cost, cost, sample_fn=self._sample)

  def _sample(self, init_state, num_results, seed, **unused):
    self.num_runs += 1
    rng = np.random.default_rng(seed)
    draws = rng.normal(size=(num_results, *init_state.shape)) * [10, 1]
    draws[..., 1] += 0.03 * (draws[..., 0] ** 2 - 100)
    draws[..., 0] += self.shift
    traces = [{}, {}]
    if self.leapfrogs is not None:
      traces = [
        {'extra': {'leapfrogs_taken': np.full([9, 4], units)}}
        for units in np.broadcast_to(self.leapfrogs(num_results), [2])
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
  monkeypatch.setattr(tfp_kernels.Mala, 'build', lambda *_: sampler.build())
  return sampler


@pytest.fixture
def start(tmp_path):
  """Returns a function that stands for a new process of one case."""
  shutil.copy(GATES, tmp_path / 'gates.yaml')
  path = tmp_path / 'panel.yaml'
  path.write_text(yaml.safe_dump(VALUES))

  def start(method='MALA'):
    study = cells.load(path)
    settings = study.settings()
    case = study.cases(settings)[f'Banana | {method}']

    def run(seed):
      record = study.run(case, seed, Work(settings, tmp_path / 'checkpoints'))
      # As a record is kept.
      text = json.dumps(store.plain(record), allow_nan=False)
      return {**json.loads(text), 'status': 'finished', 'seed': seed}

    return run

  return start


def _gradients(adaptation, sampling):
  return {'adaptation': adaptation, 'sampling': sampling}


def test_a_record_holds_what_the_page_needs(exact, start):
  record = start()(0)
  assert record['missed'] == []
  assert record['is_biased'] is False
  assert record['is_cold'] and record['is_peer']
  assert len(record['gates']) == 16
  assert record['gradients_per_chain'] == _gradients(1e3, 1e3)
  # Independent draws: as many effective ones as gradients, within 10 %.
  found = {name: metric(record) for name, metric in summary.METRICS.items()}
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


def test_a_method_that_does_not_take_the_target_is_refused(start):
  with pytest.raises(Refused, match='Gaussian prior'):
    start(method='mGrad')(0)


def test_a_biased_sampler_that_looks_converged_is_told(exact, start):
  exact.shift = 2.0
  record = start()(0)
  assert record['missed'] == []
  # 4000 draws of deviation 10: two units are 12 standard errors.
  assert 10 < record['z']['worst'] < 15
  assert record['is_biased']


def test_chains_that_disagree_miss_the_gate(exact, start):
  exact.shift = np.array([0.0, 0.0, 0.0, 30.0])
  assert 'R-hat' in start()(0)['missed']


def test_a_cost_found_by_a_pilot_sets_the_number_of_steps(exact, start):
  exact.leapfrogs = lambda count: 5.0
  run = start()
  first, second = run(0), run(1)
  assert first['pilot'] == [5.0, 5.0]
  assert first['num_results'] == second['num_results'] == 200
  assert first['gradients_per_chain'] == _gradients(1e3, 1e3)
  assert exact.num_runs == 3


@pytest.mark.parametrize(
  ('leapfrogs', 'least', 'most'),
  [
    # By the last cost alone a run would spend 1.8, then 0.4, then 6 of them.
    (lambda count: 1 + (count / 40) ** 2, 0.8, 1.25),
    # Nothing fits: fewer steps spend 0.15 at most, more of them 6 at least.
    (lambda count: 1 if count <= 150 else 40, 0.1, 0.15),
    # Draws, but not adapting steps, cost more the more of them there are.
    (lambda count: (5, 1 + (count / 40) ** 2), 0.8, 1.25),
  ],
)
def test_a_cost_that_depends_on_the_number_of_steps_is_searched(
  exact, start, leapfrogs, least, most
):
  exact.leapfrogs = leapfrogs
  record = start()(0)
  spent = record['gradients_per_chain']['sampling'] / 1000
  assert least <= spent <= most
  # The pilot, and no more runs than a seed may have.
  assert exact.num_runs == 1 + record['num_runs'] <= 1 + 6
