"""One judge and one clock for samplers here and in other interpreters."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from experiments.samplers import on_models
from experiments.samplers import theirs

_MOST_ERRORS = 4.0  # Standard errors.


def _outcome():
  draws = np.exp(np.random.RandomState(0).normal(size=[200, 8, 4]))
  states = {'weights': draws[..., :2], 'spread': draws[..., 2]}
  trace = {
    'target_log_prob': draws[..., 0],
    'diverging': np.zeros([200, 8], bool),
  }
  return on_models.Outcome(states, trace, 1234.0, cost={'seconds': 2.0})


def test_what_is_recorded_is_judged_by_the_gates():
  outcome = _outcome()
  spread = outcome.states['spread']
  row = on_models.record(outcome, {'spread': np.exp(0.5)})
  assert row['converged'] and row['seconds'] == 2.0
  error, name = row['worst_error']
  assert name == 'spread' and abs(error) < _MOST_ERRORS
  mean, deviation = row['means']['spread']
  assert mean == pytest.approx(spread.mean())
  # Draws are independent: the deviation over the root of their number.
  expected = spread.std() / np.sqrt(200 * 8)
  assert deviation == pytest.approx(expected, rel=0.25)
  assert list(row['means']) == ['weights[0]', 'weights[1]', 'spread']
  for part in outcome.states.values():
    part[:, 0] += 1.0
  apart = on_models.record(outcome)
  assert not apart['converged'] and 'failed: R-hat' in apart['verdict']
  assert apart['worst_error'] is None
  json.dumps([row, apart])


@pytest.mark.skipif(
  importlib.util.find_spec('pymc') is not None,
  reason='PyMC is installed: the script would not fail at its imports',
)
def test_a_process_that_fails_is_an_error_with_its_last_words():
  with pytest.raises(RuntimeError, match="No module named 'pymc'"):
    on_models.run_theirs('PyMC', 'model.py', {}, 0, sys.executable)


_FAKE_STAN = """
import numpy as np

class Fit:
  sample_and_sampler_param_names = ('lp__', 'n_leapfrog__', 'divergent__')
  constrained_param_names = ('a', 'b.1')

  def __init__(self, num_warmup, num_samples, num_chains):
    size = num_warmup + num_samples, num_chains
    noise = np.random.default_rng(0).normal(size=(2, *size))
    drawn = np.array([1.0, -5.0])[:, None, None] + noise
    taken = np.full((1, *size), 7.0)
    taken[:, :num_warmup] = 9.0
    # All of the warm-up diverges, and no draw does.
    self._draws = np.concatenate([taken, taken, taken > 8.0, drawn])

class Model:
  def sample(self, num_chains, num_samples, num_warmup, save_warmup):
    assert save_warmup
    return Fit(num_warmup, num_samples, num_chains)

def build(program, data, random_seed):
  assert program == 'model {}' and data == {'x': [1.5, 2.0]}, (program, data)
  assert random_seed == 3
  return Model()
"""


def fake_stan(folder: pathlib.Path) -> str:
  """Returns the path of an interpreter whose Stan draws standard normals."""
  packages = folder / 'packages'
  metadata = packages / 'pystan-3.dist-info' / 'METADATA'
  metadata.parent.mkdir(parents=True)
  metadata.write_text('Metadata-Version: 2.1\nName: pystan\nVersion: 3\n')
  (packages / 'stan.py').write_text(_FAKE_STAN)
  python = folder / 'python'
  python.write_text(
    f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" "$@"\n'
  )
  python.chmod(0o755)
  return str(python)


def test_a_run_of_another_interpreter_counts_draws_gradients_and_seconds(
  tmp_path,
):
  program = tmp_path / 'model.stan'
  program.write_text('model {}')
  data = {'x': np.array([1.5, 2.0])}
  # Stan takes positive seeds only: it gets one more.
  outcome = on_models.run_theirs('Stan', program, data, 2, fake_stan(tmp_path))
  assert {k: x.shape for k, x in outcome.states.items()} == {
    'a': (1000, 8),
    'b[1]': (1000, 8),
  }
  assert abs(outcome.states['b[1]'].mean() + 5.0) < _MOST_ERRORS / 8000**0.5
  assert outcome.num_warmup_gradients == 9.0 * 1000
  assert outcome.num_gradients == 16.0 * 1000
  assert outcome.trace['diverging'].sum() == 0
  assert outcome.more['versions']['pystan'] == '3'
  cost = outcome.cost
  assert 0.0 <= outcome.more['compile_cpu_seconds'] <= cost['cpu_seconds']
  assert 0.0 < cost['seconds'] < 60.0 and cost['peak_bytes'] > 1e6


def test_the_clock_counts_children_that_have_ended():
  clock = theirs.Clock()
  work = 'sum(i * i for i in range(3_000_000))'
  subprocess.run([sys.executable, '-S', '-c', work], check=True)
  alone = theirs.Clock().read()
  assert clock.read()['cpu_seconds'] > 0.05
  assert alone['cpu_seconds'] < 0.05
