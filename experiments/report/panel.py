"""The panel's records joined over seeds: outcomes of runs, and who wins."""

import collections
import functools
from typing import Any
from typing import NamedTuple

import numpy as np

from experiments.report import records
from tfp_adaptive.posterior.judge import verdict

# Outcomes of a run, the best first, and their names in a table.
BRIEF = {
  'passed': 'passed',
  'biased': 'BIASED',
  'not converged': 'not converged',
  'out of time': 'out of time',
  'failed': 'crashed',
  'refused': 'does not apply',
  'not installed': 'not installed',
}
# One record stands for all seeds, and nothing was run.
_NOT_RUN = ('refused', 'not installed')
# Samplers of papers that are run only for comparison.
_COMPARED = ('fisher_mala', 'variance_ratio_mala')
_FEWEST_PASSED = 0.5
_NUM_SEEDS = 10
_NUM_RESAMPLES = 2000


class Interval(NamedTuple):
  """Median over seeds, and an interval with the middle 80 % of the seeds."""

  median: float
  low: float
  high: float


class Pair(NamedTuple):
  """One method on one target, all seeds."""

  target: str
  method: str
  is_peer: bool
  # {outcome: number of seeds}.
  outcomes: dict
  # The same for runs of which at most one draw in 200 diverged; `None` if the
  # sampler does not report divergences.
  steady: dict | None
  # {metric: values over seeds}, if there are any.
  values: dict
  # {metric: `Interval`}.
  metrics: dict
  # (gradients per chain, worst b^2, mean b^2), each [num_seeds, points].
  curves: tuple | None
  # The largest |z| of the judged runs, and the number of comparisons.
  worst_z: float | None
  num_comparisons: int
  # First line of the first error.
  error: str | None

  @property
  def num_seeds(self):
    return sum(self.outcomes.values())

  @property
  def num_runs(self):
    return self.num_seeds - sum(self.outcomes[kind] for kind in _NOT_RUN)

  @property
  def counts(self):
    """Whether enough seeds passed for a meaningful efficiency."""
    passed = self.outcomes['passed']
    return passed / max(self.num_seeds, 1) >= _FEWEST_PASSED

  def shows(self, metric):
    """Returns whether a metric of the pair is shown."""
    return metric in self.metrics and (self.counts or 'ess' not in metric)

  @property
  def main(self):
    """Returns the outcome of most seeds."""
    return BRIEF[max(self.outcomes, key=self.outcomes.get)]

  @property
  def failures(self):
    """Returns {outcome: number} of the runs that did not pass."""
    return {k: n for k, n in self.outcomes.items() if n and k != 'passed'}


def least_ess(run):
  """Returns the effective draws in bulk and tails of the worst coordinate."""
  sizes = run['min_ess_bulk'], run['min_ess_tail']
  return None if None in sizes else min(sizes)


def _per_gradient(run, ess, in_all=False):
  """Returns effective draws per 1000 gradients of all chains."""
  spent = run['gradients_per_chain']
  if spent is None or ess is None:
    return None
  num = spent['sampling'] + in_all * spent['adaptation']
  return 1000.0 * ess / (run['num_chains'] * num)


def _seconds(run):
  """Returns the seconds of adaptation and sampling, without compilation."""
  return run['seconds']['adaptation'] + run['seconds']['sampling']


def _own_seconds(run):
  """Returns the same, or `None` if other work is among these seconds."""
  # Python hands nutpie each gradient here. XLA compiles windowed NUTS for every
  # seed, and some records count this compilation among the seconds.
  is_compiling = (
    run['method_name'] == 'windowed_nuts' and not run['seconds']['compile']
  )
  is_driven = run['method_name'] == 'nutpie'
  return None if is_driven or is_compiling else _seconds(run)


def _per_second(run):
  ess, seconds = least_ess(run), _own_seconds(run)
  return None if ess is None or not seconds else ess / seconds


def _bias(run, kind):
  curve = run['squared_bias']
  return None if curve is None else curve[kind][-1]


# Name: function of a run.
METRICS = {
  'min_ess_per_gradient': lambda r: _per_gradient(r, least_ess(r)),
  'min_ess_per_gradient_in_all': lambda r: _per_gradient(r, least_ess(r), True),
  'median_ess_per_gradient': lambda r: _per_gradient(r, r['ess']['median']),
  'min_ess_per_second': _per_second,
  'warm_seconds': _own_seconds,
  'cold_seconds': lambda r: (
    _seconds(r) + r['seconds']['compile'] if r['is_cold'] else None
  ),
  'rhat_max': lambda r: r['rhat_max'],
  'worst_bias': lambda r: _bias(r, 'worst'),
  'mean_bias': lambda r: _bias(r, 'mean'),
}


def outcome(run):
  """Returns the outcome of a run, a key of `BRIEF`."""
  if run['status'] != 'finished':
    return run['status']
  if run['missed']:
    return 'not converged'
  return 'biased' if run['is_biased'] else 'passed'


@functools.cache
def pairs():
  """Returns the summaries of the panel in `records`."""
  return summarize(records.rows('panel', 'target', 'method'))


def summarize(runs):
  """Returns {(target, method): `Pair`}."""
  found = records.groups(runs, 'target', 'method')
  return {names: _pair(names, of_pair) for names, of_pair in found}


def total(*kinds):
  """Returns the number of all runs with one of these outcomes."""
  return sum(pair.outcomes[kind] for pair in pairs().values() for kind in kinds)


def progress():
  """Yields how many pairs and runs are recorded, by target and in all.

  Targets whose runs are all recorded share a line.
  """
  kinds = ('complete', 'some', 'none', 'ended', 'late')
  counts = collections.defaultdict(collections.Counter)
  for pair in pairs().values():
    late, refused = pair.outcomes['out of time'], pair.outcomes['refused']
    ended = pair.num_seeds - late - refused
    kind = 'some' if ended else 'none'
    if ended >= _NUM_SEEDS or refused:
      kind = 'complete'
    counts[pair.target].update({kind: 1, 'ended': ended, 'late': late})
  lines = {t: [found[kind] for kind in kinds] for t, found in counts.items()}
  partly = {t: line for t, line in lines.items() if line[1] or line[4]}
  whole = [line for target, line in lines.items() if target not in partly]
  for target, line in partly.items():
    yield [target.replace('_', ' '), *line]
  yield [f'the other {len(whole)}', *map(sum, zip(*whole))]
  yield ['all', *map(sum, zip(*lines.values()))]


def _pair(names, runs):
  finished = [r for r in runs if r['status'] == 'finished']
  judged = [r for r in finished if r['is_biased'] is not None]
  # If only runs that pass the checks have a truth, they are no fair sample.
  is_compared = all(r['squared_bias'] for r in finished)
  values = {}
  for name, function in METRICS.items():
    if 'bias' in name and not is_compared:
      continue
    counted = [
      r for r in finished if 'ess' not in name or outcome(r) == 'passed'
    ]
    known = [v for v in map(function, counted) if v is not None]
    if known:
      values[name] = np.asarray(known, float)
  errors = [r['error'] for r in runs if r['error']]
  return Pair(
    *names,
    is_peer=runs[0]['is_peer'] or runs[0]['method_name'] in _COMPARED,
    outcomes=_count(runs),
    steady=_steady(finished),
    values=values,
    metrics={name: _interval(found) for name, found in values.items()},
    curves=_curves(finished) if is_compared else None,
    worst_z=max((abs(r['z']['worst']) for r in judged), default=None),
    num_comparisons=sum(r['z']['num_comparisons'] for r in judged),
    error=errors[0].strip().splitlines()[0] if errors else None,
  )


def _count(runs):
  found = [outcome(run) for run in runs]
  return {kind: found.count(kind) for kind in BRIEF}


def _steady(runs):
  if any(run['num_diverging'] is None for run in runs):
    return None
  return _count(filter(_is_steady, runs))


def _is_steady(run):
  num_draws = run['num_chains'] * run['num_results']
  return run['num_diverging'] <= verdict.MOST_DIVERGING * num_draws


def _interval(values):
  return Interval(*(float(v) for v in np.percentile(values, [50, 10, 90])))


def _curves(runs):
  """Returns b^2 of all runs on one grid of gradients."""
  curves = [run['squared_bias'] for run in runs]
  curves = [c for c in curves if c['gradients'] is not None]
  if not curves:
    return None
  first = max(c['gradients'][0] for c in curves)
  last = min(c['gradients'][-1] for c in curves)
  if first >= last:
    return None
  grid = np.geomspace(first, last, len(curves[0]['gradients']))
  on_grid = []
  for kind in ('worst', 'mean'):
    lines = []
    for curve in curves:
      # A step without a gradient repeats the number of gradients.
      gradients, places = np.unique(curve['gradients'], return_index=True)
      lines.append(np.interp(grid, gradients, np.asarray(curve[kind])[places]))
    on_grid.append(np.asarray(lines))
  return np.tile(grid, [len(curves), 1]), *on_grid


def best(found, metric, most_is_best):
  """Returns {target: method with the best median} among pairs that count."""
  sign = 1 if most_is_best else -1
  ranked = sorted(
    (sign * pair.metrics[metric].median, pair.method, pair.target)
    for pair in found.values()
    if pair.shows(metric)
  )
  return {target: method for _, method, target in ranked}


class Contest(NamedTuple):
  """The library's best and the peers' best on a target, by one metric."""

  target: str
  # The library's best and the peers' best; `None` if no pair counts.
  sides: tuple[Any, Any]
  # For both sides: runs, and samplers that passed.
  num_runs: tuple[int, int]
  num_passed: tuple[int, int]
  # The library's best over the peers' best.
  ratio: Interval | None


def contests(found, metric):
  """Yields a `Contest` for each target."""
  for target in dict.fromkeys(target for target, _ in found):
    sides, num_runs, num_passed = [], [], []
    for is_peer in (False, True):
      side = [
        pair
        for pair in found.values()
        if pair.target == target and pair.is_peer == is_peer
      ]
      num_runs.append(sum(pair.num_runs for pair in side))
      num_passed.append(sum(pair.counts for pair in side))
      known = [p for p in side if p.counts and metric in p.values]
      best = sorted(known, key=lambda pair: np.median(pair.values[metric]))[-1:]
      sides += best or [None]
    compared = None
    if None not in sides:
      compared = ratio(*(side.values[metric] for side in sides))
    yield Contest(target, *map(tuple, (sides, num_runs, num_passed)), compared)


def ratio(own, peer):
  """Returns the ratio of medians, with an interval from resampled seeds."""
  rng = np.random.default_rng(0)
  resampled = [
    np.median(rng.choice(values, [_NUM_RESAMPLES, len(values)]), axis=1)
    for values in (own, peer)
  ]
  low, high = np.percentile(resampled[0] / resampled[1], [10, 90])
  return Interval(
    float(np.median(own) / np.median(peer)), float(low), float(high)
  )
