"""Nested R-hat, over groups of chains, for many chains that may be short.

For n draws of converged chains with an integrated autocorrelation time tau, the
usual R-hat is about 1 + (tau - 1) / n. So R-hat is below 1.01 only if n is a
hundred times tau, however many chains there are. The means of groups of chains,
called superchains, vary less than means of chains:

  R = sqrt(1 + B / W),  B the variance of the means of superchains,
  W the mean over superchains of (variance of the means of their chains
    + mean of the variances within chains)

Superchains of arbitrary chains agree by averaging alone, so the chains of a
superchain must have begun alike. Here their first draws are neighbors by rank,
in the coordinate that is judged. Halves of a chain are in different
superchains.

R is 1 + O((tau / n)^2) for converged chains. R is large if the beginning of a
chain predicts its later draws, for example in one of several modes. R is also
large if all chains drift together, because then the halves differ.

Source: Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari and Gelman (2024),
Nested R-hat, https://arxiv.org/abs/2110.13017, section 3.
"""

import numpy as np

# With fewer chains, the noise of small groups alone raises R to 1.01.
FEWEST_CHAINS = 256
_NUM_GROUPS = 16


def nested_rhat(draws):
  """Returns the nested R-hat, [d], of draws [n, superchains, chains, d].

  There are at least 2 superchains, of at least 2 chains each.
  """
  means = draws.mean(axis=0)
  between = means.mean(axis=1).var(axis=0, ddof=1)
  within = means.var(axis=1, ddof=1)
  if len(draws) > 1:
    within = within + draws.var(axis=0, ddof=1).mean(axis=1)
  with np.errstate(all='ignore'):
    return np.sqrt(1.0 + between / within.mean(axis=0))


def by_beginning(halves):
  """Returns superchains of chains that began alike, [n, 2 groups, m, d].

  `halves`, [n, 2 chains, d], are the first halves of all chains, then the
  second halves. If 16, the number of groups, does not divide the number of
  chains, some chains are left out, at even distances by rank.
  """
  n, num_halves, size = halves.shape
  num_chains = num_halves // 2
  num_taken = num_chains - num_chains % _NUM_GROUPS
  taken = np.arange(num_taken) * num_chains // num_taken
  order = np.argsort(halves[0, :num_chains], axis=0, kind='stable')[taken]
  pairs = halves.reshape(n, 2, num_chains, size)
  grouped = np.take_along_axis(pairs, order[np.newaxis, np.newaxis], axis=2)
  return grouped.reshape(n, 2 * _NUM_GROUPS, -1, size)
