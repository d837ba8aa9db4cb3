"""Uniformity of ranks, by an exact simultaneous test of their ECDF.

Draw theta* from the prior, data from theta*, and a place M in 0, ..., L - 1.
Put theta* at place M of a window of L states. Run the kernel from theta* to the
later places, and the reversed kernel to the earlier places. A reversible kernel
is its own reverse. theta* is a draw of the posterior, so the window is a piece
of a stationary chain, in which M was chosen blindly. Take any function of
theta* and the data. Its rank among its values in the window is uniform on
0, ..., L - 1, however slowly the chain mixes.

The number of ranks <= i among n is Bin(n, (i + 1) / L). The statistic is the
smallest of its tail probabilities over i. Under uniformity, the counts are a
Markov chain in i. This gives the distribution of the statistic, so that
p-values far in the tail are exact.

Sources: Gandy and Scott (2020), Unit testing for MCMC and other Monte Carlo
methods, https://arxiv.org/abs/2001.06465; Säilynoja, Bürkner and Vehtari
(2022), Graphical test for discrete uniformity,
https://arxiv.org/abs/2103.10522. For functions of the data: Modrák et al.
(2023), https://arxiv.org/abs/2211.02383.
"""

import functools

import numpy as np
from scipy import stats

# Functions of equal states can differ by rounding.
_TOLERANCE = 1e-9


def ranks(
  truth: np.ndarray, window: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
  """Returns the rank of each truth in its window; ties are broken by chance.

  Args:
    truth: Values at theta*, [n].
    window: Values at the other states, [L - 1, n].

  Returns:
    Ints in 0, ..., L - 1, [n].
  """
  margin = _TOLERANCE * (1.0 + np.abs(truth))
  num_ties = np.sum(np.abs(window - truth) <= margin, axis=0)
  return np.sum(window < truth - margin, axis=0) + rng.integers(num_ties + 1)


def p_value(found: np.ndarray, num_ranks: int) -> float:
  """Returns the p-value of uniform ranks, exact for any n and L.

  Args:
    found: Independent ranks, ints in 0, ..., `num_ranks` - 1, [n].
  """
  tails = _tails(len(found), num_ranks)
  # How many ranks are <= i, for i = 0, ..., L - 2.
  counts = np.cumsum(np.bincount(found, minlength=num_ranks))[:-1]
  smallest = np.min(tails[np.arange(num_ranks - 1), counts])
  return _exit_probability(len(found), num_ranks, smallest)


def _exit_probability(num_draws, num_ranks, smallest):
  """Returns P(any tail probability <= smallest)."""
  is_outside = _tails(num_draws, num_ranks) <= smallest * (1.0 + 1e-9)
  first_counts = stats.binom(num_draws, 1.0 / num_ranks)
  mass, left = first_counts.pmf(np.arange(num_draws + 1)), 0.0
  for place, transition in enumerate(_transitions(num_draws, num_ranks)):
    left += np.sum(mass[is_outside[place]])
    mass = np.where(is_outside[place], 0.0, mass) @ transition
  return min(1.0, left + np.sum(mass[is_outside[-1]]))


@functools.lru_cache(maxsize=4)
def _tails(num_draws, num_ranks):
  """Returns the smaller tail of each count at each place, [L - 1, n + 1]."""
  counts = np.arange(num_draws + 1)
  shares = np.arange(1, num_ranks)[:, np.newaxis] / num_ranks
  law = stats.binom(num_draws, shares)
  return np.minimum(law.cdf(counts), law.sf(counts - 1))


@functools.lru_cache(maxsize=4)
def _transitions(num_draws, num_ranks):
  """Returns P(count at i + 1 | count at i), L - 2 of [n + 1, n + 1].

  A draw that is not among the first i + 1 ranks has the next one with
  probability 1 / (L - i - 1).
  """
  counts = np.arange(num_draws + 1)
  added = counts - counts[:, np.newaxis]
  rest = (num_draws - counts)[:, np.newaxis]
  return [
    stats.binom.pmf(added, rest, 1.0 / num_left)
    for num_left in range(num_ranks - 1, 1, -1)
  ]
