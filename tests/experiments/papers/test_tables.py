"""Tables of a run: repeats joined, failures named, odd values readable."""

import numpy as np
import pytest

from experiments.papers import learned
from experiments.papers import tables
from experiments.run.store import Record


def _record(label, seed, min_ess, speed):
  spread = {'min': min_ess, 'median': 2 * min_ess, 'max': 3 * min_ess}
  record = {
    'seconds': {'compile': 9.0, 'adaptation': 1.0, 'sampling': 2.0},
    'accept_rate': 0.5,
    'ess': spread,
    'ess_bulk': spread,
    'ess_tail': spread,
    'rhat_max': 1.01,
    'rhat_median': 1.002,
    'entropy_weight': 7.4,
    'min_ess_per_second': speed,
    'min_ess_per_gradient': None,
  }
  return Record('x', label, seed, 'k', 'finished', record)


def test_a_table_holds_means_and_deviations_over_repeats():
  records = [_record('a', 0, 10, 4), _record('a', 1, 30, 8)]
  error = 'E: | no\n\nTraceback'
  records.append(Record('x', 'b', 0, 'k', 'failed', {}, error))
  row = tables.average(records)['a']
  assert [row[f'ess_{k}'] for k in ('min', 'median', 'max')] == [20, 40, 60]
  assert row['seconds'] == 3
  np.testing.assert_allclose(row['min_ess_per_second_sd'], np.sqrt(8))
  text = tables.to_markdown('x', records)
  assert (
    '| a | 3.0 | 0.500 | (20.0, 40.0, 60.0) | -, - | 6.00 (2.83), - |' in text
  )
  assert '| 1.010, 1.002 | 7.40, - | 9.0 | 2 |' in text
  assert '| b | failed |' in text
  assert r'b failed: E: \| no Traceback' in text


# Condition numbers and images of factors, dense and diagonal alike.


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
