"""The cases on exact laws, and what a device does with one of them."""

import numpy as np
import pytest

from experiments.run.study import Work
from experiments.samplers import laws
from experiments.studies import devices
from experiments.targets.gaussians import rotated_covariance

_CASES = {case.name: case for case in laws.cases()}


@pytest.mark.parametrize('name', ['marginal_gradient', 'second_order_gradient'])
def test_the_law_of_a_field_is_its_posterior(name):
  if name == 'marginal_gradient':
    gaps = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    precision = np.linalg.inv(np.exp(-0.5 * gaps) + 0.1 * np.eye(6))
  else:
    precision = 2.0 * np.eye(6) - 0.9 * (np.eye(6, k=1) + np.eye(6, k=-1))
  law = _CASES[name].law
  whole = precision + np.eye(6) / laws.NOISE
  pulled = precision @ np.full(6, 0.3) + laws.DATA / laws.NOISE
  np.testing.assert_allclose(law.mean, np.linalg.solve(whole, pulled), 1e-4)
  variances = np.diag(np.linalg.inv(whole))
  np.testing.assert_allclose(law.variances, variances, 1e-4)


@pytest.mark.parametrize(
  'name',
  [
    'gradient_adaptive_langevin',
    'auxiliary_gradient, stationary',
    'latent_gaussian_hyperparameters',
  ],
)
def test_draws_of_a_law_have_its_moments(name):
  law, num_draws = _CASES[name].law, 4000
  distances = law.draw(num_draws, 3) - law.mean
  for values in (distances, distances**2 - law.variances):
    error = values.std(axis=0) / num_draws**0.5
    # The largest of some tens of normals.
    assert np.all(np.abs(values.mean(axis=0)) < 4.5 * error)


def test_a_density_has_its_law():
  covariance = rotated_covariance(laws.VARIANCES, 0)
  law = _CASES['gradient_adaptive_langevin'].law
  np.testing.assert_allclose(law.variances, np.diag(covariance))


@pytest.mark.nightly
def test_a_device_keeps_the_law_and_the_study_sees_another(tmp_path):
  amount = devices.Amount().smoke()
  case = devices.Case(_CASES['gradient_adaptive_langevin'], False)
  row = devices.run(case, 0, Work(amount, tmp_path))
  # The largest of 12. Above 4.5 has a chance of 1e-4 under the law.
  assert row['worst_z'] < 4.5 < row['other_law_z']
  assert all(rate > 0.0 for rate in row['chain_steps'].values())
  saturated = {10: 1.0, 100: 9.0, 1000: 10.0}
  assert devices._saturation(saturated) == 100
