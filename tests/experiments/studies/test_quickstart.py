"""The quickstart: its table, its figures, and the whole command."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from experiments.run import store
from experiments.studies import quickstart

_ROOT = pathlib.Path(__file__).resolve().parents[3]
# For the largest of 100 weights: 4 is exceeded once in 160 tries, 5 in 17,000.
_MOST_ERRORS_OF_WEIGHTS = 5.0


def _row(sampler, converged, size=500.0, seconds=10.0, posterior='schools'):
  failed = '' if converged else '\nfailed: R-hat is 1.5 in spread, above 1.01'
  return {
    'posterior': posterior,
    'sampler': sampler,
    'converged': converged,
    'verdict': f'R-hat at most 1.5 (spread){failed}',
    'found': '',
    'ess_bulk': size,
    'ess_tail': 2.0 * size,
    'num_gradients': 1e6,
    'seconds': seconds,
    'worst_error': [-0.5, 'spread'],
  }


def _first_cells(text):
  lines = text.splitlines()[2:]
  return [line.split() for line in lines[: lines.index('')]]


def test_rows_that_have_not_converged_have_no_rate_and_come_last():
  fast = _row('fast', False, size=399.0, seconds=0.1)
  rows = [fast, _row('slow', True, seconds=100.0), _row('good', True)]
  cells = _first_cells(quickstart.to_text(rows))
  assert [line[1] for line in cells] == ['good', 'slow', 'fast']
  assert [line[-1] for line in cells] == ['50.0', '5.0', '-']
  assert cells[2][2:4] == ['NOT', 'CONVERGED']
  # Were it converged, it would be first.
  other = [{**fast, 'converged': True}, *rows[1:]]
  cells = _first_cells(quickstart.to_text(other))
  assert [line[1] for line in cells] == ['fast', 'good', 'slow']


# The whole command, five minutes: XLA compiles all that a user waits for.
@pytest.mark.nightly
def test_the_command_finds_the_means_and_says_nothing_else(tmp_path):
  variables = {**os.environ, 'PYTHONPATH': str(_ROOT)}
  variables.pop('TF_CPP_MIN_LOG_LEVEL', None)
  command = [sys.executable, '-m', 'experiments', 'run', 'quickstart']
  result = subprocess.run(
    [*command, '--output', tmp_path],
    env=variables,
    capture_output=True,
    text=True,
    check=True,
  )
  records = store.read(tmp_path)
  assert result.stderr == ''
  text = quickstart.STUDY.render(records)[len('```text\n') : -len('```\n')]
  assert text in result.stdout
  rows = {r.case: r.record for r in records}
  own = rows['regression | sample_posterior']
  nuts = rows['regression | NUTS, windowed']
  assert own['converged'] and nuts['converged']
  assert _gap(own, nuts) < _MOST_ERRORS_OF_WEIGHTS
  schools = rows['eight schools | sample_posterior']
  assert schools['converged'] and abs(schools['worst_error'][0]) < 4.0


def _gap(row, other):
  """Returns the largest difference of means in combined standard errors."""
  gaps = [
    (row['means'][name][0] - mean) / np.hypot(row['means'][name][1], error)
    for name, (mean, error) in other['means'].items()
  ]
  return np.max(np.abs(gaps))
