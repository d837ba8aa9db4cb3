"""Condition numbers and images of factors, dense and diagonal alike."""

import numpy as np
import pytest

from experiments.papers import learned

RNG = np.random.default_rng(0)


@pytest.mark.parametrize('is_factor_dense', [False, True])
@pytest.mark.parametrize('is_covariance_dense', [False, True])
def test_diagonals_mean_the_same_as_their_matrices(
  is_factor_dense, is_covariance_dense
):
  factor, variances = np.array([1.0, 2.0, 3.0]), np.array([4.0, 4.0, 9.0])
  number = learned.condition_number(
    np.diag(factor) if is_factor_dense else factor,
    np.diag(variances) if is_covariance_dense else variances,
  )
  assert number == pytest.approx(4)


def test_images_are_the_corners_of_covariance_and_precision():
  factor = np.tril(0.05 * RNG.normal(size=(150, 150))) + np.eye(150)
  covariance = factor @ factor.T
  images = learned.images(factor)
  expected = {'covariance': covariance, 'precision': np.linalg.inv(covariance)}
  for name, matrix in expected.items():
    for end, part in (('first', slice(100)), ('last', slice(50, 150))):
      np.testing.assert_allclose(
        images[f'{name}_{end}'], matrix[part, part], rtol=1e-4, atol=1e-4
      )


@pytest.mark.parametrize(
  'factor',
  [
    np.diag([1.0, 0.0, 2.0]),
    np.array([1.0, 0.0, 2.0]),
    np.array([1.0, np.inf, 2.0]),
    np.full([3, 3], np.nan),
  ],
  ids=['dense', 'diagonal', 'infinite', 'not a number'],
)
@pytest.mark.parametrize('covariance', [np.ones(3), np.eye(3)])
def test_the_condition_number_of_a_singular_factor_is_infinite(
  factor, covariance
):
  assert learned.is_singular(factor)
  assert learned.condition_number(factor, covariance) == np.inf
  assert not learned.is_singular(np.diag([1.0, 1e-200, 2.0]))
