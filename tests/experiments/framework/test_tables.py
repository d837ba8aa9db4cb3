"""Tables of a run: repeats joined, failures named, odd values readable."""

import numpy as np

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


def test_times_of_a_continued_cell_are_left_out():
  continued = {**_record('a', 1, 30, None), 'is_continued': True}
  continued['seconds'] = {'compile': 1.0, 'adaptation': 0.0, 'sampling': 0.1}
  rows = tables.join([_record('a', 0, 10, 4), continued])
  assert rows[0].ess[0] == 20
  assert rows[0].seconds == 3
  assert rows[0].min_ess_per_second == 4
