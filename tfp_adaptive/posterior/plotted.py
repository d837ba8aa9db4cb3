"""One figure of draws: estimates, ranks and traces, by ArviZ."""

import arviz_base
import numpy as np

from tfp_adaptive.core import optional

__all__ = ['plotted']

_WIDTH, _HEIGHT = 14.0, 2.2  # Of the figure, and of a row of it, in inches.
_COLUMNS = {
  'estimate': 'plot_dist',
  'ranks': 'plot_rank',
  'trace': 'plot_trace',
}


def plotted(names, values):
  """Returns ArviZ's `PlotCollection`, a row for each number.

  Args:
    names: Of the numbers, d.
    values: [draws, chains, d].
  """
  plots = optional.load('arviz_plots', 'Posterior.plot', 'plots')
  # A slash would be a group of the tree.
  draws = {
    name.replace('/', '_'): rows
    for name, rows in zip(names, np.moveaxis(values, (0, 1, 2), (2, 1, 0)))
  }
  return plots.combine_plots(
    arviz_base.from_dict({'posterior': draws}),
    [(getattr(plots, name), {}) for name in _COLUMNS.values()],
    plot_names=list(_COLUMNS),
    backend='matplotlib',
    figure_kwargs=dict(
      figsize=(_WIDTH, _HEIGHT * len(draws)),
      figsize_units='inches',
      layout='constrained',
    ),
  )
