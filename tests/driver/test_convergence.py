"""R-hat after a run: its number, the coordinate it names, what it ignores."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from arviz_stats.base import array_stats
from scipy import stats

import tfp_adaptive as tfpa
from tfp_adaptive.core import run_warnings
from tfp_adaptive.driver import convergence
from tfp_adaptive.driver import diagnosis
from tfp_adaptive.driver import nested_rhat

_DRAWS = np.random.default_rng(0).normal(size=(400, 4, 6)).astype(np.float32)


def _shifted():
  draws = _DRAWS.copy()
  draws[:, 1, 3] += 2.0
  return draws


def _arviz(function, draws, **arguments):
  return function(draws, chain_axis=1, draw_axis=0, **arguments)


def _of_all_kinds():
  """Slow, skewed, heavy-tailed and repeated draws, and a shifted chain."""
  rng = np.random.default_rng(1)
  draws = rng.normal(size=(600, 4, 5))
  for t in range(1, 600):
    draws[t, :, 0] += 0.9 * draws[t - 1, :, 0]
  draws[..., 1] = np.exp(draws[..., 1])
  draws[..., 2] = rng.standard_cauchy(size=(600, 4))
  draws[..., 3] = np.repeat(draws[::3, :, 3], 3, axis=0)
  draws[:, 1, 4] += 0.3
  return draws


def test_all_are_those_of_arviz():
  draws = _of_all_kinds()
  found = convergence.diagnose(draws)
  rhat = _arviz(array_stats.rhat, draws, method='rank')
  np.testing.assert_allclose(found.rhat, rhat, rtol=1e-6)
  bulk = _arviz(array_stats.ess, draws, method='bulk')
  # It cuts the sum of a fast series one term later.
  np.testing.assert_allclose(found.ess_bulk, bulk, rtol=0.05)
  tail = _arviz(array_stats.ess, draws, method='tail', prob=(0.05, 0.95))
  np.testing.assert_allclose(found.ess_tail, tail, rtol=0.05)
  squares = (draws - draws.mean(axis=(0, 1))) ** 2
  moments = [
    _arviz(array_stats.ess, x, method='mean') for x in (draws, squares)
  ]
  np.testing.assert_allclose(found.ess_moments, np.min(moments, 0), rtol=0.05)
  assert rhat[4] > 1.01 > rhat[2] and bulk[0] < 0.15 * bulk[2]


def test_draws_that_go_to_and_fro_are_worth_no_more_than_may_be_told():
  draws = np.random.default_rng(2).normal(size=(600, 4, 1))
  for t in range(1, 600):
    draws[t] -= 0.8 * draws[t - 1]
  found = convergence.diagnose(draws)
  # A mean would have 2400 (1 + 0.8) / (1 - 0.8) draws, nine times as many.
  np.testing.assert_allclose(found.ess_bulk, 2400 * np.log10(2400))
  bulk = _arviz(array_stats.ess, draws, method='bulk')
  np.testing.assert_allclose(found.ess_bulk, bulk)
  # Squares have a correlation of 0.64: an efficiency of 0.36 / 1.64.
  np.testing.assert_allclose(found.ess_moments, 2400 * 0.36 / 1.64, rtol=0.3)


def test_the_worst_coordinate_is_found_by_name():
  rhat, name = convergence.worst(_shifted(), 1)['rhat']
  assert name == 'coordinate 3' and rhat > 1.1
  draws = _of_all_kinds()
  worst = convergence.worst(draws, 1)
  assert worst['ess_bulk'][1] == worst['ess_tail'][1] == 'coordinate 0'


@pytest.mark.parametrize(
  'states, num_chain_dims, name',
  [
    ([_DRAWS[..., 0], _shifted()], 1, 'coordinate 3 of part 1'),
    (_shifted().reshape(400, 2, 2, 3, 2), 2, 'coordinate (1, 1)'),
  ],
  ids=['parts', 'matrices'],
)
def test_structures_are_named_by_part_and_index(states, num_chain_dims, name):
  rhat, found = convergence.worst(states, num_chain_dims)['rhat']
  assert found == name
  np.testing.assert_allclose(rhat, convergence.worst(_shifted(), 1)['rhat'][0])


def test_coordinates_that_never_move_are_passed_over():
  draws = _shifted()
  draws[..., 0] = 2.0
  assert convergence.worst(draws, 1)['rhat'][1] == 'coordinate 3'
  assert convergence.worst(np.ones([100, 4, 2]), 1) == {}


@pytest.mark.parametrize('kind', ['spread', 'Cauchy'])
def test_a_bad_coordinate_among_many_is_ranked(monkeypatch, kind):
  rng = np.random.default_rng(0)
  draws = rng.normal(size=(1000, 4, 60))
  if kind == 'spread':
    draws[:, 3, 7] *= 5.0  # Its mean is that of the others.
  else:
    draws[:, :, 7] = rng.standard_cauchy(size=(1000, 4))
    draws[:, 3, 7] += 3.0
  expected = convergence.diagnose(draws[:, :, 7:8]).rhat[0]
  monkeypatch.setattr(convergence, '_MOST_RANKED', 4)
  rhat, name = convergence.worst(draws, 1)['rhat']
  assert (rhat, name) == (expected, 'coordinate 7') and rhat > 1.05


@pytest.mark.full
def test_good_draws_of_very_many_coordinates_are_not_doubted(monkeypatch):
  # Thinned to few rows, the worst of so many coordinates would look bad.
  draws = np.random.default_rng(1).normal(size=(1000, 4, 20_000))
  rhat, _ = convergence.worst(draws.astype(np.float32), 1)['rhat']
  assert rhat < convergence.LARGEST_RHAT
  assert convergence.thinning_of(draws, 1) == 1
  # A quarter of the numbers is ranked, of 256 coordinates.
  assert convergence.thinning(65_536, 4, 256) == 4
  # A million chains keep a few rows.
  assert convergence.thinning(100, 10**6) == 6


# Nested R-hat: its distribution in closed form, and what it sees.


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
  # Sixteen groups of equal size see 0.985 of the variance of x0.
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


# What a run says about itself when it is over.


def test_a_weight_at_the_bound_that_grows_with_the_size_is_said():
  kernel = tfpa.gradient_adaptive_langevin(
    lambda x: -0.5 * tf.reduce_sum(x**2, -1), 10
  )
  results = kernel.bootstrap_results(tf.zeros([4, 5]))
  least = 0.5 * (1.0 - 0.55) / 5
  for weight, is_warned in ((least, True), (2.0 * least, False)):
    state = results.criterion_state._replace(entropy_weight=tf.constant(weight))
    at_bound = results._replace(criterion_state=state)
    said = list(kernel.warnings_after(at_bound, {'is_accepted': np.zeros(100)}))
    assert len(said) == is_warned


def _said_diagnosed(states, **trace):
  """Returns the warnings of a kernel of which nothing is known."""
  kernel = collections.namedtuple('Kernel', ['parameters'])({})
  worst, _ = diagnosis.worst_coordinates(states, trace)
  return list(diagnosis.warnings_after(kernel, states, trace, None, worst))


def test_what_never_moves_is_named_though_moves_were_accepted():
  states = np.random.default_rng(0).normal(size=(200, 4, 3))
  accepted = np.ones([200, 4], bool)
  assert not _said_diagnosed(states, is_accepted=accepted)
  states[:, :, 1] = 1e9
  (said,) = _said_diagnosed(states, is_accepted=accepted)
  assert 'one value in all draws' in said and ': coordinate 1. ' in said
  states[:, 2] = states[0, 2]
  (said,) = _said_diagnosed(states, is_accepted=accepted)
  assert said.startswith('Moves changed no coordinate in 200 draws by chain 2')
  # The step to the first draw was accepted, and no other.
  accepted[1:, 2] = False
  assert not _said_diagnosed(states, is_accepted=accepted)
  assert not _said_diagnosed(states[:1], is_accepted=accepted[:1])


@pytest.mark.parametrize('share, is_warned', [(0.008, False), (0.02, True)])
def test_more_than_a_hundredth_of_diverging_proposals_is_said(share, is_warned):
  diverging = (np.arange(1000) < 1000 * share).reshape(250, 4)
  said = _said_diagnosed(np.zeros([250, 4, 2]), diverging=diverging)
  assert len(said) == is_warned


@pytest.mark.parametrize('shift, is_warned', [(0.05, False), (0.4, True)])
def test_an_rhat_above_a_hundredth_over_one_is_said(shift, is_warned):
  states = np.random.default_rng(0).normal(size=(400, 4, 1))
  states[:, 1] += shift
  rhat, _ = convergence.worst(states, 1)['rhat']
  assert (1.01 < rhat < 1.05) if is_warned else (1.0 < rhat < 1.01)
  said = _said_diagnosed(states, target_log_prob=np.zeros([400, 4]))
  assert [s.startswith('R-hat is') for s in said] == [True] * is_warned
  assert not is_warned or 'in coordinate 0, above' in said[0]
  # A short run tells nothing.
  assert not _said_diagnosed(states[:50], target_log_prob=np.zeros([50, 4]))


@pytest.mark.parametrize('num_draws, is_warned', [(300, False), (100, True)])
def test_fewer_than_400_effective_draws_are_said(num_draws, is_warned):
  states = np.random.default_rng(0).normal(size=(num_draws * 2, 2, 1))
  states[::2] = states[1::2]  # Two draws are worth one.
  said = _said_diagnosed(states, target_log_prob=np.zeros(states.shape[:2]))
  few = [s for s in said if s.startswith('Few effective draws')]
  assert len(few) == is_warned
  if is_warned:
    assert 'for averages in coordinate 0' in few[0] and '5 %' in few[0]


def test_short_steps_are_no_part_of_the_acceptance():
  is_short = np.arange(1000) % 2 == 0
  accepted = np.ones([1000, 4], bool)
  accepted[1::2] = np.random.default_rng(0).uniform(size=(500, 4)) < 0.55
  trace = dict(is_accepted=accepted, is_short=is_short)
  assert not list(run_warnings.acceptance(trace, 0.55))
  trace['is_short'] = np.zeros_like(is_short)
  assert len(list(run_warnings.acceptance(trace, 0.55))) == 1


@pytest.mark.parametrize(
  'rate, is_warned', [(0.35, True), (0.45, False), (0.65, False), (0.75, True)]
)
def test_an_acceptance_far_from_the_wanted_one_is_said(rate, is_warned):
  accepted = np.arange(1000) < 1000 * rate
  said = list(run_warnings.acceptance(dict(is_accepted=accepted), 0.55))
  assert ['aimed at 0.55' in s for s in said] == [True] * is_warned
