"""Traces and pairs of a quickstart: each sampler beside the other."""

import io

import matplotlib

matplotlib.use('Agg')

import matplotlib.pyplot as plt  # noqa: E402

__all__ = ['draw_pairs', 'draw_traces', 'to_png']


def draw_traces(runs):
  """Returns a figure of traces of all chains.

  Args:
    runs: dict of (name of the posterior, of the sampler) to a pair of `Model`
      and `Outcome`.
  """
  figure, axes = _grid(runs, height=2.0)
  for axis, ((posterior, sampler), (model, outcome)) in zip(axes, runs.items()):
    axis.plot(_column(outcome, model.traced), linewidth=0.3)
    axis.set_yscale(model.scale)
    axis.set_title(f'{posterior}, {sampler}', fontsize='small')
    axis.set_ylabel(model.traced)
  return figure


def draw_pairs(runs):
  """Returns a figure of two coordinates' draws, divergent ones in red.

  Args:
    runs: As of `draw_traces`.
  """
  figure, axes = _grid(runs, height=3.0)
  for axis, ((posterior, sampler), (model, outcome)) in zip(axes, runs.items()):
    x = _column(outcome, model.beside)
    y = _column(outcome, model.traced)
    axis.scatter(x, y, s=1, alpha=0.3, linewidths=0)
    if 'diverging' in outcome.trace:  # Replica exchange tells of none.
      diverging = outcome.trace['diverging']
      axis.scatter(x[diverging], y[diverging], s=6, color='red', linewidths=0)
    axis.set_yscale(model.scale)
    axis.set_title(f'{posterior}, {sampler}', fontsize='small')
    axis.set_xlabel(model.beside)
    axis.set_ylabel(model.traced)
  return figure


def to_png(figure):
  """Returns the bytes of a figure, and closes it."""
  file = io.BytesIO()
  figure.savefig(file, dpi=80, format='png')
  plt.close(figure)
  return file.getvalue()


def _column(outcome, name):
  return outcome.values[..., outcome.names.index(name)]


def _grid(runs, height):
  """Returns a figure and axes, a row for each posterior."""
  num_rows = len({posterior for posterior, _ in runs})
  figure, axes = plt.subplots(
    num_rows,
    len(runs) // num_rows,
    figsize=(9.0, height * num_rows),
    layout='constrained',
    sharex='row',
    sharey='row',
    squeeze=False,
  )
  return figure, axes.ravel()
