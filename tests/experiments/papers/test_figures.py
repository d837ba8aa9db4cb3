"""Figures: labels as they are, and sweeps grouped by what they share."""

import matplotlib.pyplot as plt
import numpy as np

from experiments.papers import figures
from experiments.papers import sweeps
from experiments.run.store import Record


def _record(label, status='finished', **record):
  return Record('x', label, 0, 'k', status, record)


def _lengths(label, steps, value, status='finished'):
  return _record(
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
  return _record(
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
  _record('mGrad, 0.7', 'failed'),
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
