"""Effective sample sizes and R-hat of recorded chains.

Sizes use Geyer's initial monotone sequence, as the papers' tables do:

  ESS = num_draws / max(1, -1 + 2 sum_m Gamma_m),
  Gamma_m = rho_{2m} + rho_{2m+1}

rho_t is the autocorrelation at lag t. The Gamma_m are summed while they are
positive, and are made non-increasing.

References: Geyer (1992), Practical Markov chain Monte Carlo, Section 3.3.
"""

import warnings
from typing import NamedTuple

import numpy as np
from arviz_stats.base import array_stats
from scipy import fft

# Coordinates transformed at once, which bounds the memory of the FFT.
_BLOCK = 64
# Number of coordinates of each kind that ArviZ sees if there are many.
_RANKED = 50


class Summary(NamedTuple):
  """Numbers for each coordinate, [event_size] each; sizes sum over chains."""

  ess: np.ndarray
  ess_squared: np.ndarray
  ess_bulk: np.ndarray
  ess_tail: np.ndarray
  rhat: np.ndarray


def autocorrelation(draws):
  """Returns autocorrelations at all lags, [num_draws, ...] float64.

  Args:
    draws: [num_draws, ...]. Each series uses its own mean; the autocovariance
      divides by num_draws at every lag. A constant series gives NaN.
  """
  draws = np.asarray(draws, np.float64)
  num_draws = len(draws)
  size = fft.next_fast_len(2 * num_draws, real=True)
  transformed = np.fft.rfft(draws - draws.mean(axis=0), n=size, axis=0)
  power = np.square(transformed.real) + np.square(transformed.imag)
  covariance = np.fft.irfft(power, n=size, axis=0)[:num_draws]
  is_constant = np.ptp(draws, axis=0) == 0
  return covariance / np.where(is_constant, np.nan, covariance[0])


def geyer_ess(draws, transform=lambda x: x):
  """Returns the effective sample size of each series.

  Args:
    draws: [num_draws, ...].
    transform: Elementwise function of the draws, in float64.

  Returns:
    [...] float64 between 0 and num_draws. As in the papers' tables, an
    antithetic chain counts as independent. A series that never moves, or is
    not finite, counts as 0.
  """
  draws = np.asarray(draws)
  flat = draws.reshape(len(draws), -1)
  blocks = [
    _geyer_block(transform(flat[:, start : start + _BLOCK].astype(np.float64)))
    for start in range(0, flat.shape[1], _BLOCK)
  ]
  return np.concatenate(blocks).reshape(draws.shape[1:])


def _geyer_block(draws):
  num_draws = len(draws)
  with np.errstate(invalid='ignore'):
    rho = autocorrelation(draws)
  num_pairs = num_draws // 2
  gamma = rho[0 : 2 * num_pairs : 2] + rho[1 : 2 * num_pairs : 2]
  gamma = np.minimum.accumulate(gamma, axis=0)
  gamma = np.where(gamma > 0, gamma, 0.0)
  time = np.maximum(1.0, -1.0 + 2.0 * gamma.sum(axis=0))
  is_known = np.all(np.isfinite(draws), axis=0) & np.isfinite(rho[0])
  return np.where(is_known, num_draws / time, 0.0)


def summarize(states):
  """Returns the `Summary` of states [num_draws, num_chains, event_size].

  ArviZ ranks one coordinate after the other. If there are many, it sees the
  worst by ESS, the worst by split R-hat and some evenly spaced ones. For all
  others, its sizes are NaN and R-hat is the plain split R-hat.
  """
  states = np.asarray(states)
  ess = geyer_ess(states).sum(axis=0)
  rhat = split_rhat(states)
  seen = _ranked_coordinates(ess, rhat)
  part = states[:, :, seen].astype(np.float64)
  ess_bulk, ess_tail = np.full([2, len(ess)], np.nan)
  ess_bulk[seen] = _arviz(array_stats.ess, part, method='bulk')
  ess_tail[seen] = _arviz(
    array_stats.ess, part, method='tail', prob=(0.05, 0.95)
  )
  rhat[seen] = _arviz(array_stats.rhat, _at_least_two(part), method='rank')
  return Summary(
    ess=ess,
    ess_squared=geyer_ess(states, np.square).sum(axis=0),
    ess_bulk=ess_bulk,
    ess_tail=ess_tail,
    rhat=rhat,
  )


def split_rhat(states):
  """Returns R-hat of half chains, without ranks, [event_size]."""
  half = len(states) // 2
  parts = [states[:half], states[half : 2 * half]]
  means = np.concatenate([p.mean(axis=0, dtype=np.float64) for p in parts])
  variances = np.concatenate(
    [p.var(axis=0, ddof=1, dtype=np.float64) for p in parts]
  )
  with np.errstate(all='ignore'):
    between = means.var(axis=0, ddof=1) / variances.mean(axis=0)
    return np.sqrt((half - 1) / half + between)


def _ranked_coordinates(ess, rhat):
  if len(ess) <= 3 * _RANKED:
    return np.arange(len(ess))
  by_rhat = np.argsort(-np.nan_to_num(rhat, nan=np.inf))
  spaced = np.linspace(0, len(ess) - 1, _RANKED).astype(int)
  chosen = [np.argsort(ess)[:_RANKED], by_rhat[:_RANKED], spaced]
  return np.unique(np.concatenate(chosen))


def _arviz(function, values, **kwargs):
  with warnings.catch_warnings(), np.errstate(all='ignore'):
    warnings.simplefilter('ignore')
    return np.asarray(
      function(values, chain_axis=1, draw_axis=0, **kwargs)
    ).reshape(-1)


def _at_least_two(states):
  """Returns the states; a single chain is split into two halves."""
  if states.shape[1] > 1:
    return states
  half = len(states) // 2
  return np.concatenate([states[:half], states[half : 2 * half]], axis=1)
