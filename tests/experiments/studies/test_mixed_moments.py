"""The distance in moments against kernel sums and moments by hand."""

import numpy as np
import pytest

from experiments.studies import mixed_moments


def _kernel_distance(x, y):
  """MMD from the three kernel averages."""

  def average(a, b):
    return np.mean((1 + a @ b.T) ** 3)

  return np.sqrt(average(x, x) + average(y, y) - 2 * average(x, y))


@pytest.fixture(scope='module')
def reference():
  rng = np.random.default_rng(0)
  return rng.normal(size=(400, 3)) * [1, 5, 0.1] + [0, 2, -1]


def test_inner_products_of_features_are_the_kernel():
  points = np.random.default_rng(1).normal(size=(6, 4))
  features = mixed_moments.moment_features(points)
  assert features.shape == (6, 35)
  np.testing.assert_allclose(
    features @ features.T, (1 + points @ points.T) ** 3, rtol=1e-10
  )


def test_features_of_one_coordinate_are_its_weighted_powers():
  features = mixed_moments.moment_features(np.array([[2.0]]))[0]
  # (1 + x y)^3 = 1 + 3 x y + 3 x^2 y^2 + x^3 y^3.
  np.testing.assert_allclose(features, np.sqrt([1, 3, 3, 1]) * [1, 2, 4, 8])


def test_distance_is_the_kernel_one_on_standardized_coordinates(reference):
  draws = 1.2 * reference[:50] + 0.3
  distance = mixed_moments.MomentDistance(reference)
  mean, scale = reference.mean(0), reference.std(0)
  expected = _kernel_distance(
    (draws - mean) / scale, (reference - mean) / scale
  )
  np.testing.assert_allclose(distance.of(draws), expected, rtol=1e-9)
  # Units of the coordinates do not matter.
  units = np.array([3.0, 0.01, 7.0])
  rescaled = mixed_moments.MomentDistance(reference * units)
  np.testing.assert_allclose(rescaled.of(draws * units), expected, rtol=1e-9)
  assert distance.of(reference[::-1]) < 1e-9


def test_curve_is_the_distance_of_each_beginning(reference, monkeypatch):
  monkeypatch.setattr(mixed_moments, '_CHUNK', 7)
  distance = mixed_moments.MomentDistance(reference)
  chains = np.random.default_rng(2).normal(size=(40, 2, 3))
  curve = distance.along(chains, [3, 10, 40])
  for count, value in zip([3, 10, 40], curve, strict=True):
    expected = distance.of(chains[:count].reshape(-1, 3))
    np.testing.assert_allclose(value, expected, rtol=1e-9)


def test_third_moments_alone_are_seen(reference):
  """A skewed sample of the reference's mean and covariance is far away."""
  rng = np.random.default_rng(3)
  normal = rng.normal(size=(5000, 1))
  skewed = rng.exponential(size=(5000, 1)) - 1
  skewed = (skewed - skewed.mean()) / skewed.std()
  distance = mixed_moments.MomentDistance(normal)
  # E x^3 = 2 of an exponential; the fluctuation of moments is below 0.2.
  assert 1.5 < distance.of(skewed) < 2.5
  assert distance.of(rng.normal(size=(5000, 1))) < 0.3


def test_mean_error_is_the_distance_of_the_averages():
  draws = np.array([[[0.0, 1.0]], [[6.0, 7.0]]])
  assert mixed_moments.mean_error_norm(draws, np.zeros(2)) == 5.0


def test_counts_and_constant_coordinates_are_refused(reference):
  distance = mixed_moments.MomentDistance(reference)
  for counts in ([], [0, 3], [3, 3], [401]):
    with pytest.raises(ValueError, match='increasing counts'):
      distance.along(reference, counts)
  with pytest.raises(ValueError, match=r'\[1\] are constant'):
    mixed_moments.MomentDistance(np.array([[0.0, 1.0], [1.0, 1.0]]))
