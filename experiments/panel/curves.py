"""Figures of the page as SVG text: b^2 against gradients spent."""

import io
import re

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from experiments.papers.labels import in_figure

__all__ = ['bias_curves']

matplotlib.use('Agg')
_LOW, _HIGH = 10, 90
# Of the runs' own: two families in colours, peers dashed.
_COLORS = plt.get_cmap('tab20').colors


def bias_curves(pairs, target):
  """Returns SVG of worst and mean b^2 of every method, None without any.

  Lines are medians over seeds, bands the middle 80 % of them; peers dashed.

  Args:
    pairs: of `summarize`.
    target: label.
  """
  methods = list(dict.fromkeys(method for _, method in pairs))
  shown = {
    method: pairs[target, method]
    for method in methods
    if (target, method) in pairs and pairs[target, method].curves is not None
  }
  if not shown:
    return None
  figure, axes = plt.subplots(
    1, 2, figsize=(11, 3.8), layout='constrained', sharex=True, sharey=True
  )
  for part, (axis, title) in enumerate(
    zip(axes, ('worst coordinate', 'mean over coordinates'), strict=True), 1
  ):
    for method, pair in shown.items():
      color = _COLORS[methods.index(method) % len(_COLORS)]
      _draw(axis, pair, part, in_figure(method), color)
    axis.set_xscale('log')
    axis.set_yscale('log')
    axis.set_title(f'squared bias, {title}', fontsize='medium')
    axis.set_xlabel('gradients per chain, adaptation included')
  axes[1].legend(
    fontsize='x-small', loc='center left', bbox_to_anchor=(1.0, 0.5)
  )
  return _svg(figure)


def _draw(axis, pair, part, label, color):
  gradients = np.median(pair.curves[0], axis=0)
  low, middle, high = np.percentile(
    pair.curves[part], [_LOW, 50, _HIGH], axis=0
  )
  style = '--' if pair.is_peer else '-'
  axis.plot(gradients, middle, style, color=color, label=label, linewidth=1.2)
  axis.fill_between(gradients, low, high, color=color, alpha=0.08, linewidth=0)


def _svg(figure):
  """Returns the figure as an SVG element, the same text every time."""
  buffer = io.StringIO()
  with matplotlib.rc_context({'svg.hashsalt': 'panel', 'svg.fonttype': 'none'}):
    figure.savefig(buffer, format='svg', metadata={'Date': None})
  plt.close(figure)
  text = buffer.getvalue()
  return re.sub(r'^.*?(?=<svg)', '', text, count=1, flags=re.DOTALL)
