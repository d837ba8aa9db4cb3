"""Lowering for a GPU without one sees ops that have no kernel there."""

import inspect

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.studies import bench_devices
from experiments.studies import kernel_cases
from experiments.studies import placement
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
@pytest.mark.parametrize(
  'name',
  [
    'gradient_adaptive_langevin',
    'adaptive_metropolis, tridiagonal',
    'kernel_hamiltonian, lite',
    'marginal_gradient, stationary',
  ],
)
def test_representative_steps_lower_for_a_gpu(name):
  row = placement.measure(_CASES[name])
  assert row['adapting']['lowers'] and row['frozen']['lowers']
  assert row['adapting']['custom_calls'] == row['frozen']['custom_calls'] == []
  # A path's factor is solved by a scan there, by a loop on a CPU.
  solves_a_path = name == 'adaptive_metropolis, tridiagonal'
  assert row['same_as_on_cpu'] != solves_a_path
  # A step that adapts holds more.
  assert row['adapting']['kilobytes'] > row['frozen']['kilobytes'] > 20


def _determinant(x):
  matrix = tf.eye(3) + 0.1 * x[..., tf.newaxis] * x[..., tf.newaxis, :]
  factor, _ = tf.linalg.lu(tf.stop_gradient(matrix))
  return tf.reduce_sum(tf.linalg.diag_part(factor) - 0.5 * x**2, axis=-1)


def _in_python(x):
  return tf.numpy_function(
    lambda v: np.float32(-0.5 * np.sum(v**2, axis=-1)), [x], tf.float32
  )


def _lowered(target_log_prob_fn):
  kernel = tfpa.adaptive_metropolis(
    lambda x: tf.ensure_shape(target_log_prob_fn(x), [2]), 10
  )
  state = tf.ones([2, 3])
  ((text, op),) = placement.lower(
    kernel, state, kernel.bootstrap_results(state)
  )
  return placement.summary(text, op)


@pytest.mark.full
@pytest.mark.parametrize(
  'target, op', [(_determinant, 'Lu'), (_in_python, 'PyFunc')]
)
def test_an_op_without_a_kernel_is_reported(target, op):
  assert _lowered(target) == dict(lowers=False, op=op)


@pytest.mark.full
def test_custom_calls_and_float64_are_reported():
  def eigenvalues(x):
    matrix = x[..., tf.newaxis] * x[..., tf.newaxis, :]
    values = tf.linalg.eigvalsh(tf.cast(matrix, tf.float64))
    return -0.5 * tf.cast(tf.reduce_sum(values, axis=-1), tf.float32)

  found = _lowered(eigenvalues)
  assert found['lowers'] and found['custom_calls'] == ['Eigh']
  assert found['num_float64'] > 0


@pytest.mark.nightly
def test_the_bench_of_devices_measures_and_sees_another_law():
  case = _CASES['gradient_adaptive_langevin']
  row = bench_devices._measure(case, False, bench_devices._SMOKE)
  # The largest of 12; 4.5 has a chance of 1e-4 under the law.
  assert row.worst_z < 4.5 < row.other_law_z
  assert all(rate > 0.0 for rate in row.chain_steps.values())
  assert bench_devices.to_rich([row]).row_count == 1


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
  assert bench_devices._saturation(rates) == saturation
