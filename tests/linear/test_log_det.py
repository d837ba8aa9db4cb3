"""log det(I + D) by random series: exact in the mean, its gradients too.

The mean over Rademacher probes is taken over all 2^d of them, the mean over
the number of terms by its law: what is left is the rounding error.
"""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests.contracts import registry
from tests.contracts import targets
from tests.contracts import trajectories
from tfp_adaptive.core import random
from tfp_adaptive.core import scale_factor
from tfp_adaptive.linear import log_det
from tfp_adaptive.linear import trajectory

_D = 4
_NUM_STEPS = 3
_KAPPA = (_NUM_STEPS**2 - 1) / 6
_NUM_FIXED, _CONTINUE = 2, 0.5
_NUM_PROBED_TERMS = 70  # The rest of the series is 0.7^70 / 70 of it.
_STRUCTURES = ('cholesky', 'diagonal')


def _dense(structure):
  """Returns C of a structure."""
  rng = np.random.default_rng(7)
  if structure == 'diagonal':
    return np.diag(rng.uniform(0.5, 2.0, _D))
  return np.eye(_D) + 0.5 * np.tril(rng.normal(size=(_D, _D)))


def _hessian(factor, largest=0.7):
  """Returns H, indefinite, with eigenvalues of D from -0.3 to `largest`."""
  rng = np.random.default_rng(3)
  basis, _ = np.linalg.qr(rng.normal(size=(_D, _D)))
  eigenvalues = largest * np.array([-1.0, 0.4, 0.6, -0.1])
  jacobian = (basis * eigenvalues) @ basis.T
  inverse = np.linalg.inv(factor)
  return -inverse.T @ jacobian @ inverse / _KAPPA


def _jacobian(factor, hessian):
  return -_KAPPA * factor.T @ hessian @ factor


def _log_det(factor, hessian):
  return np.linalg.slogdet(np.eye(_D) + _jacobian(factor, hessian))[1]


def _preconditioner(structure, factor):
  params = np.diag(factor) if structure == 'diagonal' else factor
  return registry.preconditioner(structure), tf.constant(params)


def _step(dtype=tf.float64):
  flat = tf.zeros([1, _D], dtype)
  path = trajectory.start_trajectory(flat)._replace(
    num_steps=tf.constant(_NUM_STEPS)
  )
  return trajectory.Step(flat, flat, flat, path)


def _event_sum(rows):
  return tf.reduce_sum(rows, axis=-1)


def _estimate(factor, hessian, probe, num_terms, continue_prob=_CONTINUE):
  return log_det.estimate(
    factor,
    lambda rows, sizes: tf.matmul(rows, tf.cast(hessian, rows.dtype)),
    tf.constant(_KAPPA, probe.dtype),
    probe,
    num_terms,
    log_det.Series(_NUM_FIXED, continue_prob),
  )


_ALL_PROBES = tf.constant(list(itertools.product([-1.0, 1.0], repeat=_D)))


@functools.cache
def _mean(structure, continue_prob=_CONTINUE, mean_slope=0.0):
  """Returns means of the estimate and of its gradients over probes and N."""
  dense = _dense(structure)
  hessian = _hessian(dense)
  part, params = _preconditioner(structure, dense)
  probe = tf.cast(_ALL_PROBES, tf.float64)

  def gradients(estimate, variable, factor_of):
    with tf.GradientTape() as tape:
      tape.watch(variable)
      value, _ = trajectory.log_det(
        factor_of(variable), _step(), estimate, mean_slope, _event_sum
      )
      value = tf.reduce_mean(value)
    return value, tape.gradient(value, variable)

  @tf.function(autograph=False)
  def at_num_terms(num_terms):
    estimate = _estimate(
      scale_factor.at(part, params), hessian, probe, num_terms, continue_prob
    )
    value, raw = gradients(estimate, params, lambda p: scale_factor.at(part, p))
    _, relative = gradients(
      estimate,
      scale_factor.zero_tangent(params),
      lambda e: scale_factor.around(part, params, e),
    )
    return value, raw, relative

  totals = [0.0, 0.0, 0.0]
  for extra in range(_NUM_PROBED_TERMS):
    prob = (1.0 - _CONTINUE) * _CONTINUE**extra
    terms = at_num_terms(tf.constant(_NUM_FIXED + extra))
    totals = [t + prob * term.numpy() for t, term in zip(totals, terms)]
  return totals


def _expected_gradients(structure):
  """Returns derivatives of log det in the params and in the tangent."""
  dense = _dense(structure)
  hessian = _hessian(dense)
  raw = trajectories.finite_difference(lambda c: _log_det(c, hessian), dense)
  relative = trajectories.finite_difference(
    lambda e: _log_det(dense @ (np.eye(_D) + e), hessian), np.zeros([_D, _D])
  )
  if structure == 'diagonal':
    # Its tangent is the log of the scale, to first order.
    return np.diag(raw), np.diag(relative)
  return np.tril(raw), relative


@pytest.mark.parametrize('mean_slope', [0.0, -0.7])
@pytest.mark.parametrize('structure', _STRUCTURES)
def test_the_means_are_the_log_determinant_and_its_gradients(
  structure, mean_slope
):
  # Whatever the slope that the control variate takes off: its mean is zero.
  value, raw, relative = _mean(structure, mean_slope=mean_slope)
  dense = _dense(structure)
  expected = _log_det(dense, _hessian(dense))
  assert abs(expected) > 0.1
  np.testing.assert_allclose(value, expected, rtol=1e-8)
  expected_raw, expected_relative = _expected_gradients(structure)
  np.testing.assert_allclose(raw, expected_raw, rtol=1e-6, atol=1e-7)
  np.testing.assert_allclose(relative, expected_relative, rtol=1e-6, atol=1e-7)


def _gradients_by_probe(dense, hessian, mean_slope):
  """Returns gradients in the tangent for each of four probes, [4, d, d]."""
  part, params = _preconditioner('cholesky', dense)
  gradients = []
  for probe in tf.cast(_ALL_PROBES[:4], tf.float64):
    estimate = _estimate(
      scale_factor.at(part, params), hessian, probe[tf.newaxis], tf.constant(3)
    )

    def value(tangent, estimate=estimate):
      factor = scale_factor.around(part, params, tangent)
      step = _step(), estimate, mean_slope, _event_sum
      return trajectory.log_det(factor, *step)[0]

    gradients.append(
      targets.value_and_gradient(value, scale_factor.zero_tangent(params))[1]
    )
  return np.array(gradients)


def test_the_control_variate_takes_all_noise_off_once_the_factor_is_learned():
  # D = -l I: with three terms y = (1 + l + l^2 + 2 l^3) e at p_3 = 1/2.
  dense, small = _dense('cholesky'), 0.4
  inverse = np.linalg.inv(dense)
  hessian = small * inverse.T @ inverse / _KAPPA
  slope = -2.0 * small * (1.0 + small + small**2 + 2.0 * small**3)
  quiet = _gradients_by_probe(dense, hessian, slope)
  np.testing.assert_allclose(
    quiet, np.broadcast_to(slope * np.eye(_D), quiet.shape), atol=1e-10
  )
  # The negative control: without it probes differ by as much as the slope.
  noisy = _gradients_by_probe(dense, hessian, 0.0)
  assert np.max(np.std(noisy, axis=0)) > 0.5 * abs(slope)


def test_the_running_slope_approaches_that_of_the_estimates():
  dense = _dense('cholesky')
  part, params = _preconditioner('cholesky', dense)
  factor = scale_factor.at(part, params)
  probes = tf.cast(_ALL_PROBES, tf.float64)
  hessian = _hessian(dense, largest=0.3)
  estimate = _estimate(factor, hessian, probes, tf.constant(4))
  log_scale = tf.zeros([], tf.float64)
  with tf.GradientTape() as tape:
    tape.watch(log_scale)
    scaled = scale_factor.scaled(factor, tf.exp(log_scale))
    value, _ = trajectory.log_det(scaled, _step(), estimate, 0.0, _event_sum)
    per_coordinate = tf.reduce_mean(value) / _D
  expected = float(tape.gradient(per_coordinate, log_scale))
  assert abs(expected) > 0.05
  follow = tf.function(
    lambda mean: trajectory.mean_slope(mean, factor, _step(), estimate),
    autograph=False,
  )
  mean = tf.zeros([], tf.float64)
  for _ in range(400):
    mean = follow(mean)
  np.testing.assert_allclose(mean, expected, rtol=1e-2)


def test_without_the_weights_of_the_terms_the_means_are_wrong():
  # The negative control: 1 / p_k = 1 cuts the series short.
  value, raw, _ = _mean('cholesky', continue_prob=1.0)
  dense = _dense('cholesky')
  assert abs(value / _log_det(dense, _hessian(dense)) - 1.0) > 0.1
  expected, _ = _expected_gradients('cholesky')
  assert np.linalg.norm(raw - expected) > 0.1 * np.linalg.norm(expected)


def _eigenvalues(num_terms):
  """Returns b^T D b of all probes and its mean gradient in C, [d, d]."""
  dense = _dense('cholesky')
  part, params = _preconditioner('cholesky', dense)
  estimate = _estimate(
    scale_factor.at(part, params),
    _hessian(dense),
    tf.cast(_ALL_PROBES, tf.float64),
    tf.constant(num_terms),
  )
  with tf.GradientTape() as tape:
    tape.watch(params)
    _, eigenvalue = trajectory.log_det(
      scale_factor.at(part, params), _step(), estimate, 0.0, _event_sum
    )
    mean = tf.reduce_mean(eigenvalue)
  return eigenvalue.numpy(), tape.gradient(mean, params).numpy()


def _largest_eigenvalue(factor, hessian):
  eigenvalues = np.linalg.eigvalsh(_jacobian(factor, hessian))
  return eigenvalues[np.argmax(np.abs(eigenvalues))]


def test_power_iteration_approaches_the_largest_eigenvalue():
  dense = _dense('cholesky')
  expected = _largest_eigenvalue(dense, _hessian(dense))
  np.testing.assert_allclose(expected, -0.7)
  errors = [
    np.max(np.abs(_eigenvalues(n)[0] - expected)) for n in (10, 15, 20, 40)
  ]
  # A Rayleigh quotient gains (0.6)^2 a term, 0.6 the ratio of eigenvalues.
  np.testing.assert_allclose(
    np.log(np.divide(errors[1:3], errors[:2])), 10 * np.log(0.6), rtol=0.1
  )
  assert errors[3] < 1e-9


def test_the_gradient_of_the_eigenvalue_is_its_own():
  dense = _dense('cholesky')
  hessian = _hessian(dense)
  expected = trajectories.finite_difference(
    lambda c: _largest_eigenvalue(c, hessian), dense
  )
  np.testing.assert_allclose(
    _eigenvalues(60)[1], np.tril(expected), rtol=1e-5, atol=1e-6
  )


def _series(jacobian, probe, num_terms):
  """Returns the estimate, y and the last power of one probe, term by term."""
  value, weighted, power = 0.0, probe, probe
  for k in range(1, num_terms + 1):
    longest = 0.99 * np.linalg.norm(power)
    power = jacobian @ power
    power = power * min(1.0, longest / np.linalg.norm(power))
    weight = (-1.0) ** k / _CONTINUE ** max(k - _NUM_FIXED, 0)
    value = value - weight / k * probe @ power
    weighted = weighted + weight * power
  return value, weighted, power / np.linalg.norm(power)


# The second is no contraction, so its powers are shortened.
@pytest.mark.parametrize('largest', [0.7, 2.5])
def test_an_estimate_is_its_series_in_dense_algebra(largest):
  dense = _dense('cholesky')
  hessian = _hessian(dense, largest)
  part, params = _preconditioner('cholesky', dense)
  probes = tf.cast(_ALL_PROBES, tf.float64)
  found = _estimate(
    scale_factor.at(part, params), hessian, probes, tf.constant(5)
  )
  jacobian = _jacobian(dense, hessian)
  expected = zip(*(_series(jacobian, e, 5) for e in probes.numpy()))
  for name, wanted in zip(('value', 'weighted', 'eigenvector'), expected):
    np.testing.assert_allclose(
      getattr(found, name), wanted, rtol=1e-11, atol=1e-12
    )


def test_no_contraction_still_has_finite_estimates():
  dense = _dense('cholesky')
  part, params = _preconditioner('cholesky', dense.astype(np.float32))
  for num_terms in (2, 20, 100):
    estimate = _estimate(
      scale_factor.at(part, params),
      _hessian(dense, largest=5.0),
      _ALL_PROBES,
      tf.constant(num_terms),
    )
    with tf.GradientTape() as tape:
      tape.watch(params)
      factor = scale_factor.at(part, params)
      value, eigenvalue = trajectory.log_det(
        factor, _step(tf.float32), estimate, 0.0, _event_sum
      )
      total = tf.reduce_sum(value + eigenvalue)
    assert np.all(np.isfinite(value))
    assert np.all(np.isfinite(tape.gradient(total, params)))
  # The largest eigenvalue is still told, for the penalty.
  np.testing.assert_allclose(eigenvalue, -5.0, rtol=1e-3)


@pytest.mark.parametrize('num_fixed, prob', [(2, 0.5), (0, 0.3), (3, 0.8)])
def test_the_number_of_terms_has_the_stated_law(num_fixed, prob):
  num_draws = 4000

  @tf.function(autograph=False)
  def draws():
    return tf.map_fn(
      lambda i: log_det.Series(num_fixed, prob).draw_num_terms(
        tf.float32, random.fold_in(tf.constant([3, 4]), i)
      ),
      tf.range(num_draws),
      fn_output_signature=tf.int32,
    )

  extra = draws().numpy() - num_fixed
  assert extra.min() == 0
  cells = 6
  counts = np.bincount(np.minimum(extra, cells - 1), minlength=cells)

  def p_value(prob):
    law = (1.0 - prob) * prob ** np.arange(cells)
    law[-1] = prob ** (cells - 1)
    return stats.chisquare(counts, num_draws * law).pvalue

  assert p_value(prob) > 1e-3
  assert p_value(prob + 0.05) < 1e-6  # The negative control.
