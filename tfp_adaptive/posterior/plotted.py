"""Plots draws in one figure of ArviZ: estimates, ranks and traces."""

import numpy as np

from tfp_adaptive.core import optional

_WIDTH, _HEIGHT = 14.0, 2.2  # Width of the figure, height of a row, in inches.
_COLUMNS = {
  'estimate': 'plot_dist',
  'ranks': 'plot_rank',
  'trace': 'plot_trace',
}


def plotted(names, values):
  """Returns ArviZ's `PlotCollection` of values [draws, chains, d]."""
  import arviz_base

  plots = optional.load('arviz_plots', 'Posterior.plot', 'plots')
  # A slash in a name would make a group in the tree.
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
