"""Nested R-hat: its distribution in closed form, and what it sees."""

import numpy as np
import pytest
from scipy import stats

from tfp_adaptive.driver import convergence
from tfp_adaptive.driver import nested_rhat


def _autoregression(tau, num_draws, num_chains, seed=0):
  """Stationary chains [n, chains, 1] of autocorrelation time tau."""
  rng = np.random.default_rng(seed)
  phi = (tau - 1.0) / (tau + 1.0)
  noise = rng.normal(size=(num_draws, num_chains, 1))
  draws = noise.copy()
  for t in range(1, num_draws):
    draws[t] = phi * draws[t - 1] + np.sqrt(1.0 - phi**2) * noise[t]
  return draws, phi


def test_independent_chains_follow_the_law_of_chi_squares():
  # B is of K means of M chains of n draws, W is 1 + 1/n of the variance:
  # (K - 1) M (n + 1) (R^2 - 1) ~ chi^2(K - 1).
  n, num_superchains, num_chains = 5, 6, 40
  draws = np.random.default_rng(0).normal(
    size=(n, num_superchains, num_chains, 2000)
  )
  excess = nested_rhat.nested_rhat(draws) ** 2 - 1.0
  scaled = excess * (num_superchains - 1) * num_chains * (n + 1)
  law = stats.chi2(num_superchains - 1)
  # Power: W is estimated too, from 1200 draws; the law of K numbers is not it.
  assert stats.kstest(scaled, law.cdf).pvalue > 0.01
  assert stats.kstest(scaled, stats.chi2(num_superchains).cdf).pvalue < 1e-6


def test_one_draw_of_each_chain_will_do():
  draws = np.random.default_rng(0).normal(size=(1, 8, 500, 1))
  means = draws[0].mean(axis=1)
  expected = 1.0 + means.var(0, ddof=1) / draws[0].var(1, ddof=1).mean(0)
  np.testing.assert_allclose(nested_rhat.nested_rhat(draws) ** 2, expected)


def test_superchains_that_are_apart_have_the_ratio_of_variances():
  rng = np.random.default_rng(0)
  centers = np.array([-3.0, 0.0, 1.0, 4.0])
  draws = centers[:, np.newaxis] + rng.normal(size=(20, 4, 500))
  expected = np.sqrt(1.0 + centers.var(ddof=1) / (1.0 + 1.0 / 20))
  found = nested_rhat.nested_rhat(draws[..., np.newaxis])[0]
  np.testing.assert_allclose(found, expected, rtol=0.02)


@pytest.mark.parametrize('tau', [3.0, 10.0, 40.0])
def test_of_stationary_chains_it_is_what_beginnings_tell(tau):
  # Given its first draw x0 the mean of the first n / 2 is s x0 in the mean,
  # s = (1 - phi^(n/2)) / (n/2 (1 - phi)), that of the second phi^(n/2) s x0.
  draws, phi = _autoregression(tau, 100, 9600)
  forgotten = phi**50
  told = ((1.0 - forgotten) / (50 * (1.0 - phi))) ** 2
  # Of the variance of x0 sixteen groups of equal size see 0.985.
  between = 0.985 * told * (1.0 + forgotten**2) / 2.0
  noise = tau / (600 * 50)
  halves = convergence._halves(draws)
  found = nested_rhat.nested_rhat(nested_rhat.by_beginning(halves))[0]
  expected = np.sqrt(1.0 + between / (1.0 - between))
  assert abs(found - expected) < 0.03 * (expected - 1.0) + 2.0 * noise


def test_chains_that_have_mixed_pass_however_short_and_the_usual_one_fails():
  draws, _ = _autoregression(10.0, 100, 2000)
  assert convergence.diagnose(draws).rhat[0] < 1.01
  # What was taken before, of the same draws.
  few = [convergence.diagnose(draws[:, i : i + 250]).rhat[0] for i in (0, 250)]
  assert min(few) > 1.05


@pytest.mark.parametrize('kind', ['modes', 'spreads', 'drift'])
def test_what_has_not_mixed_is_seen(kind):
  rng = np.random.default_rng(0)
  draws = rng.normal(size=(100, 1000, 1))
  if kind == 'modes':
    draws[:, ::2] += 3.0
  elif kind == 'spreads':
    draws[:, ::2] *= 3.0  # Means agree: only folded ranks tell.
  else:
    draws += np.linspace(0.0, 1.0, 100)[:, np.newaxis, np.newaxis]
  assert convergence.diagnose(draws).rhat[0] > 1.02
  # The negative control: the same chains in a random order of draws.
  for t in range(100):
    draws[t] = draws[t, rng.permutation(1000)]
  mixed = rng.permutation(draws)
  assert convergence.diagnose(mixed).rhat[0] < 1.005
