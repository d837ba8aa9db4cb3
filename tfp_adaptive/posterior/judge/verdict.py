"""Checks draws, and names the worst coordinate of each check that fails."""

from typing import Any
from typing import NamedTuple

import numpy as np

from tfp_adaptive.driver import convergence
from tfp_adaptive.posterior.judge import tails as tails_lib
from tfp_adaptive.posterior.model import problem

# A proposal counts as diverging at this log acceptance ratio or below. Runs
# that rightly passed had at most 2 divergences in 8000 proposals with a matrix,
# and 24 with a map. Chains that missed a narrow region (100 days of volatility,
# non-centered) had 210 to 350.
_NEVER = -20.0
# Largest share of draws that may have a diverging proposal.
MOST_DIVERGING = 0.005
# The same if steps were made smaller because proposals diverged. On the same
# 100 days, chains with a share of 0.0014 then missed as much of the tail as
# chains with a share of 0.02.
MOST_DIVERGING_OF_CAREFUL = 0.001
# Above it, chains disagree: they are in different regions, or mix slowly.
DISAGREEING_RHAT = 1.1
# If min_ess is more than this many times the smallest effective size, the
# chains adapt again.
_FAR_FROM_ENOUGH = 16.0
# Largest gap between adjacent floats, in deviations of a coordinate.
_MOST_COARSE = 0.1
# A coordinate that is not constant changes by more than this many gaps between
# adjacent floats, somewhere far from the draws.
_FAR_IN_GAPS = 1000.0
# Name of a function of the draws: whether their first proposals diverge. Chains
# that reach a narrow region by steps that are tried again must agree on how
# often they are there.
NARROW = 'visits of narrow regions'
# Variances are reported if a larger share of them lies at these visits. On
# 100 days of volatility, non-centered, standard deviations that were 4 to 10
# standard errors off had 0.06 or more, and most coordinates less than 0.04.
LARGEST_SHARE_OF_VISITS = 0.05
# Fields of `Diagnosis` with effective sizes, and their names.
SIZES = (
  ('ess_bulk', 'bulk ESS'),
  ('ess_tail', 'tail ESS'),
  ('ess_moments', 'ESS of draws and squares'),
)


class Verdict(NamedTuple):
  """Results of all checks."""

  # Names of the coordinates, 'log density', and `NARROW` if steps were tried
  # again.
  names: list
  diagnosis: convergence.Diagnosis  # One number for each name.
  tails: tails_lib.Tails
  # Share of draws that had a diverging proposal, see `is_diverging`.
  share_diverging: float
  # Name of the coordinate whose mean changes most where proposals diverge, or
  # ''.
  where_diverging: str
  most_diverging: float  # Largest `share_diverging` that passes.
  failed: list  # Sentences, one for each check that failed.
  # Indices of the chains that never moved although others did.
  still_chains: tuple = ()
  is_too_short: bool = False  # Whether there are too few draws to judge.
  share_visiting: float = 0.0  # Share of draws that visit a narrow region.
  # The share of each coordinate's variance at these draws, [d].
  shares_of_variance: Any = ()

  def worst(self, field):
    """Returns (value, name) of the worst coordinate; `None` if all are NaN."""
    found = convergence.worst_of(self.diagnosis, field)
    return found and (found[0], self.names[found[1]])

  @property
  def heavy_tails(self):
    """dict of name -> Pareto k of squares, if the variance's error is unknown.

    The heaviest comes first. Heavy tails fail no check, because ranks and
    quantiles are right.
    """
    return self._named(self.tails.is_heavy[1], self.tails.square)

  @property
  def heavy_means(self):
    """dict of name -> Pareto k of draws, if the mean's error is unknown."""
    return self._named(self.tails.is_heavy[0], self.tails.value)

  @property
  def doubts(self):
    """Sentences on moments without a reliable error; all checks may pass."""
    found = (self.heavy_means, 'mean'), (self.heavy_tails, 'variance')
    return [_doubt(heavy, moment) for heavy, moment in found if heavy]

  @property
  def narrow_variances(self):
    """dict of name -> share of the variance where chains move slowly.

    The largest share comes first. If chains missed a part of a narrow region,
    these variances are wrong, and no check of draws sees it.
    """
    shares = np.asarray(self.shares_of_variance)
    return self._named(shares > LARGEST_SHARE_OF_VISITS, shares)

  @property
  def narrow(self):
    """A sentence on narrow regions, or ''; it fails no check.

    No diagnostic of draws sees a part of such a region that no chain entered.
    """
    found = self.narrow_variances
    if self.share_visiting <= MOST_DIVERGING and not found:
      return ''
    told = (
      f'at {100.0 * self.share_visiting:.2g}% of the draws a step of the usual '
      'size diverged, and chains move slowly there'
    )
    if found:
      name, share = next(iter(found.items()))
      told += f'; these draws have {share:.0%} of the variance of {name}'
      if len(found) > 1:
        told += (
          f' and over {LARGEST_SHARE_OF_VISITS:.0%} of {len(found) - 1} more'
        )
    return told + (
      '; parts of this region that no chain has entered may change the '
      'moments: compare with another `seed`'
    )

  def asks_for_draws(self, min_ess):
    """Whether a check fails that may pass with more draws."""
    rhat = self.worst('rhat')
    return rhat is not None and (
      rhat[0] > convergence.LARGEST_RHAT or self._smallest_size < min_ess
    )

  def is_far_from_enough(self, min_ess):
    """Whether draws are so far from passing that another adaptation pays."""
    rhat = self.worst('rhat')
    if rhat is None or rhat[0] > DISAGREEING_RHAT:
      return True
    # The stricter limit `MOST_DIVERGING_OF_CAREFUL` does not count here,
    # because another adaptation of chains whose steps were made smaller does
    # not make divergences rarer.
    if self.share_diverging > max(self.most_diverging, MOST_DIVERGING):
      return True
    return self._smallest_size * _FAR_FROM_ENOUGH < min_ess

  def advice(self, is_unusable: bool) -> str:
    """Returns what to do about draws that cannot be relied on.

    A cause is checked before the failures that it explains. For example, chains
    in several modes diverge wherever a step leads between the modes. If
    `is_unusable`, a check failed whose message has the advice.
    """
    rhat = self.worst('rhat')
    if is_unusable:
      return (
        'follow the advice in the failed check above; more draws do not help'
      )
    if self.is_too_short:
      return 'continue with `posterior.more(n)`, or give more time'
    if rhat is None:
      return (
        'no step was accepted: check the density and its gradient, and that '
        'the scales of its unknowns are not too far from 1'
      )
    if self.still_chains:
      return (
        'start the chains nearer to each other by `init`, or write the model '
        'in float64, because chains that never moved say nothing about the '
        'posterior'
      )
    if rhat[0] > DISAGREEING_RHAT:
      return (
        'chains disagree; if they are in different modes, do not average over '
        'them; otherwise give more `max_gradients`, or reparameterize'
      )
    if self.where_diverging and (self.share_diverging > self.most_diverging):
      return (
        f'look at {self.where_diverging}, whose values are unusual where steps '
        'diverge: reparameterize it, or give it a prior that avoids this region'
      )
    return 'continue with `posterior.more(n)`, or give more `max_gradients`'

  @property
  def disagrees(self) -> bool:
    """Whether R-hat exceeds `DISAGREEING_RHAT`."""
    rhat = self.worst('rhat')
    return rhat is not None and rhat[0] > DISAGREEING_RHAT

  @property
  def _smallest_size(self):
    """The least effective size of all coordinates and kinds."""
    sizes = [self.worst(field) for field, _ in SIZES]
    return min((size for size, _ in filter(None, sizes)), default=0.0)

  def _named(self, are_chosen, values):
    """Returns the chosen of values [d] by name, the largest first."""
    order = np.flatnonzero(are_chosen)
    order = order[np.argsort(-values[order], kind='stable')]
    return {self.names[i]: float(values[i]) for i in order}

  def __repr__(self):
    lines = []
    rhat = self.worst('rhat')
    if rhat:
      lines.append(f'R-hat at most {rhat[0]:.3f} ({rhat[1]})')
    sizes = [(words, self.worst(field)) for field, words in SIZES]
    worst = [f'{w} {found[0]:.0f} ({found[1]})' for w, found in sizes if found]
    lines += [f'at least: {", ".join(worst)}'] if worst else []
    lines += [f'heavy tails: {sentence}' for sentence in self.doubts]
    lines += [f'narrow regions: {self.narrow}'] if self.narrow else []
    lines += [f'failed: {sentence}' for sentence in self.failed]
    return '\n'.join(lines)


def coordinates(names, parts):
  """Returns names [d] and values [n, chains, d] of all coordinates of parts."""
  shapes = [part.shape[2:] for part in parts]
  columns = [part.reshape(*part.shape[:2], -1) for part in parts]
  labels = list(problem.coordinate_names(names, shapes))
  return labels, np.concatenate(columns, axis=-1)


@np.errstate(all='ignore')  # A check reports overflow.
def judge(names, values, trace, min_ess, most_diverging=MOST_DIVERGING):
  """Returns the `Verdict` of values [n, chains, d] of named coordinates.

  `trace` is a dict of [n, chains] with `target_log_prob`, and with what
  `is_diverging` reads if the kernel records it.
  """
  log_prob = trace['target_log_prob']
  diverging = is_diverging(trace)
  where = _where(names, values, diverging)
  size, seen = len(names), [values, log_prob[..., np.newaxis]]
  names = [*names, 'log density']
  visits = are_visits(trace)
  shares = shares_of_variance(values, visits)
  if np.any(visits):
    names.append(NARROW)
    seen.append(visits[..., np.newaxis].astype(values.dtype))
  values = np.concatenate(seen, axis=-1)
  diagnosis = convergence.diagnose(values)
  of_tails = tails_lib.of_draws(values[..., :size], diagnosis.ess_tail[:size])
  share = float(np.mean(diverging))
  still = _still_chains(values)
  verdict = Verdict(
    names,
    diagnosis,
    of_tails,
    share,
    where,
    most_diverging,
    [],
    still,
    len(values) < convergence.FEWEST_RANKED,
    float(np.mean(visits)),
    shares,
  )
  verdict.failed.extend(_not_numbers(names, values))
  if verdict.is_too_short:
    number = '1 draw' if len(values) == 1 else f'{len(values)} draws'
    verb = 'is' if len(values) == 1 else 'are'
    verdict.failed.append(f'{number} of each chain {verb} too few to judge')
    return verdict
  # Non-finite draws have no ranks, so 'no chain ever moved' may be wrong.
  if not verdict.failed or verdict.worst('rhat') is not None:
    verdict.failed.extend(_failures(verdict, min_ess))
  return verdict


def is_diverging(trace):
  """Returns which draws had a diverging proposal, [n, chains] bool.

  The kernel says so, or the log acceptance ratio is at most -20 or is NaN. If
  a draw has several steps, the least ratio counts. If a step was tried again,
  the ratio of its second proposal counts.
  """
  shape = trace['target_log_prob'].shape
  diverging = trace.get('diverging', np.zeros(shape, bool))
  ratio = trace.get('least_log_accept_ratio', trace.get('log_accept_ratio'))
  return diverging if ratio is None else diverging | ~(ratio > _NEVER)


def are_visits(trace):
  """Returns which draws visit a narrow region, [n, chains] bool.

  There the first proposal diverges, and the step may be tried again.
  """
  shape = trace['target_log_prob'].shape
  return trace.get('least_first_ratio', np.zeros(shape)) <= _NEVER


def shares_of_variance(values, visits):
  """Returns the share of each variance at visits [n, chains], [d].

  The values are [n, chains, d]. The share is 0 for values that are constant or
  not finite.
  """
  if not np.any(visits):
    return np.zeros(values.shape[-1])
  with np.errstate(all='ignore'):
    squares = (values - np.mean(values, axis=(0, 1))) ** 2
    shares = np.sum(squares[visits], axis=0) / np.sum(squares, axis=(0, 1))
  return np.nan_to_num(shares)


def stuck(names, draws):
  """Yields a sentence if a coordinate never moved, or takes few values only.

  R-hat and effective sizes of such a coordinate are NaN or not reliable. It
  takes few values if adjacent floats of the dtype lie too far apart. Another
  check fails if no coordinate moved at all. Names and draws [n, chains, d] are
  those of unconstrained coordinates.
  """
  is_stuck = np.ptp(draws, axis=(0, 1)) == 0.0
  if np.any(is_stuck) and not np.all(is_stuck):
    first = int(np.argmax(is_stuck))
    others = int(np.sum(is_stuck)) - 1
    more = f', nor did {others} more' if others else ''
    dtype = draws.dtype.name
    other = ', or write the model in float64' if dtype == 'float32' else ''
    yield (
      f'{names[first]} never moved from {draws[0, 0, first]:.6g}{more}; its '
      f'spread may be smaller than the rounding of {dtype}: subtract a constant'
      f'{other}'
    )
    return
  with np.errstate(all='ignore'):
    gap = np.spacing(np.max(np.abs(draws), axis=(0, 1)))
    share = gap / np.std(draws, axis=(0, 1), dtype=np.float64)
  share = np.where(np.isfinite(share), share, 0.0)
  worst = int(np.argmax(share))
  if share[worst] > _MOST_COARSE:
    yield (
      f'{names[worst]} is about {draws[0, 0, worst]:.3g}, where adjacent '
      f'{draws.dtype.name} numbers are {share[worst]:.2g} of its standard '
      f'deviation apart (at most {_MOST_COARSE} is allowed): pass '
      '`dtype=tf.float64`, write the model in float64, or subtract a constant'
    )


def rounded(names, values, is_unknown, beyond):
  """Yields a sentence if the dtype of the supports hides an unknown's spread.

  Draws may be made in float64 and shown in float32. If all become one number,
  R-hat and effective sizes are NaN, and no other check fails. A coordinate
  that is constant by itself, such as a zero of a triangular matrix, passes.

  Args:
    names: Names of coordinates.
    values: Draws on the supports, [n, chains, d].
    is_unknown: Which coordinates are checked, [d] bools. Computed ones are not.
    beyond: Function without arguments that returns values on the supports,
      [m, d], at points that lie further and further from the draws. It is
      called only if a coordinate is constant or coarse.
  """
  with np.errstate(all='ignore'):
    gap = np.spacing(np.max(np.abs(values), axis=(0, 1)))
    spread = np.std(values, axis=(0, 1), dtype=np.float64)
    share = np.where(is_unknown, gap / spread, 0.0)
    if not np.any(share > _MOST_COARSE):
      return
    change = np.abs(beyond() - values[0, 0])
    change = np.max(np.where(np.isfinite(change), change, 0.0), axis=0)
  share = np.where(change > _FAR_IN_GAPS * gap, share, 0.0)
  worst = int(np.argmax(share))
  if share[worst] > _MOST_COARSE:
    dtype = values.dtype.name
    apart = (
      'further apart than its draws'
      if np.isinf(share[worst])
      else f'{share[worst]:.2g} of its standard deviation apart (at most '
      f'{_MOST_COARSE} is allowed)'
    )
    other = ', or write the model in float64' if dtype == 'float32' else ''
    yield (
      f'{names[worst]} of `states` is about {values[0, 0, worst]:.3g}, where '
      f'adjacent {dtype} numbers are {apart}: subtract a constant{other}'
    )


def _still_chains(values):
  """Returns the chains that never moved while others did, a tuple of ints."""
  is_still = np.all(values == values[:1], axis=(0, 2))
  return () if np.all(is_still) else tuple(np.flatnonzero(is_still).tolist())


def _not_numbers(names, values):
  """Yields a sentence if draws are not finite, which ranks do not show."""
  share = 1.0 - np.mean(np.isfinite(values), axis=(0, 1))
  if np.any(share > 0.0):
    worst = int(np.argmax(share))
    yield (
      f'{share[worst]:.2g} of the draws of {names[worst]} are not finite: '
      'check its support, or write the model in float64'
    )


def _failures(verdict, min_ess):
  """Yields a sentence for each check that fails."""
  if verdict.worst('rhat') is None:
    yield 'no chain ever moved'
    return
  still = verdict.still_chains
  if still:
    chains = ', '.join(map(str, still[:5])) + ', ...' * (len(still) > 5)
    yield (
      f'{len(still)} of the chains never moved from their start (number '
      f'{chains}): no step from there is accepted'
    )
  rhat, name = verdict.worst('rhat')
  if rhat > convergence.LARGEST_RHAT:
    yield (
      f'R-hat is {min(rhat, 1000.0):.3f} in {name}, above '
      f'{convergence.LARGEST_RHAT}'
    )
  for field, words in SIZES:
    found = verdict.worst(field)
    if found is None:
      yield f'{words} is not known: the draws are too large to be squared'
      continue
    size, name = found
    if size < min_ess:
      yield f'{words} is {size:.0f} in {name}, below {min_ess:.0f}'
  if verdict.share_diverging > verdict.most_diverging:
    share, most = (
      f'{100.0 * value:.3g}%'
      for value in (verdict.share_diverging, verdict.most_diverging)
    )
    yield (
      f'{share} of the draws had diverging proposals (at most {most} is '
      f'allowed). At these draws, the mean of {verdict.where_diverging} '
      'differs most from its mean over all draws: chains may miss a narrow '
      'region near these values'
    )


def _doubt(heavy, moment):
  """Returns the sentence on a 'mean' or 'variance' without a reliable error."""
  name, k = next(iter(heavy.items()))
  num_others = len(heavy) - 1
  others = f' and of {num_others} more coordinate(s)' if num_others else ''
  return (
    f'the draws give no reliable error for the {moment} of {name} (Pareto k '
    f'{k:.2f}){others}: use quantiles, or draw more'
  )


def _where(names, values, diverging):
  """Returns the name of the coordinate that differs most where steps diverge.

  The difference is that of means, in standard deviations of all draws.
  """
  if not np.any(diverging):
    return ''
  inside = np.mean(values[diverging], axis=0)
  gap = np.abs(inside - np.mean(values, axis=(0, 1)))
  spread = np.std(values, axis=(0, 1))
  return names[int(np.argmax(gap / np.where(spread > 0.0, spread, np.inf)))]
