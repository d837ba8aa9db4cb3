"""Effective sample sizes and R-hat of recorded chains.

Geyer's initial monotone sequence, as in the papers' tables: with
autocorrelations rho_t and Gamma_m = rho_{2m} + rho_{2m+1}, summed while
positive and made non-increasing,
  ESS = num_draws / max(1, -1 + 2 sum_m Gamma_m).
References: Geyer (1992), Practical Markov chain Monte Carlo, Section 3.3.
"""

import warnings
from typing import NamedTuple

import numpy as np
from arviz_stats.base import array_stats

__all__ = ['Summary', 'autocorrelation', 'geyer_ess', 'summarize']

# Coordinates transformed at once: bounds the memory of the FFT.
_BLOCK = 64


class Summary(NamedTuple):
  """Per coordinate, [event_size] each; sums over chains."""

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
  size = 2 ** int(np.ceil(np.log2(2 * num_draws)))
  transformed = np.fft.rfft(draws - draws.mean(axis=0), n=size, axis=0)
  power = np.square(transformed.real) + np.square(transformed.imag)
  covariance = np.fft.irfft(power, n=size, axis=0)[:num_draws]
  is_constant = np.ptp(draws, axis=0) == 0
  return covariance / np.where(is_constant, np.nan, covariance[0])


def geyer_ess(draws):
  """Returns the effective sample size of each series.

  Args:
    draws: [num_draws, ...].

  Returns:
    [...] float64 between 0 and num_draws. As in the papers' tables an
    antithetic chain counts as independent; a series that never moves, or is
    not finite, counts as 0.
  """
  draws = np.asarray(draws, np.float64)
  flat = draws.reshape(len(draws), -1)
  blocks = [
    _geyer_block(flat[:, start : start + _BLOCK])
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
  """Returns the `Summary` of states [num_draws, num_chains, event_size]."""
  states = np.asarray(states, np.float64)

  def arviz(function, values, **kwargs):
    with warnings.catch_warnings(), np.errstate(all='ignore'):
      warnings.simplefilter('ignore')
      return np.asarray(
        function(values, chain_axis=1, draw_axis=0, **kwargs)
      ).reshape(-1)

  return Summary(
    ess=geyer_ess(states).sum(axis=0),
    ess_squared=geyer_ess(states**2).sum(axis=0),
    ess_bulk=arviz(array_stats.ess, states, method='bulk'),
    ess_tail=arviz(array_stats.ess, states, method='tail', prob=(0.05, 0.95)),
    rhat=_rhat(states, arviz),
  )


def _rhat(states, arviz):
  """Rank-normalized R-hat; one chain is compared with itself, split."""
  if states.shape[1] == 1:
    half = len(states) // 2
    states = np.concatenate([states[:half], states[half : 2 * half]], axis=1)
  return arviz(array_stats.rhat, states, method='rank')
