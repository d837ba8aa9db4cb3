"""Tables of a run: repeats joined, failures named, odd values readable."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from experiments.papers import figures
from experiments.papers import sweeps
from experiments.papers import tables
from experiments.run.store import Record


def _record(label, seed, min_ess, speed, **changes):
  spread = {'min': min_ess, 'median': 2 * min_ess, 'max': 3 * min_ess}
  record = {
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
    **changes,
  }
  return Record('x', label, seed, 'k', 'finished', record)


def _failed(label, error):
  return Record('x', label, 0, 'k', 'failed', {}, error)


def test_a_table_holds_means_and_deviations_over_repeats():
  records = [_record('a', 0, 10, 4), _record('a', 1, 30, 8)]
  records.append(_failed('b', 'E: | no\n\nTraceback'))
  row = tables.average(records)['a']
  assert [row[f'ess_{k}'] for k in ('min', 'median', 'max')] == [20, 40, 60]
  assert row['seconds'] == 3
  np.testing.assert_allclose(row['min_ess_per_second_sd'], np.sqrt(8))
  text = tables.to_markdown('x', records)
  assert (
    '| a | 3.0 | 0.500 | (20.0, 40.0, 60.0) | -, - | 6.00 (2.83), - |' in text
  )
  assert '| 1.010, 1.002 | 7.40, - | 9.0 | 2 |' in text
  assert '| b | failed |' in text
  assert r'b failed: E: \| no Traceback' in text


@pytest.mark.parametrize(
  'records, shown',
  [
    # Chains that are stuck apart have a huge R-hat.
    ([{'rhat_max': 1.3e16, 'rhat_median': 7.0}], '| > 1000, 7.000 |'),
    ([{}, {'rhat_max': None}], '| > 1000, 1.002 |'),
    ([{'is_factor_singular': True}] * 2, '| 7.40, 2 singular |'),
    (
      [
        {'is_factor_singular': True},
        {'is_factor_singular': False, 'learned_condition_number': 1.5},
      ],
      '| 7.40, 1.50 (1 singular) |',
    ),
  ],
)
def test_odd_numbers_are_told(records, shown):
  found = [
    _record('a', i, 1, 1, **changes) for i, changes in enumerate(records)
  ]
  assert shown in tables.to_markdown('x', found)


# Figures: labels as they are, and sweeps grouped by what they share.


def _record_figures(label, status='finished', **record):
  return Record('x', label, 0, 'k', status, record)


def _lengths(label, steps, value, status='finished'):
  return _record_figures(
    label,
    status,
    num_leapfrog_steps=steps,
    min_ess_per_sampling_second=value,
    accept_rate=0.5,
  )


LENGTHS = [
  _lengths('GSM HMC-1, arrow', 1, 2.0),
  _lengths('GSM HMC-1, arrow', 1, 4.0),
  _lengths('GSM HMC-10, arrow', 10, 8.0),
  _lengths('mine, L=1', 1, 1.0),
  _lengths('mine, L=10', 10, None),
  _lengths('NUTS', None, 5.0),
]


def _rates(label, wanted, rate, ess):
  return _record_figures(
    label,
    target_accept_prob=wanted,
    accept_rate=rate,
    ess={'min': ess, 'median': 2 * ess},
  )


RATES = [
  _rates('mGrad, 0.3', 0.3, 0.28, 10.0),
  _rates('mGrad, 0.3', 0.3, 0.32, 20.0),
  _rates('mGrad, 0.1', 0.1, 0.12, 5.0),
  _rates('mGrad, 0.5', 0.5, 0.5, 30.0),
  _rates('pCN, 0.2', 0.2, 0.2, 1.0),
  _rates('Ellipt', None, None, 1.0),
  _record_figures('mGrad, 0.7', 'failed'),
]


def test_lines_are_means_over_repeats_and_nuts_is_horizontal():
  failed = _lengths('HMC-1', 1, None, status='failed')
  figure = sweeps.draw_leapfrog_steps([*LENGTHS, failed], figures._grid)
  lines = {line.get_label(): line for line in figure.axes[0].lines}
  plt.close(figure)
  assert set(lines) == {'GSM HMC, arrow', 'mine', 'NUTS'}
  assert list(lines['GSM HMC, arrow'].get_ydata()) == [3.0, 8.0]
  assert list(lines['mine'].get_xdata()) == [1]
  assert list(lines['NUTS'].get_ydata()) == [5.0, 5.0]


def test_sizes_are_drawn_at_the_acceptance_that_was_reached():
  figure = sweeps.draw_accept_rates(RATES, figures._grid)
  (line,) = figure.axes[0].lines
  plt.close(figure)
  assert line.get_label() == 'mGrad'
  np.testing.assert_allclose(line.get_xdata(), [0.12, 0.3, 0.5])
  np.testing.assert_allclose(line.get_ydata(), [5, 15, 30])
  assert sweeps.draw_accept_rates(RATES[:3], figures._grid) is None
