"""The tables of the page, each a `grid.Table` of summarized pairs."""

import collections

from experiments.panel.grid import Cell
from experiments.panel.grid import number
from experiments.panel.grid import Table
from experiments.panel.grid import with_interval
from experiments.panel.summary import contests
from experiments.panel.summary import OUTCOMES

__all__ = [
  'contest_table',
  'failures',
  'metric_table',
  'outcome_table',
  'truth_table',
]

_TRUTH_HEADER = [
  'Target',
  'Dimensions',
  'Precision',
  'Means and deviations',
  'Var[x^2], the scale of b^2',
  'Converged',
  "Reference against inference_gym's means, worst z",
]

_BRIEF = {
  'passed': 'passed',
  'biased': 'BIASED',
  'not converged': 'not converged',
  'out of time': 'out of time',
  'failed': 'crashed',
  'refused': 'does not apply',
  'not installed': 'not installed',
}


def contest_table(pairs, metric, title, note):
  """Returns who wins where: the library's best against the peers' best."""
  rows = []
  for contest in contests(pairs, metric):
    own, peer = (
      _side(pair, metric, *counts)
      for pair, *counts in zip(
        (contest.own, contest.peer), contest.num_runs, contest.num_passed
      )
    )
    rows.append([contest.target, *own, *peer, _verdict(contest)])
  header = ['Target', 'Library: best', '', 'Peers: best', '', 'Ratio']
  return Table(title, note, header, rows)


def _side(pair, metric, num_runs, num_passed):
  if pair is None:
    text = 'none passed' if num_runs else 'none was run'
    return [
      Cell('not timed' if num_passed else text, 'none'),
      Cell('-', 'none'),
    ]
  return [pair.method, with_interval(pair.metrics[metric])]


def _verdict(contest):
  """Returns who won, by what ratio if both sides passed."""
  if contest.ratio is not None:
    return _ratio_cell(contest.ratio)
  if 0 in contest.num_runs:
    return Cell('undecided: one side was not run', 'none')
  if all(contest.num_passed):
    return Cell('undecided: one side is not timed', 'none')
  if contest.own is not None:
    return Cell('only the library passed', 'good')
  if contest.peer is not None:
    return Cell('only a peer passed', 'bad')
  return Cell('undecided: both sides failed', 'none')


def _ratio_cell(ratio):
  """Returns the ratio, and a win or a loss where its interval excludes 1."""
  kind, word = 'weak', 'even'
  if ratio.low > 1:
    kind, word = 'good', 'library ahead'
  elif ratio.high < 1:
    kind, word = 'bad', 'library behind'
  return Cell(f'{with_interval(ratio)}: {word}', kind)


def metric_table(pairs, metric, title, note, more_is_better=True):
  """Returns methods by targets; the best of each target is marked.

  Efficiencies stand only where at least half of the seeds passed.
  """
  targets, methods = _labels(pairs)
  best = _best(pairs, metric, more_is_better)
  rows = []
  for method in methods:
    cells = [
      _metric_cell(pairs.get((target, method)), metric, best)
      for target in targets
    ]
    rows.append([method, *cells])
  return Table(title, note, ['Method', *targets], rows)


def _best(pairs, metric, more_is_better):
  """Returns {target: method} with the best median."""
  sign = 1 if more_is_better else -1
  best = {}
  for (target, method), pair in pairs.items():
    if metric in pair.metrics and _is_shown(pair, metric):
      value = sign * pair.metrics[metric].median
      best[target] = max(best.get(target, (value, method)), (value, method))
  return {target: method for target, (_, method) in best.items()}


def _is_shown(pair, metric):
  return pair.counts or 'ess' not in metric


def _metric_cell(pair, metric, best):
  if pair is None:
    return Cell('', 'none')
  if not _is_shown(pair, metric) or metric not in pair.metrics:
    return Cell(_brief(pair), 'none', pair.error or '')
  kind = 'best' if best[pair.target] == pair.method else ''
  text = with_interval(pair.metrics[metric])
  return Cell(text, kind, _told(pair))


def _brief(pair):
  """Returns what became of most seeds."""
  return _BRIEF[max(OUTCOMES, key=lambda kind: pair.outcomes[kind])]


def outcome_table(pairs):
  """Returns what share of the runs failed, methods by targets."""
  targets, methods = _labels(pairs)
  rows = []
  for method in methods:
    found = [pairs.get((target, method)) for target in targets]
    found = [pair for pair in found if pair is not None]
    rows.append(
      [
        method,
        _share(found),
        *(_outcome_cell(pairs.get((t, method))) for t in targets),
      ]
    )
  shares = [
    _share([p for (where, _), p in pairs.items() if where == target])
    for target in targets
  ]
  rows.append(['all methods', '', *shares])
  note = (
    'Failed runs of all runs, and of what kind most of them were. A run fails '
    'that crashes, runs out of time, misses a gate of convergence, or passes '
    'them and is off the truth (BIASED).'
  )
  return Table('Failed runs', note, ['Method', 'all targets', *targets], rows)


def _share(pairs):
  runs = sum(p.num_runs for p in pairs)
  passed = sum(p.outcomes['passed'] for p in pairs)
  if not runs:
    return Cell('-', 'none')
  return f'{(runs - passed) / runs:.0%} of {runs}'


def _outcome_cell(pair):
  if pair is None:
    return Cell('not run', 'none')
  if not pair.num_runs:
    return Cell(_brief(pair), 'none', pair.error or '')
  num_failed = pair.num_seeds - pair.outcomes['passed']
  if not num_failed:
    return Cell(f'0/{pair.num_seeds}', 'good', _told(pair))
  bad = {k: n for k, n in pair.outcomes.items() if n and k != 'passed'}
  main = max(bad, key=bad.get)
  kind = 'bad' if num_failed > pair.num_seeds / 2 else 'weak'
  text = f'{num_failed}/{pair.num_seeds} {_BRIEF[main]}'
  return Cell(text, kind, pair.error or _told(pair))


def _told(pair):
  """Returns the seeds of each outcome, and the worst z, as a hint."""
  parts = [f'{n} {_BRIEF[k]}' for k, n in pair.outcomes.items() if n]
  if pair.worst_z is not None:
    parts.append(
      f'worst |z| {pair.worst_z:.1f} of {pair.num_comparisons} comparisons'
    )
  return ', '.join(parts)


def failures(pairs):
  """Returns every pair that failed or does not apply, with its reason."""
  rows = []
  for (target, method), pair in pairs.items():
    bad = {k: n for k, n in pair.outcomes.items() if n and k != 'passed'}
    if not bad:
      continue
    why = ', '.join(f'{n} {_BRIEF[k]}' for k, n in bad.items())
    details = pair.error
    if details is None:
      details = f'median of largest R-hat {_median(pair, "rhat_max")}'
      if pair.worst_z is not None:
        details += f', worst |z| {pair.worst_z:.1f}'
    rows.append([target, method, why, details[:300]])
  note = 'One line for every method and target with a run that did not pass.'
  header = ['Target', 'Method', 'Seeds', 'Reason']
  return Table('What failed, and why', note, header, rows)


def truth_table(records):
  """Returns where each target's truth is from."""
  by_target = {}
  for record in records:
    if record['status'] == 'finished':
      by_target.setdefault(record['target'], []).append(record)
  rows = [_truth_row(target, runs) for target, runs in by_target.items()]
  note = (
    'What the runs are judged by, in the coordinates of the model itself. '
    'Where the last column is large, the moments that inference_gym keeps are '
    'not those of its density. Some are known for a part of the runs alone: '
    'of volatility by quadrature, for those within the gates.'
  )
  return Table('Truth', note, _TRUTH_HEADER, rows)


def _truth_row(target, runs):
  """Returns the line of a target, of all its runs that came to an end."""
  judged = [run for run in runs if run['truth']]
  sources = collections.Counter(run['truth']['of'] for run in judged)
  known = [f'{of} ({n} of {len(runs)})' for of, n in sources.items()]
  # What they are judged by now.
  truth = judged[-1]['truth'] if judged else {}
  converged = {True: 'yes', False: 'NO: never judged', None: '-'}
  return [
    target,
    str(runs[-1]['event_size']),
    runs[-1]['dtype'],
    ', '.join(known) or 'none: never judged',
    truth.get('of_square', '-'),
    converged[truth.get('is_converged')],
    number(truth.get('gym_z')),
  ]


def _median(pair, metric):
  found = pair.metrics.get(metric)
  return '-' if found is None else number(found.median)


def _labels(pairs):
  targets = list(dict.fromkeys(target for target, _ in pairs))
  methods = list(dict.fromkeys(method for _, method in pairs))
  return targets, methods
