"""ECDFs of the ranks less their expectation, with simultaneous bands."""

import matplotlib

matplotlib.use('Agg')

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402

from experiments.calibration import rank_test  # noqa: E402

__all__ = ['draw_ecdfs']

_NUM_COLUMNS = 4


def draw_ecdfs(rows, level):
  """Returns a figure with one panel per kernel, one line per quantity.

  Args:
    rows: of `study.measure`, all of the same sizes.
    level: Probability that any line of a right kernel leaves its band.
  """
  rows = sorted(rows, key=lambda row: row['is_control'])
  num_rows = -(-len(rows) // _NUM_COLUMNS)
  figure, axes = plt.subplots(
    num_rows,
    _NUM_COLUMNS,
    figsize=(3.2 * _NUM_COLUMNS, 2.2 * num_rows),
    layout='constrained',
    squeeze=False,
  )
  for axis in axes.flat[len(rows) :]:
    axis.set_axis_off()
  for axis, row in zip(axes.flat, rows):
    _draw_panel(axis, row, level)
  return figure


def _draw_panel(axis, row, level):
  counts = {name: np.array(c) for name, c in row['rank_counts'].items()}
  some = next(iter(counts.values()))
  num_draws, num_ranks = some.sum(), len(some)
  expected = np.arange(1, num_ranks) / num_ranks
  lowest, highest = rank_test.ecdf_band(
    num_draws, num_ranks, level / len(counts)
  )
  axis.fill_between(
    expected,
    lowest / num_draws - expected,
    highest / num_draws - expected,
    color='0.85',
    step='mid',
  )
  for name, count in counts.items():
    below = np.cumsum(count)[:-1] / num_draws
    axis.plot(expected, below - expected, lw=1.0, label=name.replace('_', ' '))
  color = 'C3' if row['is_control'] else 'black'
  axis.set_title(row['kernel'], fontsize=8, color=color)
  axis.tick_params(labelsize=6)
  axis.legend(fontsize=5, ncols=2, frameon=False)
