"""Records grouped by what they share beside the number of leapfrog steps."""

from experiments.framework import figures
from experiments.framework import sweeps


def _record(label, steps, value, status='finished'):
  return {
    'label': label,
    'status': status,
    'num_leapfrog_steps': steps,
    'min_ess_per_sampling_second': value,
    'accept_rate': 0.5,
  }


RECORDS = [
  _record('GSM HMC-1, arrow', 1, 2.0),
  _record('GSM HMC-1, arrow', 1, 4.0),
  _record('GSM HMC-10, arrow', 10, 8.0),
  _record('mine, L=1', 1, 1.0),
  _record('mine, L=10', 10, None),
  _record('NUTS', None, 5.0),
]


def test_families_join_lengths_and_repeats():
  found = sweeps.families(RECORDS)
  assert set(found) == {'GSM HMC, arrow', 'mine', 'NUTS'}
  assert {k: len(v) for k, v in found['GSM HMC, arrow'].items()} == {
    1: 2,
    10: 1,
  }
  assert list(found['NUTS']) == [None]


def test_lines_are_means_over_repeats_and_nuts_is_horizontal():
  failed = _record('HMC-1', 1, None, status='failed')
  figure = sweeps.draw([*RECORDS, failed], figures._grid)
  axis = figure.axes[0]
  lines = {line.get_label(): line for line in axis.lines}
  assert set(lines) == {'GSM HMC, arrow', 'mine', 'NUTS'}
  assert list(lines['GSM HMC, arrow'].get_ydata()) == [3.0, 8.0]
  assert list(lines['mine'].get_xdata()) == [1]
  assert list(lines['NUTS'].get_ydata()) == [5.0, 5.0]


def test_a_single_length_is_no_sweep():
  assert sweeps.draw(RECORDS[:2], figures._grid) is None
