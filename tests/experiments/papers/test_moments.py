"""Means and deviations against known ones: errors that cover, and detect."""

import numpy as np
import pytest

from experiments.papers import moments
from experiments.targets.base import Target

NUM_SERIES = 400


def _draws(seed=0):
  """AR(1) draws of N(2, 9), [num_draws, 2 chains, NUM_SERIES]."""
  rng = np.random.default_rng(seed)
  noise = rng.normal(size=(1000, 2, NUM_SERIES))
  values = np.empty_like(noise)
  values[0] = noise[0]
  for t in range(1, len(noise)):
    values[t] = 0.6 * values[t - 1] + 0.8 * noise[t]
  return 2.0 + 3.0 * values


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
