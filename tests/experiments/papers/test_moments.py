"""Means and deviations against known ones: errors that cover, and detect."""

import numpy as np
import pytest

from experiments.papers import diagnostics
from experiments.papers import mixed_moments
from experiments.papers import moments
from experiments.targets.base import Target

NUM_SERIES = 400


def _draws():
  """AR(1) draws of N(2, 9), [num_draws, 2 chains, NUM_SERIES]."""
  values = _ar1(0.6, 1000, 2 * NUM_SERIES, seed=0)
  return 2.0 + 3.0 * values.reshape(1000, 2, NUM_SERIES)


def _against(mean, deviation, standard_error):
  ones = np.ones(NUM_SERIES)
  return moments.z_scores(
    _draws(), mean * ones, deviation * ones, standard_error * ones
  )


@pytest.mark.parametrize('name', ['mean_z', 'deviation_z'])
def test_z_scores_of_the_true_moments_are_standard(name):
  scores = getattr(_against(2.0, 3.0, 0.0), name)
  # 400 independent scores: 5 standard errors, and 10 % for Geyer's estimate.
  assert abs(scores.mean()) < 5 / 20 + 0.1
  assert abs(scores.std() - 1) < 5 / np.sqrt(2 * NUM_SERIES) + 0.1


def test_wrong_moments_are_seen_and_a_wide_standard_error_excuses_them():
  wrong = _against(2.5, 3.5, 0.0)
  assert np.median(wrong.mean_z) < -3
  assert np.median(wrong.deviation_z) < -4
  excused = _against(2.5, 3.5, 0.5)
  assert np.abs(excused.mean_z).max() < 3
  assert np.abs(excused.deviation_z).max() < 4


def test_mixed_moments_are_the_features_of_a_cubic_kernel():
  x, y = np.random.default_rng(0).normal(size=(2, 5, 3))
  products = mixed_moments.features(x) @ mixed_moments.features(y).T
  np.testing.assert_allclose(products, (1 + x @ y.T) ** 3)


def _target(ground_truth):
  return Target(
    name='x',
    target_log_prob_fn=None,
    event_size=NUM_SERIES,
    dtype='float64',
    constrain=lambda states: {'first': states[..., 0], 'all': states},
    ground_truth=ground_truth,
  )


def test_the_record_holds_scalars_and_the_worst_of_vectors():
  ones = np.ones(NUM_SERIES)
  truth = {
    'first': (np.asarray(2.0), np.asarray(3.0), np.asarray(0.0)),
    'all': (2.0 * ones, 3.0 * ones, 0.0 * ones),
  }
  summary = moments.compare(_target(truth), _draws())
  assert summary['first']['known_deviation'] == 3.0
  assert abs(summary['first']['mean'] - 2.0) < 0.5
  assert summary['all']['size'] == 100
  assert 1.5 < abs(summary['all']['worst_mean_z']) < 6


def test_a_draw_that_overflowed_leaves_no_score_and_no_error():
  draws = _draws()
  draws[0, 0, 0] = np.inf
  truth = {'first': (np.asarray(2.0), np.asarray(3.0), np.asarray(0.0))}
  with np.errstate(invalid='ignore'):
    summary = moments.compare(_target(truth), draws)
  assert summary['first']['worst_mean_z'] is None
  assert summary['first']['worst_deviation_z'] is None


# Geyer's estimate against the closed form of an AR(1) process.


def _ar1(phi, num_draws, num_series, seed):
  """Stationary AR(1) series, [num_draws, num_series]."""
  rng = np.random.default_rng(seed)
  noise = np.sqrt(1 - phi**2) * rng.normal(size=(num_draws, num_series))
  values = np.empty_like(noise)
  values[0] = rng.normal(size=num_series)
  for t in range(1, num_draws):
    values[t] = phi * values[t - 1] + noise[t]
  return values


@pytest.mark.parametrize('phi', [0.0, 0.5, 0.9])
def test_geyer_ess_of_ar1_is_the_closed_form(phi):
  num_draws, num_series = 20000, 64
  ess = diagnostics.geyer_ess(_ar1(phi, num_draws, num_series, seed=1))
  expected = num_draws * (1 - phi) / (1 + phi)
  standard_error = ess.std(ddof=1) / np.sqrt(num_series)
  # The clip at num_draws and the cut of the noisy tail bias it by a few
  # percent; 4 standard errors for the noise.
  assert abs(ess.mean() - expected) < 4 * standard_error + 0.04 * expected
  # The negative control: another process.
  wrong = num_draws * (1 - 0.8) / (1 + 0.8)
  assert abs(ess.mean() - wrong) > 4 * standard_error + 0.04 * wrong


def test_series_that_never_move_or_are_not_finite_count_as_zero():
  draws = _ar1(0.0, 100, 3, seed=5)
  draws[:, 1] = 0.3
  draws[7, 2] = np.nan
  ess = diagnostics.geyer_ess(draws)
  assert ess[0] > 0
  np.testing.assert_array_equal(ess[1:], 0.0)


def test_summary_sums_over_chains_and_sees_chains_that_disagree():
  states = _ar1(0.5, 2000, 12, seed=6).reshape(2000, 4, 3)
  together = diagnostics.summarize(states)
  single = [diagnostics.summarize(states[:, [c]]).ess for c in range(4)]
  np.testing.assert_allclose(together.ess, np.sum(single, axis=0))
  assert np.all(together.rhat < 1.02)
  states[:, 0, 1] += 5.0
  apart = diagnostics.summarize(states)
  assert apart.rhat[1] > 1.5
  assert apart.ess_bulk[1] < 0.1 * together.ess_bulk[1]


def test_split_rhat_sees_a_drift_inside_a_chain():
  states = _ar1(0.0, 400, 8, seed=8).reshape(400, 4, 2)
  assert np.all(np.abs(diagnostics.split_rhat(states) - 1) < 0.02)
  states[:200, :, 1] += 3.0
  rhat = diagnostics.split_rhat(states)
  assert rhat[0] < 1.02 and rhat[1] > 1.5


@pytest.mark.full
def test_of_many_coordinates_the_worst_are_ranked():
  states = _ar1(0.0, 200, 2 * 400, seed=9).reshape(200, 2, 400)
  states[:, 0, 123] += 5.0
  states[:, :, 321] = states[:1, :, 321] + np.cumsum(states[:, :, 321], axis=0)
  summary = diagnostics.summarize(states)
  is_ranked = np.isfinite(summary.ess_bulk)
  assert 50 <= is_ranked.sum() <= 150
  assert is_ranked[[0, 123, 321, 399]].all()
  assert np.argmax(summary.rhat) in (123, 321) and summary.rhat[123] > 1.5
  assert np.all(np.isfinite(summary.rhat))
  few = diagnostics.summarize(states[:, :, 120:124])
  for name in summary._fields:
    np.testing.assert_allclose(
      getattr(few, name)[3], getattr(summary, name)[123], rtol=1e-12
    )
