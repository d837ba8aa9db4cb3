"""Tables of a run: repeats joined, failures named, odd values readable."""

import io
import re

import numpy as np
import rich.console

from experiments.framework import moments
from experiments.framework import tables


def _record(label, repeat, min_ess, speed):
  spread = {'min': min_ess, 'median': 2 * min_ess, 'max': 3 * min_ess}
  return {
    'status': 'finished',
    'label': label,
    'repeat': repeat,
    'seconds': {'compile': 9.0, 'adaptation': 1.0, 'sampling': 2.0},
    'accept_rate': 0.5,
    'ess': spread,
    'ess_bulk': spread,
    'ess_tail': spread,
    'rhat_max': 1.01,
    'rhat_median': 1.002,
    'entropy_weight': 7.4,
    'min_ess_per_second': speed,
    'min_ess_per_gradient': None,
  }


def test_table_holds_means_and_deviations_over_repeats():
  failed = {'status': 'failed', 'label': 'b', 'repeat': 0, 'error': 'E: | no'}
  rows = tables.join([_record('a', 0, 10, 4), _record('a', 1, 30, 8), failed])
  assert rows[0].ess == (20, 40, 60)
  assert rows[0].seconds == 3
  np.testing.assert_allclose(rows[0].min_ess_per_second_sd, np.sqrt(8))
  text = tables.to_markdown('x', rows)
  assert (
    '| a | 3.0 | 0.500 | (20.0, 40.0, 60.0) | -, - | 6.00 (2.83), - |' in text
  )
  assert '| 1.010, 1.002 | 7.40, - | 9.0 | 2 |' in text
  assert '| b | failed |' in text
  assert r'b failed: E: \| no' in text
  assert '<td>failed</td>' in tables.to_html([('x', rows)])


def test_table_says_that_chains_stuck_apart_have_a_huge_rhat():
  stuck = {**_record('a', 0, 0, 0), 'rhat_max': 1.3e16, 'rhat_median': 7.0}
  text = tables.to_markdown('x', tables.join([stuck]))
  assert '| > 1000, 7.000 |' in text


def test_table_counts_singular_factors():
  singular = {**_record('a', 0, 1, 1), 'is_factor_singular': True}
  text = tables.to_markdown('x', tables.join([singular, singular]))
  assert '| 7.40, 2 singular |' in text
  regular = {**singular, 'is_factor_singular': False}
  regular['learned_condition_number'] = 1.5
  text = tables.to_markdown('x', tables.join([singular, regular]))
  assert '| 7.40, 1.50 (1 singular) |' in text


def test_one_repeat_of_no_finite_rhat_is_seen():
  apart = {**_record('a', 1, 30, 1), 'rhat_max': None}
  text = tables.to_markdown('x', tables.join([_record('a', 0, 10, 4), apart]))
  assert '| > 1000, 1.002 |' in text


def _on_terminal(table):
  """Returns the lines that a terminal of 80 columns shows."""
  file = io.StringIO()
  console = rich.console.Console(width=80, file=file, force_terminal=False)
  console.print(table)
  return file.getvalue().splitlines()


def _columns(lines, num_columns):
  """Returns the text of each column below the rule, without its spaces."""
  (rule,) = (i for i, line in enumerate(lines) if set(line.strip()) == {'─'})
  found = [''] * num_columns
  for line in lines[rule + 1 :]:
    label, *others = re.split(r' {2,}', line.strip(' '))
    found[0] += label.replace(' ', '')
    for index, cell in enumerate(others, start=1):
      found[index] += f'|{cell}'
  return found


def test_a_table_fits_80_columns_and_no_cell_of_it_is_cut():
  labels = ['GSM HMC-5, paper', 'gadMALAf, dense, 5000 adaptation steps, L=12']
  labels.append('x' * 90)
  records = [
    {**_record(label, 0, 123456.7, 12345.678), 'rhat_max': 1e16}
    for label in labels
  ]
  for record in records:
    record['seconds'] = {'compile': 1.0, 'adaptation': 9e5, 'sampling': 8765.4}
  lines = _on_terminal(tables.to_rich('x', tables.join(records)))
  assert max(map(len, lines)) <= 80
  assert not any('…' in line for line in lines)
  shown = _columns(lines, len(tables.CONSOLE_HEADER))
  assert shown[0] == ''.join(labels).replace(' ', '')
  cells = ['908765.4', '0.500', '123456.7', '12345.68', '> 1000', '1']
  assert shown[1:] == [f'|{cell}' * len(labels) for cell in cells]
  heads = re.split(r' {2,}', lines[1].strip())
  assert tuple(heads) == tables.CONSOLE_HEADER


def test_what_failed_is_told_below_a_table_within_80_columns():
  failed = {'status': 'failed', 'label': 'b', 'repeat': 0, 'error': 'E ' * 90}
  rows = tables.join([_record('a', 0, 10, 4), failed])
  lines = _on_terminal(tables.to_rich('x', rows))
  assert max(map(len, lines)) <= 80
  assert any(line.split() == ['b', 'failed', '0', 'of', '1'] for line in lines)
  assert f'b failed: {rows[1].error.strip()}' in ' '.join(
    ' '.join(lines).split()
  )


def test_scores_against_known_moments_fit_80_columns():
  summary = {'size': 100, 'worst_mean_z': -194.5, 'worst_deviation_z': 12.3}
  label = 'gadMALAf, dense, 5000 adaptation steps'
  record = {'label': label, 'moments': {'white_noise_shock_scale': summary}}
  lines = _on_terminal(moments.to_rich([record]))
  assert max(map(len, lines)) <= 80
  assert not any('…' in line for line in lines)
  words = ' '.join(' '.join(lines).split())
  assert 'white_noise_shock_scale -194.5 12.3' in words
  assert moments.to_rich([{'label': label}]) is None
