"""Rank-based R-hat and effective sample sizes of the draws of a run.

Chains are split in halves, which detects a chain that drifts. Normal scores of
ranks replace the draws, so that heavy tails do no harm. With 256 chains or
more, R-hat is nested, so that chains may be short (`nested_rhat`). No number
here detects a region that all chains miss.

ArviZ computes the same numbers, up to rounding, in twice the time: 0.66 s
instead of 0.35 s for 1000 draws of 8 chains and 100 coordinates on one CPU. But
it does not group chains by their starts for the nested R-hat, and does not
bound the memory for draws on disk.

Source: Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021), Rank-
normalization, folding, and localization, https://arxiv.org/abs/1903.08008.
"""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy import special

from tfp_adaptive.driver import nested_rhat

# With fewer draws, even a good run may have an R-hat above 1.01.
FEWEST_DRAWS = 100
LARGEST_RHAT = 1.01
LEAST_ESS = 400.0
# Most numbers in memory for a group of coordinates, and for one coordinate. The
# draws of one coordinate are thinned above that. A number takes about 90 bytes.
MOST_AT_ONCE = 2**20
_MOST_OF_ONE = 2**22
_MOST_RANKED_AT_ALL = 2**24  # Ranking each number takes some microseconds.
_FEWEST_ROWS = 16  # Fewest draws of a chain that thinning leaves.
_MOST_RANKED = 256  # Most coordinates to rank, worst by `_bounded_rhat`.
_MOST_RANKED_NUMBERS = 2**23  # Most ranked numbers with many chains.
FEWEST_RANKED = 4
_BLOCK = 256  # Most coordinates at a time; fewer for many chains.
_TAIL = 0.05


class Diagnosis(NamedTuple):
  """Diagnostics of coordinates, [d] each; NaN for coordinates that never moved.

  The standard errors of a mean and of a standard deviation follow from
  `ess_moments`.
  """

  # The larger R-hat of ranks and of folded ranks. With 256 chains or more, both
  # are nested, see `nested_rhat`.
  rhat: np.ndarray
  ess_bulk: np.ndarray  # Draws of all chains, for normal scores of ranks.
  ess_tail: np.ndarray  # The smaller ESS of the two tail indicators.
  # The smaller ESS of the draws and of their squared deviations.
  ess_moments: np.ndarray


# With these signs the smallest value of a field is the worst.
_SIGNS = dict(rhat=-1.0, ess_bulk=1.0, ess_tail=1.0, ess_moments=1.0)


def diagnose(draws):
  """Returns the `Diagnosis` of draws [n, chains, d].

  With fewer than 4 draws of a chain, every number is NaN.
  """
  if len(draws) < FEWEST_RANKED:
    return Diagnosis(
      *np.full([len(Diagnosis._fields), draws.shape[-1]], np.nan)
    )
  blocks = [_of_block(halves) for halves in _blocks_of_halves(draws)]
  return Diagnosis(*(np.concatenate(column) for column in zip(*blocks)))


def worst(states, num_chain_dims):
  """Returns {field of `Diagnosis`: (value, name of the coordinate)}.

  The value is the largest R-hat or the smallest ESS. A field is left out if it
  is NaN for all coordinates, for example because none ever moved. `states` are
  arrays [draws, chains..., event...], or a structure of such arrays.
  """
  parts = tf.nest.flatten(states)
  found = {}
  for number, part in enumerate(parts):
    if not part.size:
      continue
    events = part.shape[1 + num_chain_dims :]
    for coordinates, draws in _columns(part, num_chain_dims):
      diagnosis = diagnose(draws)
      for field in Diagnosis._fields:
        of_group = worst_of(diagnosis, field)
        if of_group is None:
          continue
        value, place = of_group
        sign = _SIGNS[field]
        if field not in found or sign * value < sign * found[field][0]:
          index = np.unravel_index(coordinates[place], events)
          found[field] = value, _name(index, number, len(parts))
  return found


def still(states, num_chain_dims):
  """Returns names of coordinates with one value in all draws of all chains."""
  parts, found = tf.nest.flatten(states), []
  for number, part in enumerate(parts):
    axes = tuple(range(num_chain_dims + 1))
    first = part[:1]
    first = first[(slice(None), *(slice(1) for _ in axes[1:]))]
    # Draws on disk are read only if the ends of the chains agree.
    is_still = np.all(first == part[:1], axis=axes)
    is_still &= np.all(first == part[-1:], axis=axes)
    for rows in [part] if isinstance(part, np.ndarray) else part.blocks():
      if not np.any(is_still):
        break
      is_still &= np.all(rows == first, axis=axes)
    found += [_name(i, number, len(parts)) for i in np.argwhere(is_still)]
  return found


def thinning(num_draws, num_chains, num_ranked=1):
  """Returns the thinning with which draws are judged; 1 for most runs."""
  numbers = num_draws * num_chains
  every = -(-numbers // min(_MOST_OF_ONE, _MOST_RANKED_AT_ALL // num_ranked))
  return max(1, min(every, num_draws // _FEWEST_ROWS))


def thinning_of(part, num_chain_dims):
  """Returns the thinning of the draws of one part that `worst` judges."""
  if not isinstance(part, np.ndarray):
    return part.thinning
  num_chains = math.prod(part.shape[1 : 1 + num_chain_dims])
  size = math.prod(part.shape[1 + num_chain_dims :])
  return thinning(len(part), num_chains, max(1, min(size, _MOST_RANKED)))


def worst_of(diagnosis, field):
  """Returns (value, index) of the worst coordinate; None if all are NaN."""
  values = getattr(diagnosis, field)
  if np.all(np.isnan(values)):
    return None
  index = int(np.nanargmin(_SIGNS[field] * values))
  return float(values[index]), index


def _columns(part, num_chain_dims):
  """Yields (coordinates [g], draws [n, chains, g]) of coordinates to rank."""
  if not isinstance(part, np.ndarray):
    # Draws on disk are read once, so all coordinates are ranked.
    yield from part.columns()
    return
  num_chains = math.prod(part.shape[1 : 1 + num_chain_dims])
  rows = part.reshape(len(part), num_chains, -1)
  rows = rows[:: thinning_of(part, num_chain_dims)]
  suspects = _suspects(rows)
  yield suspects, rows[:, :, suspects]


def _suspects(rows):
  """Returns indices of the coordinates to rank, [at most `_MOST_RANKED`]."""
  numbers, size = rows.shape[0] * rows.shape[1], rows.shape[2]
  most = _MOST_RANKED
  if rows.shape[1] >= nested_rhat.FEWEST_CHAINS:
    most = min(most, max(FEWEST_RANKED, _MOST_RANKED_NUMBERS // numbers))
  if size <= most:
    return np.arange(size)
  rhat = [_bounded_rhat(halves) for halves in _blocks_of_halves(rows)]
  order = np.argsort(-np.nan_to_num(np.concatenate(rhat), nan=-np.inf))
  return np.sort(order[:most])


def _blocks_of_halves(draws):
  """Yields `_halves` of blocks of coordinates, to bound the memory."""
  numbers = draws.shape[0] * draws.shape[1]
  width = max(1, min(_BLOCK, 4 * MOST_AT_ONCE // numbers))
  for start in range(0, draws.shape[2], width):
    yield _halves(draws[:, :, start : start + width])


def _halves(draws):
  """Returns half chains [n / 2, 2 chains, d] of [n, chains, d], float64."""
  half = len(draws) // 2
  draws = np.asarray(draws[: 2 * half], np.float64)
  return np.concatenate([draws[:half], draws[half:]], axis=1)


def _of_block(draws):
  """Returns the fields of `Diagnosis` of half chains, [d] each."""
  folded = np.abs(draws - np.median(draws, axis=(0, 1)))
  scores = _normal_scores(draws)
  low, high = np.quantile(draws, (_TAIL, 1.0 - _TAIL), axis=(0, 1))
  tails = [_ess(np.float64(draws <= low)), _ess(np.float64(draws >= high))]
  moments = np.fmin(_ess(draws), _ess((draws - np.mean(draws, (0, 1))) ** 2))
  rhat = np.fmax(_rhat(scores), _rhat(_normal_scores(folded)))
  has_moved = np.ptp(draws, axis=(0, 1)) > 0.0
  return tuple(
    np.where(has_moved, values, np.nan)
    for values in (rhat, _ess(scores), np.fmin(*tails), moments)
  )


def _normal_scores(draws):
  """Returns normal quantiles of ranks over all chains; ties share a rank."""
  flat = draws.reshape(-1, draws.shape[-1])
  from scipy import stats  # The import takes half a second.

  share = (stats.rankdata(flat, axis=0) - 0.375) / (len(flat) + 0.25)
  return special.ndtri(share).reshape(draws.shape)


def _rhat(halves):
  if halves.shape[1] >= 2 * nested_rhat.FEWEST_CHAINS:
    return nested_rhat.nested_rhat(nested_rhat.by_beginning(halves))
  n = len(halves)
  between = halves.mean(axis=0).var(axis=0, ddof=1)
  with np.errstate(all='ignore'):
    within = halves.var(axis=0, ddof=1).mean(axis=0)
    return np.sqrt((n - 1.0) / n + between / within)


def _bounded_rhat(halves):
  """Returns an R-hat that heavy tails and spreads show in, without ranks, [d].

  It is the larger R-hat of y = arctan((x - median) / MAD) and of |y|.
  """
  centred = halves - np.median(halves, axis=(0, 1))
  scale = np.median(np.abs(centred), axis=(0, 1))
  bounded = np.arctan(centred / np.where(scale > 0.0, scale, 1.0))
  return np.fmax(_rhat(bounded), _rhat(np.abs(bounded)))


def _ess(halves):
  """Returns the effective size of all half chains, [d].

  With N draws in all, and autocorrelations rho_t, the size is

    N / (1 + 2 sum_{t > 0} rho_t), at most N log10 N.

  By Geyer's rule the sum runs over pairs rho_2t + rho_(2t+1). The sum ends at
  the first negative pair, and no pair counts more than the pair before it.
  """
  n, m = halves.shape[:2]
  centred = halves - halves.mean(axis=0)
  spectrum = np.abs(np.fft.rfft(centred, 2 * n, axis=0)) ** 2
  covariance = np.fft.irfft(spectrum, axis=0)[:n].mean(axis=1) / n
  within = covariance[0] * n / (n - 1.0)
  total = covariance[0] + halves.mean(axis=0).var(axis=0, ddof=1)
  with np.errstate(all='ignore'):
    rho = 1.0 - (within - covariance) / total
  rho[0] = 1.0
  pairs = rho[: n - n % 2].reshape(n // 2, 2, -1).sum(axis=1)
  pairs = np.minimum.accumulate(pairs, axis=0)
  time = -1.0 + 2.0 * np.maximum(pairs, 0.0).sum(axis=0)
  return n * m / np.maximum(time, 1.0 / np.log10(n * m))


def _name(index, part, num_parts):
  of_part = f' of part {part}' if num_parts > 1 else ''
  if not index:
    return f'the state{of_part}'
  shown = index[0] if len(index) == 1 else tuple(int(i) for i in index)
  return f'coordinate {shown}{of_part}'
