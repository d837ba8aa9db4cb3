"""Outcomes of `sample_posterior` and of the panel's samplers side by side."""

import collections
import re
from typing import NamedTuple

import scipy.stats

from experiments.report import panel
from experiments.report import records

OURS = 'sample_posterior'
# All samplers of other libraries that the panel runs. Among the library's own,
# the sampler of each kind that passes most often.
SHOWN = (
  OURS,
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
# A target is solved if at least this share of its runs passes.
_ENOUGH = 0.8
# Standard errors beyond which a moment is wrong.
_FAR = 4.0
_NAMES = {
  'BrownianMotionUnknownScalesMissingMiddleObservations': 'Brownian motion',
  'stochastic_volatility_100_centered': 'S&P 500, 100 days, centered',
  'NonIdentifiableQuarticMeasurementModel': 'Quartic',
  'SyntheticItemResponseTheory': 'Item responses',
  'SyntheticLogGaussianCoxProcess': 'Cox process',
  'SyntheticPlasmaSpectroscopy': 'Plasma spectroscopy',
  'VectorizedStochasticVolatilitySP500': 'S&P 500',
  'VectorizedStochasticVolatilitySP500Small': 'S&P 500, 100 days, innovations',
}


class Outcome(NamedTuple):
  """Numbers of runs of a sampler on a target."""

  num_runs: int
  num_ended: int
  # Runs that pass the checks and are right.
  num_passed: int
  # Runs that pass the checks, and the wrong runs among them.
  num_within: int
  num_wrong: int
  # The same for runs without divergences, as far as samplers report these.
  num_steady: int
  num_steady_wrong: int


def is_far(run, moment='z'):
  """Returns whether a run's worst error is known and larger than chance."""
  return run[moment] is not None and abs(run[moment]) > _FAR


def outcomes():
  """Returns {sampler: {target: `Outcome`}}.

  The verdict of `sample_posterior` refuses runs that diverge. Its accepted runs
  therefore count as steady.
  """
  found = collections.defaultdict(dict)
  runs = records.rows('front_door', 'target')
  for target, of_target in records.groups(runs, 'target'):
    found[OURS][target] = total(map(_of_run, of_target))
  for pair in panel.pairs().values():
    counts = pair.outcomes
    steady = pair.steady or {'passed': 0, 'biased': 0}
    found[pair.method][pair.target] = Outcome(
      pair.num_seeds - counts['refused'],
      sum(counts[kind] for kind in _ENDED),
      counts['passed'],
      counts['passed'] + counts['biased'],
      counts['biased'],
      steady['passed'] + steady['biased'],
      steady['biased'],
    )
  return found


def _of_run(run):
  is_within, is_wrong = run['passes_gates'], is_far(run)
  is_steady = is_within and run['converged']
  return Outcome(
    1,
    1,
    is_steady and not is_wrong,
    is_within,
    is_within and is_wrong,
    is_steady,
    is_steady and is_wrong,
  )


def total(found):
  """Returns the sum of `Outcome`s."""
  return Outcome(*map(sum, zip(*found)))


def in_order(found):
  """Returns the samplers that are shown, the best ones first."""
  keys = {
    sampler: (num_solved(by_target), total(by_target.values()).num_passed)
    for sampler, by_target in found.items()
  }
  return sorted(SHOWN, key=keys.get, reverse=True)


def num_solved(by_target):
  """Returns on how many targets a sampler passes in enough of its runs."""
  return sum(
    o.num_passed >= _ENOUGH * o.num_runs > 0 for o in by_target.values()
  )


def interval(count, num):
  """Returns Wilson's 95 % interval of a share, in percent."""
  found = scipy.stats.binomtest(count, num).proportion_ci(method='wilson')
  return 100 * found.low, 100 * found.high


def name(sampler):
  """Returns a sampler's name as it is shown."""
  return f'TFP {sampler}' if sampler in _OF_TFP else sampler


def target_name(target):
  """Returns a target's name in words."""
  in_words = re.sub('_|(?<=[a-z])(?=[A-Z])', ' ', target)
  return _NAMES.get(target, in_words)
