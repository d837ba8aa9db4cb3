"""Cells joined over seeds: medians, 80 % intervals, and what became of runs."""

from typing import NamedTuple
from typing import Optional

import numpy as np

from tfp_adaptive.posterior import verdict

__all__ = [
  'METRICS',
  'NOT_RUN',
  'OUTCOMES',
  'Contest',
  'Interval',
  'Pair',
  'contests',
  'least_ess',
  'outcome',
  'ratio',
  'summarize',
]

# What becomes of a cell, the best first.
OUTCOMES = (
  'passed',
  'biased',
  'not converged',
  'out of time',
  'failed',
  'refused',
  'not installed',
)
# Samplers of papers that are here to compare with; no more the library's than
# its peers.
_COMPARED = ('fisher_mala', 'variance_ratio_mala')
# Of these there is one record, for all seeds, and nothing was run.
NOT_RUN = ('refused', 'not installed')
_LOW, _HIGH = 10, 90
_FEWEST_PASSED = 0.5
_NUM_RESAMPLES = 2000
# Metrics of runs that were compared with the truth.
_OF_TRUTH = ('worst_bias', 'mean_bias')


class Interval(NamedTuple):
  """Median over seeds and the middle 80 % of them."""

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
  # {outcome: number}, of runs of which at most one draw in 200 diverged;
  # `None` where that is not known.
  steady: Optional[dict]
  # {name in METRICS: `Interval`}, of what each is defined for.
  metrics: dict
  # {name in METRICS: values over seeds}.
  values: dict
  # (gradients per chain, worst b^2, mean b^2), each [num_seeds, points], None.
  curves: Optional[tuple]
  # The largest |z| of the seeds that were judged, of how many comparisons.
  worst_z: Optional[float]
  num_comparisons: int
  # First line of what went wrong first.
  error: Optional[str]

  @property
  def num_seeds(self):
    return sum(self.outcomes.values())

  @property
  def num_runs(self):
    return self.num_seeds - sum(self.outcomes[kind] for kind in NOT_RUN)

  @property
  def share_passed(self):
    return self.outcomes['passed'] / max(self.num_seeds, 1)

  @property
  def counts(self):
    """Whether enough seeds passed for its efficiency to mean something."""
    return self.share_passed >= _FEWEST_PASSED


class Contest(NamedTuple):
  """The best of either side on a target, by one metric."""

  target: str
  own: Optional[Pair]
  peer: Optional[Pair]
  # Of the own best over the peers' best; None unless both are there.
  ratio: Optional[Interval]
  # Runs of either side, passed or not.
  num_runs: tuple
  # Samplers of either side that passed, whether or not the metric is known.
  num_passed: tuple


def least_ess(record):
  """Returns the effective draws in bulk and tails of the worst coordinate."""
  sizes = record['min_ess_bulk'], record['min_ess_tail']
  return None if None in sizes else min(sizes)


def _median_ess(record):
  return record['ess']['median']


def _per_gradient(size, in_all=False):
  """Returns a function of a record: per 1000 gradients, of all chains."""

  def value(record):
    spent, ess = record['gradients_per_chain'], size(record)
    if spent is None or ess is None:
      return None
    num = spent['sampling'] + in_all * spent['adaptation']
    return 1000.0 * ess / (record['num_chains'] * num)

  return value


def _per_second(size):
  """Returns a function of a record; nothing of what Python calls drive."""

  def value(record):
    seconds, ess = _own_seconds(record), size(record)
    return None if not seconds or ess is None else ess / seconds

  return value


def _warm(record):
  """Seconds of adaptation and sampling, compilation apart."""
  return record['seconds']['adaptation'] + record['seconds']['sampling']


def _own_seconds(record):
  """Returns the same; None where they hold what is not the sampler's."""
  # Python hands nutpie each gradient here.
  is_driven = record['method_name'] == 'nutpie'
  # XLA compiles it for every seed; where that is not told apart, it is inside.
  has_compiled = (
    record['method_name'] == 'windowed_nuts'
    and not record['seconds']['compile']
  )
  return None if is_driven or has_compiled else _warm(record)


def _cold(record):
  """The same with compilation, of runs that had to compile."""
  if not record['is_cold']:
    return None
  return _warm(record) + record['seconds']['compile']


def _final_bias(kind):
  def value(record):
    curve = record['squared_bias']
    return None if curve is None else curve[kind][-1]

  return value


# {name: (function of a record, whether only of runs that passed)}.
METRICS = {
  'min_ess_per_gradient': (_per_gradient(least_ess), True),
  'median_ess_per_gradient': (_per_gradient(_median_ess), True),
  'min_ess_per_gradient_in_all': (_per_gradient(least_ess, True), True),
  'min_ess_per_second': (_per_second(least_ess), True),
  'warm_seconds': (_own_seconds, False),
  'cold_seconds': (_cold, False),
  'rhat_max': (lambda r: r['rhat_max'], False),
  'worst_bias': (_final_bias('worst'), False),
  'mean_bias': (_final_bias('mean'), False),
  'accept_rate': (lambda r: r['accept_rate'], False),
}


def outcome(record):
  """Returns the one of `OUTCOMES` that a record tells of."""
  if record['status'] != 'finished':
    return record['status']
  if record['missed']:
    return 'not converged'
  return 'biased' if record['is_biased'] else 'passed'


def summarize(records):
  """Returns {(target, method): `Pair`} of records, one for each cell."""
  groups = {}
  for record in records:
    name = record['target'], record['method']
    groups.setdefault(name, []).append(record)
  return {name: _pair(name, group) for name, group in groups.items()}


def _pair(name, records):
  finished = [r for r in records if r['status'] == 'finished']
  values = {
    metric: _values(finished, function, of_passed)
    for metric, (function, of_passed) in METRICS.items()
  }
  judged = [r for r in finished if r['is_biased'] is not None]
  is_compared = all(record['squared_bias'] for record in finished)
  if not is_compared:
    # Of some only those have a truth that pass the gates: no fair sample.
    values = {k: v[:0] if k in _OF_TRUTH else v for k, v in values.items()}
  errors = [r['error'] for r in records if r.get('error')]
  return Pair(
    *name,
    is_peer=records[0]['is_peer'] or records[0]['method_name'] in _COMPARED,
    outcomes=_counts(records),
    steady=_steady(finished),
    metrics={k: interval(v) for k, v in values.items() if len(v)},
    values=values,
    curves=_curves(finished) if is_compared else None,
    worst_z=max((abs(r['z']['worst']) for r in judged), default=None),
    num_comparisons=sum(r['z']['num_comparisons'] for r in judged),
    error=errors[0].strip().splitlines()[0] if errors else None,
  )


def _counts(records):
  found = [outcome(record) for record in records]
  return {kind: found.count(kind) for kind in OUTCOMES}


def _steady(records):
  """Counts runs of which no more diverges than `sample_posterior` admits.

  `None` of a sampler that does not tell, as an exchange of replicas.
  """
  if any(record['num_diverging'] is None for record in records):
    return None
  return _counts(filter(_is_steady, records))


def _is_steady(record):
  num_draws = record['num_chains'] * record['num_results']
  return record['num_diverging'] <= verdict.MOST_DIVERGING * num_draws


def _values(records, function, of_passed):
  if of_passed:
    records = [r for r in records if outcome(r) == 'passed']
  found = [function(record) for record in records]
  return np.asarray([value for value in found if value is not None], float)


def _curves(records):
  curves = [record['squared_bias'] for record in records]
  curves = [c for c in curves if c['gradients'] is not None]
  if not curves:
    return None
  # Of a sampler of random cost every run has a grid of its own: one for all.
  ends = [(c['gradients'][0], c['gradients'][-1]) for c in curves]
  first, last = max(e[0] for e in ends), min(e[1] for e in ends)
  if first >= last:  # Nowhere of all.
    return None
  grid = np.geomspace(first, last, len(curves[0]['gradients']))
  on_grid = [
    [_on_grid(grid, c['gradients'], c[name]) for c in curves]
    for name in ('worst', 'mean')
  ]
  return np.tile(grid, [len(curves), 1]), *map(np.asarray, on_grid)


def _on_grid(grid, gradients, values):
  # Where a step takes none, a number comes twice.
  gradients, places = np.unique(gradients, return_index=True)
  return np.interp(grid, gradients, np.asarray(values)[places])


def interval(values):
  """Returns the `Interval` of values."""
  return Interval(*(float(v) for v in np.percentile(values, [50, _LOW, _HIGH])))


def contests(pairs, metric):
  """Returns a `Contest` for each target, in the order of `pairs`.

  Args:
    pairs: of `summarize`.
    metric: name of one of which more is better.
  """
  targets = dict.fromkeys(target for target, _ in pairs)
  found = []
  for target in targets:
    sides, num_runs, num_passed = [], [], []
    for is_peer in (False, True):
      side = [
        pair
        for (where, _), pair in pairs.items()
        if where == target and pair.is_peer == is_peer
      ]
      num_runs.append(sum(pair.num_runs for pair in side))
      num_passed.append(sum(pair.counts for pair in side))
      side = [p for p in side if p.counts and metric in p.metrics]
      side.sort(key=lambda pair: pair.metrics[metric].median)
      sides.append(side[-1] if side else None)
    own, peer = sides
    both = own is not None and peer is not None
    compared = ratio(own.values[metric], peer.values[metric]) if both else None
    counts = tuple(num_runs), tuple(num_passed)
    found.append(Contest(target, own, peer, compared, *counts))
  return found


def ratio(own, peer):
  """Returns the ratio of medians, its interval by resampling the seeds."""
  rng = np.random.default_rng(0)
  resampled = [
    np.median(rng.choice(values, [_NUM_RESAMPLES, len(values)]), axis=1)
    for values in (own, peer)
  ]
  low, high = np.percentile(resampled[0] / resampled[1], [_LOW, _HIGH])
  return Interval(
    float(np.median(own) / np.median(peer)), float(low), float(high)
  )
