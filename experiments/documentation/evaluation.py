"""The table and the figures of docs/evaluation.md, made from the records.

  python -m experiments.documentation.evaluation

writes the table between its two comments, which a test compares, and the PNGs.
"""

import collections
from typing import NamedTuple

import numpy as np
import scipy.stats

from experiments.documentation import front_door
from experiments.documentation import geometry
from experiments.documentation import rivals
from experiments.documentation.made_tables import fill
from experiments.documentation.made_tables import page
from experiments.documentation.made_tables import table
from experiments.framework.json_files import read_json
from experiments.framework.json_files import read_lines

__all__ = [
  'Outcome',
  'draw_passes',
  'draw_rates',
  'num_solved',
  'outcomes',
  'with_tables',
]

_RESULTS = page('front_door').parent
_PAGE = _RESULTS.parent / 'evaluation.md'
_RUNS = _RESULTS / 'front_door' / 'runs.jsonl'
_SUMMARY = _RESULTS / 'inference_gym' / 'summary.json'
_OURS = 'sample_posterior'
_ENOUGH = 0.8  # Of a target's runs.
# Shown: all of others that the panel runs, and of the library's own the one of
# each kind that passes most often, an HMC, a map, a MALA and a surrogate.
_COLUMNS = (
  _OURS,
  'GSM HMC-5',
  'RealNVP HMC-5',
  'Fisher-divergence MALA',
  'KMC finite',
  'SNAPER-HMC',
  'NUTS (windowed)',
  'NumPyro NUTS (dense)',
  'BlackJAX NUTS (dense)',
  'BlackJAX NUTS (diagonal)',
  'BlackJAX ChEES',
  'BlackJAX MEADS',
  'nutpie (low rank)',
  'nutpie (diagonal)',
  'Replica exchange HMC-3',
  'HMC-10',
)
_OF_TFP = ('SNAPER-HMC', 'NUTS (windowed)', 'Replica exchange HMC-3', 'HMC-10')
_ENDED = ('passed', 'biased', 'not converged')
_RIVALS = (_OURS, 'NumPyro', 'PyMC', 'nutpie')
_COLORS = ('tab:green', 'tab:blue', 'tab:orange', 'tab:purple')
_NAMES = {
  **geometry.NAMES,
  'NonIdentifiableQuarticMeasurementModel': 'Quartic',
  'SyntheticItemResponseTheory': 'Item responses',
  'SyntheticLogGaussianCoxProcess': 'Cox process',
  'SyntheticPlasmaSpectroscopy': 'Plasma spectroscopy',
  'VectorizedStochasticVolatilitySP500': 'S&P 500',
  'VectorizedStochasticVolatilitySP500Small': 'S&P 500, 100 days, innovations',
}


class Outcome(NamedTuple):
  """Runs of a sampler on a target.

  All that are to be, those that ended, those that pass, those within the gates,
  those of them that are far off, and the same of runs that do not diverge.
  """

  num_runs: int
  num_ended: int
  num_passed: int
  num_within: int
  num_wrong: int
  num_steady: int
  num_steady_wrong: int


def with_tables(text):
  """Returns the page's text with the table between its comments."""
  found = outcomes(read_lines(_RUNS))
  return fill(text, 'evaluation', [_of_samplers(found)])


def outcomes(runs, summary=None):
  """Returns {sampler: {target: `Outcome`}}.

  Args:
    runs: Records of `sample_posterior`. Its verdict refuses runs that diverge,
      and others: those that it does not are its steady ones.
    summary: Of the panel's pairs; `None`: the one that is saved.
  """
  found = collections.defaultdict(dict)
  for run in runs:
    so_far = found[_OURS].get(run['target'], Outcome(*[0] * 7))
    is_within, is_far = run['passes_gates'], front_door.is_far(run)
    is_steady = is_within and run['converged']
    of_run = Outcome(
      1,
      1,
      is_steady and not is_far,
      is_within,
      is_within and is_far,
      is_steady,
      is_steady and is_far,
    )
    found[_OURS][run['target']] = Outcome(*map(sum, zip(so_far, of_run)))
  for pair in read_json(_SUMMARY) if summary is None else summary:
    # Where nobody tells of divergences, no run is known to be steady.
    counts = pair['outcomes']
    steady = pair['steady'] or dict(passed=0, biased=0)
    found[pair['method']][pair['target']] = Outcome(
      sum(counts.values()) - counts['refused'],
      sum(counts[name] for name in _ENDED),
      counts['passed'],
      counts['passed'] + counts['biased'],
      counts['biased'],
      steady['passed'] + steady['biased'],
      steady['biased'],
    )
  return found


def _of_samplers(found):
  """Returns a line for each sampler, those that solve most targets first."""
  rows = []
  for sampler in _COLUMNS:
    by_target = found[sampler]
    total = Outcome(*map(sum, zip(*by_target.values())))
    rows.append((
      num_solved(by_target),
      total.num_passed,
      _shown(sampler),
      total.num_ended,
      _share_of(total.num_wrong, total.num_within),
      _share_of(total.num_steady_wrong, total.num_steady),
    ))  # fmt: skip
  rows.sort(key=lambda row: row[:2], reverse=True)
  head = (
    'Sampler',
    f'Of {len(found[_OURS])} targets, solved',
    'Runs that pass, of those that ended',
    'Of runs within the gates, wrong (95 % interval)',
    'Of those that do not diverge',
  )
  lines = [(n, str(s), f'{p} of {e}', *shares) for s, p, n, e, *shares in rows]
  return table(head, lines)


def _share_of(count, num):
  return f'{count} of {num} ({_interval(count, num)})' if num else '-'


def _shown(sampler):
  return f'TFP {sampler}' if sampler in _OF_TFP else sampler


def num_solved(by_target):
  """Returns on how many targets a sampler passes in enough of its runs."""
  return sum(
    o.num_passed >= _ENOUGH * o.num_runs > 0 for o in by_target.values()
  )


def _interval(count, num):
  """Returns Wilson's interval of a share, in percent."""
  found = scipy.stats.binomtest(count, num).proportion_ci(method='wilson')
  return f'{100 * found.low:.0f} to {100 * found.high:.0f} %'


def draw_passes(found):
  """Returns a figure of the runs that pass, of ten, targets by samplers."""
  targets = list(found[_OURS])
  shares = np.array(
    [[_share(found[c].get(t)) for c in _COLUMNS] for t in targets]
  )
  figure, axis = _figure(6.0)
  axis.imshow(shares, cmap='Greens', vmin=0.0, vmax=1.3, aspect='auto')
  for (row, column), share in np.ndenumerate(shares):
    text = '.' if np.isnan(share) else f'{10 * share:.0f}'
    axis.text(column, row, text, ha='center', va='center', fontsize='small')
  names = map(_shown, _COLUMNS)
  axis.set_xticks(range(len(_COLUMNS)), names, rotation=45, ha='right')
  axis.set_yticks(
    range(len(targets)), [_NAMES.get(t, t.replace('_', ' ')) for t in targets]
  )
  axis.set_title('Runs of ten within the gates and right (a dot: none ended)')
  return figure


def draw_rates(records):
  """Returns a figure of effective draws per gradient, and per second."""
  figure, axes = _figure(7.0, num_columns=2)
  for axis, (title, found) in zip(axes, rivals.medians(records).items()):
    models = list(dict.fromkeys(model for model, _ in found))[::-1]
    for sampler, sign, color in zip(_RIVALS, 'o<sd', _COLORS):
      rates = [found.get((model, sampler)) for model in models]
      rows = [row for row, rate in enumerate(rates) if rate is not None]
      known = [rates[row] for row in rows]
      size = 8 if sampler == _OURS else 5
      axis.plot(known, rows, sign, label=sampler, markersize=size, color=color)
    axis.set_yticks(range(len(models)), [m.replace('_', ' ') for m in models])
    axis.set_xscale('log')
    axis.set_title(title, fontsize='medium')
    axis.grid(axis='y', linewidth=0.3)
  handles, labels = axes[0].get_legend_handles_labels()
  figure.legend(handles, labels, loc='outside lower center', ncols=len(labels))
  return figure


def _figure(height, num_columns=1):
  from matplotlib import figure

  drawn = figure.Figure(figsize=(8.0, height), layout='constrained')
  return drawn, drawn.subplots(1, num_columns, sharey=True)


def _share(outcome):
  if outcome is None or outcome.num_ended == 0:
    return np.nan
  return outcome.num_passed / outcome.num_runs


def main():
  """Writes the table and the figures."""
  _PAGE.write_text(with_tables(_PAGE.read_text()))
  found = outcomes(read_lines(_RUNS))
  runs = read_lines(_RESULTS / 'rivals' / 'runs.jsonl')
  for name, figure in (
    ('evaluation', draw_passes(found)),
    ('rivals', draw_rates(runs)),
  ):
    figure.savefig(_RESULTS / f'{name}.png', dpi=110)


if __name__ == '__main__':
  main()
