"""The goals stated before the runs, against what was found.

1. Gradient-adapted MALA with a dense or an arrow factor: at most 100 gradients
   per effective sample of the slowest coordinate of the Brownian motion.
2. Entropy-adapted HMC against NUTS with a dense mass matrix on logistic
   regression: ahead per second, within a factor 2 per gradient.
"""

from experiments.panel.grid import Cell
from experiments.panel.grid import number
from experiments.panel.grid import Table
from experiments.panel.grid import with_interval
from experiments.panel.summary import Interval
from experiments.panel.summary import ratio

__all__ = ['brownian_table', 'regression_table']

_BROWNIAN = 'BrownianMotionUnknownScalesMissingMiddleObservations'
_MOST_GRADIENTS = 100
_MALA = ('gadMALAf', 'gadMALAf, arrow', 'gadMALAe', 'gadMALAe, arrow')
_REGRESSIONS = ('logistic_regression_heart', 'logistic_regression_german')
_DENSE_NUTS = ('BlackJAX NUTS (dense)', 'NumPyro NUTS (dense)')
# {metric: (title, what the ratio must reach)}.
_AGAINST_NUTS = {
  'min_ess_per_gradient': ('per gradient', 0.5),
  'min_ess_per_second': ('per second', 1.0),
}


def brownian_table(pairs):
  """Returns gradients per effective sample of each method, fewest first."""
  rows = []
  for (target, method), pair in pairs.items():
    found = pair.metrics.get('min_ess_per_gradient')
    if target != _BROWNIAN or found is None:
      continue
    # ESS per 1000 gradients turned round, so its high end is the low one.
    needed = Interval(1000 / found.median, 1000 / found.high, 1000 / found.low)
    passed = f'{pair.outcomes["passed"]}/{pair.num_seeds}'
    verdict = Cell('')
    if method in _MALA:
      is_met = needed.median <= _MOST_GRADIENTS and pair.counts
      verdict = Cell('met', 'good') if is_met else Cell('MISSED', 'bad')
    rows.append(
      (needed.median, [method, with_interval(needed), passed, verdict])
    )
  rows = [row for _, row in sorted(rows, key=lambda entry: entry[0])]
  reached = {row[0] for row in rows}
  rows += [
    [method, 'no seed passed', '0', Cell('MISSED', 'bad')]
    for method in _MALA
    if method not in reached and (_BROWNIAN, method) in pairs
  ]
  note = (
    'Gradients of sampling, all chains, per effective draw, in bulk or tails, '
    'of the slowest coordinate of the 32-dimensional Brownian motion: median '
    'over seeds that '
    f'passed [middle 80 %]. Goal: at most {_MOST_GRADIENTS} for '
    'gradient-adapted MALA with a dense or an arrow factor.'
  )
  header = ['Method', 'Gradients per effective sample', 'Passed', 'Goal']
  return Table('Goal: gradients per effective sample', note, header, rows)


def regression_table(pairs):
  """Returns entropy-adapted HMC over NUTS with a dense mass matrix."""
  rows = []
  for target in _REGRESSIONS:
    own = [
      pair
      for (where, method), pair in pairs.items()
      if where == target and method.startswith('GSM HMC') and pair.counts
    ]
    for rival in _DENSE_NUTS:
      for metric in _AGAINST_NUTS:
        rows.append(_against(target, own, pairs.get((target, rival)), metric))
  note = (
    'Least effective draws, in bulk or tails, of entropy-adapted HMC over '
    'those of NUTS with a dense mass matrix: ratio of medians [80 % interval '
    'from resampled seeds]. The best of the variants by its median. Goal: '
    'above 1 per second, at least 0.5 per gradient. The two sides are not one '
    'program: TensorFlow and JAX.'
  )
  header = ['Target', 'Entropy-adapted HMC', 'Rival', 'Unit', 'Ratio', 'Goal']
  return Table('Goal: against NUTS, logistic regression', note, header, rows)


def _against(target, own, rival, metric):
  title, goal = _AGAINST_NUTS[metric]
  best = max(own, key=lambda pair: pair.metrics[metric].median, default=None)
  names = [
    target,
    best.method if best else 'none passed',
    rival.method if rival else 'not run',
    title,
  ]
  if best is None or rival is None or not rival.counts:
    return [*names, Cell('-', 'none'), Cell('not decided', 'none')]
  found = ratio(best.values[metric], rival.values[metric])
  is_met = found.median >= goal
  verdict = Cell('met', 'good') if is_met else Cell('MISSED', 'bad')
  return [
    *names,
    with_interval(found),
    Cell(f'{verdict.text} ({number(goal)})', verdict.kind),
  ]
