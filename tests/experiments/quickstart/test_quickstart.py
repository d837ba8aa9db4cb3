"""The quickstart: its posteriors, its table, its files and its record."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import typer.testing

from experiments.__main__ import app
from experiments.framework.json_files import read_lines
from experiments.quickstart import models
from experiments.quickstart import run as run_lib
from experiments.quickstart import tables

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_RECORD = _ROOT / 'docs' / 'results' / 'quickstart' / 'runs.jsonl'
_OWN = 'sample_posterior'
_MOST_ERRORS = 4.0  # Standard errors.
# Of the largest of 100 weights: 4 is exceeded once in 160 tries, 5 in 17,000.
_MOST_ERRORS_OF_WEIGHTS = 5.0


def _row(sampler, converged, size=500.0, seconds=10.0, posterior='schools'):
  failed = '' if converged else '\nfailed: R-hat is 1.5 in spread, above 1.01'
  return {
    'posterior': posterior,
    'sampler': sampler,
    'seed': 0,
    'converged': converged,
    'verdict': f'R-hat at most 1.5 (spread){failed}',
    'found': '',
    'ess_bulk': size,
    'ess_tail': 2.0 * size,
    'num_gradients': 1e6,
    'seconds': seconds,
    'cpu_seconds': seconds,
    'means': {},
    'worst_error': [-0.5, 'spread'],
  }


def _outcome(names=('weights[0]', 'weights[1]', 'spread', 'effect[0]')):
  draws = np.exp(np.random.RandomState(0).normal(size=[200, 8, len(names)]))
  trace = {
    'target_log_prob': draws[..., 0],
    'diverging': np.zeros([200, 8], bool),
  }
  return run_lib.Outcome(list(names), draws, trace, 1234.0, 'a matrix', 2.0)


def _of_an_exchange():
  """Returns an outcome of replicas, whose trace tells of no divergence."""
  outcome = _outcome()
  del outcome.trace['diverging']
  return outcome


def _first_cells(text):
  lines = text.splitlines()[2:]
  return [line.split() for line in lines[: lines.index('')]]


def test_rows_that_have_not_converged_have_no_rate_and_come_last():
  fast = _row('fast', False, size=399.0, seconds=0.1)
  rows = [fast, _row('slow', True, seconds=100.0), _row('good', True)]
  cells = _first_cells(tables.to_text(rows))
  assert [line[1] for line in cells] == ['good', 'slow', 'fast']
  assert [line[-1] for line in cells] == ['50.0', '5.0', '-']
  assert cells[2][2:4] == ['NOT', 'CONVERGED']
  # Were it converged, it would be first.
  other = [{**fast, 'converged': True}, *rows[1:]]
  cells = _first_cells(tables.to_text(other))
  assert [line[1] for line in cells] == ['fast', 'good', 'slow']


def test_posteriors_keep_their_order_and_are_not_ranked_with_each_other():
  rows = [_row('a', True, 1.0, posterior='hard'), _row('b', True)]
  shown = tables.ranked(rows)
  assert [row['posterior'] for row in shown] == ['hard', 'schools']


def test_the_smaller_of_bulk_and_tail_counts():
  row = {**_row('a', True), 'ess_tail': 420.0}
  assert _first_cells(tables.to_text([row]))[0][3] == '420'
  # A chain that never moved has neither.
  row = {**_row('a', False), 'ess_bulk': None, 'ess_tail': None}
  assert _first_cells(tables.to_text([row]))[0][4] == '0'


def test_the_text_is_at_most_80_columns_wide():
  rows = [
    _row(sampler, converged, 12345.0, 1234.0, posterior)
    for posterior in models.MODELS
    for sampler, converged in zip(run_lib.SAMPLERS, (True, False))
  ]
  rows[0]['verdict'] += ' and so on' * 20
  assert max(map(len, tables.to_text(rows).splitlines())) <= 80
  # A name can be too long: the limit has been looked at.
  rows[0]['sampler'] *= 4
  assert max(map(len, tables.to_text(rows).splitlines())) > 80


def test_the_page_needs_no_other_file_and_escapes_what_it_shows():
  page = tables.to_html([_row('<b>', True)], {'Pairs': b'\x89PNG'})
  assert '&lt;b&gt;' in page and '<b>' not in page
  assert page.count('src="data:image/png;base64,') == page.count('src=') == 1
  assert 'http' not in page


@pytest.mark.parametrize(
  'html, outcome',
  [(False, _outcome), (True, _outcome), (True, _of_an_exchange)],
)
def test_the_command_writes_what_it_names(monkeypatch, tmp_path, html, outcome):
  monkeypatch.setattr(run_lib, 'run', lambda *args, **kwargs: outcome())
  monkeypatch.setitem(
    models.MODELS, 'eight schools', models.MODELS['eight schools']._replace(
      exact_means=lambda: {'spread': 100.0}
    )
  )  # fmt: skip
  arguments = ['quickstart', '--seed', '3', '--output', str(tmp_path)]
  result = typer.testing.CliRunner().invoke(
    app, arguments + ['--html'] * html, catch_exceptions=False
  )
  assert result.exit_code == 0
  files = {'runs.jsonl', 'traces.png', 'pairs.png'}
  files |= {'report.html'} if html else set()
  assert {path.name for path in tmp_path.iterdir()} == files
  for name in files:
    assert str(tmp_path / name) in result.output
  rows = read_lines(tmp_path / 'runs.jsonl')
  assert [(r['posterior'], r['sampler']) for r in rows] == [
    (posterior, sampler)
    for posterior in models.MODELS
    for sampler in run_lib.SAMPLERS
  ]
  assert {r['seed'] for r in rows} == {3}
  assert tables.to_text(rows) in result.output
  assert [r['worst_error'] is None for r in rows] == [True, True, False, False]


def test_a_folder_that_cannot_be_written_is_refused_before_any_run(tmp_path):
  file = tmp_path / 'file'
  file.write_text('')
  result = typer.testing.CliRunner().invoke(
    app, ['quickstart', '--output', str(file)]
  )
  assert result.exit_code == 2
  assert '--output' in result.output


def test_what_is_recorded_is_judged_by_the_gates():
  outcome = _outcome()
  row = run_lib.record('p', _OWN, 0, outcome, {'spread': np.exp(0.5)})
  assert row['converged']
  error, name = row['worst_error']
  assert name == 'spread' and abs(error) < _MOST_ERRORS
  mean, deviation = row['means']['spread']
  assert mean == pytest.approx(outcome.values[..., 2].mean())
  # Independent draws: the deviation over the root of their number.
  expected = outcome.values[..., 2].std() / np.sqrt(200 * 8)
  assert deviation == pytest.approx(expected, rel=0.25)
  outcome.values[:, 0] += 1.0
  apart = run_lib.record('p', _OWN, 0, outcome, {})
  assert not apart['converged'] and 'failed: R-hat' in apart['verdict']
  assert apart['worst_error'] is None
  json.dumps([row, apart])


def test_exact_means_of_schools_are_those_of_weighted_prior_draws():
  random = np.random.RandomState(0)
  size = 1_000_000
  spread = np.abs(5.0 * random.standard_cauchy(size))
  mean = 5.0 * random.normal(size=size)
  log_weights = np.zeros(size)
  draws = {'mean': mean, 'spread': spread}
  for j in range(8):
    effect = mean + spread * random.normal(size=size)
    gap = (models._EFFECTS[j] - effect) / models._ERRORS[j]
    log_weights -= 0.5 * gap**2
    draws[f'effect[{j}]'] = effect
  weights = np.exp(log_weights - log_weights.max())
  weights /= weights.sum()
  exact = models.exact_means_of_schools()
  assert set(exact) == set(draws)
  for name, values in draws.items():
    found = weights @ values
    error = np.sqrt(np.sum((weights * (values - found)) ** 2))
    assert abs(found - exact[name]) < _MOST_ERRORS * error, name
    # As far as the prior is, it would be seen.
    assert abs(np.median(values) - exact[name]) > 8.0 * error, name


def test_data_of_the_regression_are_always_the_same():
  features, labels = models.data_of_regression()
  assert features.shape == (1000, 100)
  neighbors = np.corrcoef(features[:, 40], features[:, 41])[0, 1]
  # Its standard error is (1 - 0.9^2) / sqrt(1000) = 0.006.
  assert abs(neighbors - 0.9) < 0.025
  assert labels.sum() == 487.0
  np.testing.assert_allclose(features[0, :2], [1.764052, 1.762073], rtol=1e-5)


def _committed():
  rows = read_lines(_RECORD)
  return {(row['posterior'], row['sampler']): row for row in rows}


def _gap(row, other):
  """Returns the largest difference of means in combined standard errors."""
  gaps = [
    (row['means'][name][0] - mean)
    / np.hypot(row['means'][name][1], error)
    for name, (mean, error) in other['means'].items()
  ]  # fmt: skip
  return np.max(np.abs(gaps))


def test_both_samplers_of_the_record_find_the_same_weights():
  rows = _committed()
  own, nuts = rows['regression', _OWN], rows['regression', run_lib.NUTS]
  assert own['converged'] and nuts['converged']
  assert _gap(own, nuts) < _MOST_ERRORS_OF_WEIGHTS
  mean, error = own['means']['weights[7]']
  own['means']['weights[7]'] = [mean + 10.0 * error, error]
  assert _gap(own, nuts) > _MOST_ERRORS_OF_WEIGHTS


def test_the_record_has_every_posterior_and_sampler():
  rows = _committed()
  assert list(rows) == [
    (posterior, sampler)
    for posterior in models.MODELS
    for sampler in run_lib.SAMPLERS
  ]
  for (posterior, _), row in rows.items():
    exact = models.MODELS[posterior].exact_means()
    found = run_lib.worst_error(row['means'], exact)
    assert (row['worst_error'] is None) == (found is None)
    assert not found or found[0] == pytest.approx(row['worst_error'][0])


# Compiles a sampler of a hundred coordinates.
@pytest.mark.full
def test_weights_agree_with_the_record():
  model = models.MODELS['regression'].make()
  outcome = run_lib.run(_OWN, model, seed=0)
  row = run_lib.record('regression', _OWN, 0, outcome, {})
  assert row['converged'] and outcome.seconds > 0.0
  for sampler in run_lib.SAMPLERS:
    committed = _committed()['regression', sampler]
    # The same seed may give the same draws.
    assert _gap(row, committed) < _MOST_ERRORS_OF_WEIGHTS


# The whole command, five minutes: XLA compiles all that a user waits for.
@pytest.mark.nightly
def test_the_command_agrees_with_the_record_and_is_all_that_is_said(tmp_path):
  variables = {**os.environ, 'PYTHONPATH': str(_ROOT)}
  variables.pop('TF_CPP_MIN_LOG_LEVEL', None)
  result = subprocess.run(
    [sys.executable, '-m', 'experiments', 'quickstart', '--output', tmp_path],
    env=variables,
    capture_output=True,
    text=True,
    check=True,
  )
  rows = read_lines(tmp_path / 'runs.jsonl')
  assert result.stderr == ''
  assert tables.to_text(rows) in result.stdout
  for row in rows:
    committed = _committed()[row['posterior'], row['sampler']]
    if row['converged'] and committed['converged']:
      assert _gap(row, committed) < _MOST_ERRORS_OF_WEIGHTS
