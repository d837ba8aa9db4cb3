"""The two tests of calibration themselves, on draws whose law is known.

theta ~ N(0, 1), y | theta ~ N(theta, 1), so theta | y ~ N(y / 2, 1 / 2).
"""

import itertools

import numpy as np
import pytest

from experiments.studies.calibration import geweke
from experiments.studies.calibration import rank_test

_SCALE = 0.5**0.5


def _joint(num, rng):
  theta = rng.normal(size=num)
  return theta, theta + rng.normal(size=num)


def _log_likelihood(theta, y):
  return -0.5 * (y - theta) ** 2


def _independent_ranks(num, num_ranks, seed, shift=0.0, factor=1.0):
  """Ranks among draws of the posterior, moved and widened."""
  rng = np.random.default_rng(seed)
  theta, y = _joint(num, rng)
  noise = rng.normal(size=(num_ranks - 1, num))
  draws = 0.5 * y + _SCALE * (shift + factor * noise)
  return rank_test.ranks(theta, draws, rng)


def _autoregression(x, mean, rng, persistence, factor):
  """One step of a reversible chain of law N(mean, factor^2 / 2)."""
  noise = (
    (1.0 - persistence**2) ** 0.5 * factor * _SCALE * rng.normal(size=len(x))
  )
  return mean + persistence * (x - mean) + noise


def _window_ranks(num, num_ranks, seed, place, persistence=0.9, factor=1.0):
  rng = np.random.default_rng(seed)
  theta, y = _joint(num, rng)
  if place is None:
    place = rng.integers(num_ranks, size=num)
  edges = np.arange(num_ranks - 1)[:, np.newaxis]

  def walk():
    states = [theta]
    for _ in edges:
      states.append(
        _autoregression(states[-1], 0.5 * y, rng, persistence, factor)
      )
    return np.array(states[1:])

  # The state k steps behind, or in front: stationary, so by distance.
  ahead, behind = walk(), walk()
  columns = np.arange(num)
  window = np.where(
    edges >= place,
    ahead[np.clip(edges - place, 0, None), columns],
    behind[np.clip(place - 1 - edges, 0, None), columns],
  )
  return rank_test.ranks(theta, window, rng)


def test_p_value_is_exact_over_all_outcomes_of_a_small_case():
  outcomes = itertools.product(range(3), repeat=4)
  p = np.sort([rank_test.p_value(np.array(o), 3) for o in outcomes])
  # P(p-value <= p) = p at each p that occurs.
  for value in np.unique(np.round(p, 12)):
    np.testing.assert_allclose(np.mean(p <= value + 1e-9), value, rtol=1e-9)


def test_right_ranks_raise_false_alarms_at_the_stated_rate():
  p = [
    rank_test.p_value(_independent_ranks(100, 8, seed), 8)
    for seed in range(1000)
  ]
  for level in (0.05, 0.5):
    error = (level * (1.0 - level) / len(p)) ** 0.5
    # p-values are discrete: the rate may be somewhat lower.
    assert level - 0.02 - 4.0 * error < np.mean(np.array(p) <= level)
    assert np.mean(np.array(p) <= level) < level + 4.0 * error


@pytest.mark.parametrize(
  'bias', [dict(shift=0.4), dict(factor=1.3), dict(factor=0.75)]
)
def test_biased_draws_fail_the_ranks(bias):
  assert rank_test.p_value(_independent_ranks(1000, 16, 1), 16) > 1e-3
  assert rank_test.p_value(_independent_ranks(1000, 16, 1, **bias), 16) < 1e-6


def test_windows_are_uniform_for_slow_chains_only_at_a_random_place():
  assert rank_test.p_value(_window_ranks(1000, 8, 2, None), 8) > 1e-3
  first = _window_ranks(1000, 8, 2, np.zeros(1000, int))
  assert rank_test.p_value(first, 8) < 1e-6
  wrong = _window_ranks(1000, 16, 2, None, 0.5, factor=1.6)
  assert rank_test.p_value(wrong, 16) < 1e-6


def test_draws_of_the_prior_pass_but_for_functions_of_the_data():
  rng = np.random.default_rng(3)
  theta, y = _joint(1000, rng)
  draws = rng.normal(size=(15, 1000))
  found = rank_test.ranks(theta, draws, rng)
  assert rank_test.p_value(found, 16) > 1e-3
  found = rank_test.ranks(
    _log_likelihood(theta, y), _log_likelihood(draws, y), rng
  )
  assert rank_test.p_value(found, 16) < 1e-6


def test_ties_are_broken_by_chance():
  truth = np.full(4000, 1e3)
  window = np.tile([[0.0], [1e3 + 1e-8], [1e3], [2e3]], 4000)
  found = rank_test.ranks(truth, window, np.random.default_rng(0))
  counts = np.bincount(found, minlength=5)
  assert counts[0] == counts[4] == 0
  # Three places, equally likely: five standard deviations.
  np.testing.assert_allclose(
    counts[1:4], 4000 / 3, atol=5 * (4000 * 2 / 9) ** 0.5
  )


def _geweke(num, num_steps, seed, factor=1.0):
  """Smallest p-value, times their number, of a successive chain."""
  rng = np.random.default_rng(seed)
  marginal = np.stack(_joint(10 * num, rng))
  theta, y = _joint(num, rng)
  total = 0.0
  for step in range(num_steps):
    theta = _autoregression(theta, 0.5 * y, rng, 0.5, factor)
    y = theta + rng.normal(size=num)
    if step >= num_steps // 2:
      total = total + geweke.bounded(np.stack([theta, y]), 0.0, 1.0, np)
  z = geweke.z_scores(
    geweke.bounded(marginal, 0.0, 1.0, np), total / (num_steps / 2)
  )
  return geweke.p_values(z).ravel()


def test_geweke_raises_false_alarms_at_the_stated_rate():
  p = np.array([_geweke(100, 8, seed) for seed in range(400)])
  for level in (0.05, 0.5):
    error = (level * (1.0 - level) / len(p)) ** 0.5
    rates = np.mean(p <= level, axis=0)
    np.testing.assert_allclose(rates, level, atol=4.0 * error + 0.01)


@pytest.mark.parametrize('factor', [1.2, 0.85])
def test_geweke_sees_a_kernel_of_the_wrong_width(factor):
  assert 4 * np.min(_geweke(1000, 40, 1)) > 1e-3
  assert 4 * np.min(_geweke(1000, 40, 1, factor)) < 1e-6
