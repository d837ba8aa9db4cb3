"""The cases of all kernels, and what a device does with one of them."""

import inspect

import numpy as np
import pytest

import tfp_adaptive as tfpa
from experiments.run.study import Work
from experiments.studies import devices
from experiments.studies import kernel_cases
from experiments.targets.gaussians import rotated_covariance
from tests.contracts import registry

_CASES = {case.name: case for case in kernel_cases.cases()}


def test_cases_hold_every_builder_and_every_part():
  words = {word for name in _CASES for word in name.split(', ')}
  builders = {
    name
    for name in tfpa.__all__
    if inspect.isfunction(getattr(tfpa, name))
    and 'num_adaptation_steps'
    in inspect.signature(getattr(tfpa, name)).parameters
  }
  assert builders <= words
  assert len(builders) >= 13
  assert {*registry.PRECONDITIONERS, *registry.CRITERIA} <= words
  for structure in registry.PRECONDITIONERS:
    for builder in kernel_cases._LINEAR:
      assert f'{builder}, {structure}' in _CASES


def test_the_law_of_a_field_is_its_posterior():
  covariance = rotated_covariance(kernel_cases._VARIANCES, 1)
  noise = kernel_cases._NOISE
  precision = np.linalg.inv(covariance) + np.eye(kernel_cases.SIZE) / noise
  law = _CASES['marginal_gradient, spectral'].law
  wanted = np.linalg.solve(precision, kernel_cases._DATA / noise)
  np.testing.assert_allclose(law.mean, wanted, rtol=1e-4)
  variances = np.diag(np.linalg.inv(precision))
  np.testing.assert_allclose(law.variances, variances, rtol=1e-4)


@pytest.mark.parametrize('name', _CASES)
def test_draws_of_a_law_have_its_moments(name):
  law, num_draws = _CASES[name].law, 4000
  distances = law.draw(num_draws, 3) - law.mean
  for values in (distances, distances**2 - law.variances):
    error = values.std(axis=0) / num_draws**0.5
    # The largest of some hundred normals.
    assert np.all(np.abs(values.mean(axis=0)) < 5.0 * error)


@pytest.mark.nightly
def test_a_device_keeps_the_law_and_the_study_sees_another(tmp_path):
  amount = devices.Amount().smoke()
  case = devices.Case(_CASES['gradient_adaptive_langevin'], False)
  row = devices.run(case, 0, Work(amount, tmp_path))
  # The largest of 12. Above 4.5 has a chance of 1e-4 under the law.
  assert row['worst_z'] < 4.5 < row['other_law_z']
  assert all(rate > 0.0 for rate in row['chain_steps'].values())


@pytest.mark.parametrize(
  'rates, saturation',
  [
    ({10: 1.0, 100: 9.0, 1000: 80.0}, 1000),
    ({10: 1.0, 100: 9.0, 1000: 10.0}, 100),
    ({10: 1.0, 100: 1.5, 1000: 10.0}, 10),
  ],
)
def test_saturation_is_where_more_chains_do_not_double_the_rate(
  rates, saturation
):
  assert devices._saturation(rates) == saturation
