"""Geweke's test: two ways to draw parameters and data jointly must agree.

  marginal-conditional    theta ~ prior, y ~ p(y | theta)
  successive-conditional  theta ~ one step of the kernel at y, y ~ p(y | theta)

Every successive chain starts at a marginal draw. If the kernel leaves the
posterior invariant, the chain is stationary from its start. The average of any
function along the chain then has the prior mean. Chains are independent, so the
spread of their averages gives the standard error without an estimate of
autocorrelation. A wrong kernel drifts off.

The functions are bounded, so that averages are normal far into the tails. With
u = (value - mean) / deviation of the marginal draws, tanh(u) detects location
and 1 / (1 + u^2) detects scale.

Source: Geweke (2004), Getting it right: joint distribution tests of posterior
simulators, JASA 99.
"""

import numpy as np
from scipy import stats

SHAPES = ('location', 'scale')


def bounded(values, center, width, lib):
  """Returns the bounded functions of values, [2, ...].

  Args:
    values: [...].
  """
  u = (values - center) / width
  return lib.stack([lib.tanh(u), 1.0 / (1.0 + u**2)])


def z_scores(marginal, averages):
  """Returns differences of means in standard errors.

  Args:
    marginal: Functions at independent marginal draws, [..., n].
    averages: Averages of the functions along independent chains,
      [..., chains].

  Returns:
    [...]; standard normal if the kernel is right.
  """
  return stats.ttest_ind(averages, marginal, axis=-1, equal_var=False).statistic


def p_values(z):
  """Returns two-sided p-values of z-scores."""
  return 2.0 * stats.norm.sf(np.abs(z))
