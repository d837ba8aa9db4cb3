"""The paper's own fit against derivatives by finite differences."""

import numpy as np

from experiments.studies import plain_features


def _features(x, frequencies, phases):
  return np.sqrt(2.0 / len(phases)) * np.cos(x @ frequencies + phases)


def test_sums_are_those_of_finite_differences():
  rng = np.random.default_rng(0)
  draws, frequencies = rng.normal(size=(7, 3)), rng.normal(size=(3, 5))
  phases = rng.uniform(size=5)
  gram, curved = plain_features.sums(draws, frequencies, phases)
  width, slopes, bends = 1e-4, [], []
  for axis in np.eye(3):
    up = _features(draws + width * axis, frequencies, phases)
    down = _features(draws - width * axis, frequencies, phases)
    middle = _features(draws, frequencies, phases)
    slopes.append((up - down) / (2 * width))
    bends.append((up - 2 * middle + down) / width**2)
  expected = np.einsum('lij,lik->jk', slopes, slopes) / 7
  np.testing.assert_allclose(gram, expected, atol=1e-6)
  np.testing.assert_allclose(curved, -np.sum(bends, axis=(0, 1)) / 7, atol=1e-6)


def test_score_is_the_gradient_of_the_features():
  rng = np.random.default_rng(1)
  features = plain_features.PlainFeatures(
    rng.normal(size=(2, 6)), rng.uniform(size=6), rng.normal(size=6)
  )
  x = rng.normal(size=(4, 2))

  def log_prob(x):
    return _features(x, *features[:2]) @ features.coefficients

  width = 1e-5
  expected = [
    (log_prob(x + width * axis) - log_prob(x - width * axis)) / (2 * width)
    for axis in np.eye(2)
  ]
  np.testing.assert_allclose(
    plain_features.score(features, x), np.transpose(expected), atol=1e-8
  )


def test_fit_learns_the_score_of_a_gaussian_from_draws():
  rng = np.random.default_rng(2)
  scales = np.array([1.0, 0.5])
  draws, others = scales * rng.normal(size=(2, 800, 2))
  truth = -others / scales**2
  errors = []
  for known in (draws[:60], draws):
    features = plain_features.fit(known, 200, seed=3)
    error = plain_features.score(features, others) - truth
    errors.append(np.mean(error**2) / np.mean(truth**2))
  assert errors[1] < 0.15
  # Control: fewer draws know less.
  assert errors[0] > 2 * errors[1]
