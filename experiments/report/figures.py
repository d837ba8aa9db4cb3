"""Figures of the site, drawn from records when it is built."""

import io

import numpy as np
from matplotlib import colormaps
from matplotlib import figure as matplotlib_figure
from matplotlib import rc_context

from experiments.report import evaluation
from experiments.report import panel
from experiments.report import records
from experiments.report import rivals

_COLORS = ('tab:green', 'tab:blue', 'tab:orange', 'tab:purple')
# The panel has more methods than the palette has colors; peers are dashed.
_PALETTE = colormaps['tab20'].colors


def images():
  """Yields (path below docs, content) of each figure made in a build."""
  yield 'results/evaluation.png', _content(_passes())
  yield 'results/many_chains.png', _content(_chains(), dpi=90)
  yield 'results/autocorrelation.png', _content(_autocorrelation(), dpi=90)
  found = panel.pairs()
  for target, name in bias_names(found).items():
    yield name, _content(_bias(found, target), format='svg')


def rates():
  """Returns the figure that the README shows, of rates on models, as PNG."""
  return _content(_rates())


def bias_names(found):
  """Returns {target: path of its figure} of the targets with a known truth."""
  targets = dict.fromkeys(pair.target for pair in found.values() if pair.curves)
  return {target: f'squared_bias/{target}.svg' for target in targets}


def _content(figure, **options):
  """Returns a figure's bytes, which are identical in every build."""
  buffer = io.BytesIO()
  metadata = {'Date': None} if 'format' in options else {}
  with rc_context({'svg.hashsalt': 'report', 'svg.fonttype': 'none'}):
    figure.savefig(buffer, **{'dpi': 110, 'metadata': metadata, **options})
  return buffer.getvalue()


def _axes(width, height, num_columns=1, **shared):
  figure = matplotlib_figure.Figure((width, height), layout='constrained')
  return figure, figure.subplots(1, num_columns, **shared)


def _passes():
  """Draws how many of ten runs pass, for each target and sampler."""
  found = evaluation.outcomes()
  targets = list(found[evaluation.OURS])
  shares = np.array(
    [
      [_share(found[sampler].get(target)) for sampler in evaluation.SHOWN]
      for target in targets
    ]
  )
  figure, axis = _axes(8.0, 6.0)
  axis.imshow(shares, cmap='Greens', vmin=0.0, vmax=1.3, aspect='auto')
  for (row, column), share in np.ndenumerate(shares):
    text = '.' if np.isnan(share) else f'{10 * share:.0f}'
    axis.text(column, row, text, ha='center', va='center', fontsize='small')
  names = map(evaluation.name, evaluation.SHOWN)
  axis.set_xticks(range(shares.shape[1]), names, rotation=45, ha='right')
  axis.set_yticks(range(len(targets)), map(evaluation.target_name, targets))
  axis.set_title('Runs of ten that pass and are right (a dot: none ended)')
  return figure


def _share(found):
  return (
    found.num_passed / found.num_runs if found and found.num_ended else np.nan
  )


def _rates():
  """Draws effective draws per gradient, and per second, by model."""
  figure, axes = _axes(8.0, 7.0, 2, sharey=True)
  for axis, (title, found) in zip(axes, rivals.medians().items()):
    models = list(dict.fromkeys(model for model, _ in found))[::-1]
    samplers = zip((rivals.OURS, 'NumPyro', 'PyMC', 'nutpie'), 'o<sd', _COLORS)
    for sampler, sign, color in samplers:
      rates = [found.get((model, sampler)) for model in models]
      rows = [row for row, rate in enumerate(rates) if rate is not None]
      known = [rates[row] for row in rows]
      size = 8 if sampler == rivals.OURS else 5
      axis.plot(known, rows, sign, label=sampler, markersize=size, color=color)
    axis.set_yticks(range(len(models)), [m.replace('_', ' ') for m in models])
    axis.set_xscale('log')
    axis.set_title(title, fontsize='medium')
    axis.grid(axis='y', linewidth=0.3)
  handles, labels = axes[0].get_legend_handles_labels()
  figure.legend(handles, labels, loc='outside lower center', ncols=len(labels))
  return figure


def _chains():
  """Draws the cost of a step of a chain by the number of chains."""
  figure, axis = _axes(5.0, 3.4)
  found = records.rows('many_chains', 'kind', 'name', 'num_chains')
  found = [row for row in found if row['kind'] == 'chains']
  for color, (name, runs) in enumerate(records.groups(found, 'name')):
    runs = sorted(runs, key=lambda run: run['num_chains'])
    chains = [run['num_chains'] for run in runs]
    for phase, style in (('frozen', '-'), ('adapting', '--')):
      costs = [run[phase] / run['num_chains'] for run in runs]
      label = name if phase == 'frozen' else None
      line = f'C{color}o{style}'
      axis.loglog(chains, costs, line, label=label, markersize=3)
  axis.set_xlabel('chains')
  axis.set_ylabel('microseconds per step of a chain')
  axis.legend(title='dashed: while it adapts', fontsize='small')
  return figure


def _autocorrelation():
  """Draws autocorrelations of the skew normal, as Figure 4 of kernel HMC."""
  figure, axis = _axes(5.0, 3.4)
  found = records.rows('papers/figure4_skew_normal', 'label')
  for label, runs in records.groups(found, 'label'):
    curves = [run['autocorrelation'] for run in runs]
    axis.plot(np.mean(curves, axis=0), label=label, linewidth=1.2)
  axis.set_xlabel('lag, in steps')
  axis.set_ylabel('autocorrelation of theta_1')
  axis.legend(fontsize='small')
  return figure


def _bias(found, target):
  """Draws worst and mean b^2 of every method against gradients."""
  methods = list(dict.fromkeys(pair.method for pair in found.values()))
  figure, axes = _axes(11, 3.8, 2, sharex=True, sharey=True)
  titles = ('worst coordinate', 'mean over coordinates')
  for part, (axis, title) in enumerate(zip(axes, titles), 1):
    for pair in found.values():
      if pair.target != target or pair.curves is None:
        continue
      gradients = np.median(pair.curves[0], axis=0)
      low, middle, high = np.percentile(pair.curves[part], [10, 50, 90], axis=0)
      look = {'color': _PALETTE[methods.index(pair.method) % len(_PALETTE)]}
      style = '--' if pair.is_peer else '-'
      axis.plot(
        gradients, middle, style, label=pair.method, linewidth=1.2, **look
      )
      axis.fill_between(gradients, low, high, alpha=0.08, linewidth=0, **look)
    axis.set(xscale='log', yscale='log')
    axis.set_title(f'squared bias, {title}', fontsize='medium')
    axis.set_xlabel('gradients per chain, adaptation included')
  axes[1].legend(
    fontsize='x-small', loc='center left', bbox_to_anchor=(1.0, 0.5)
  )
  return figure
