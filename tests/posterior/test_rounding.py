"""Noise of a log density, as it is known from how the density is made."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tests.transport import funnels
from tfp_adaptive.posterior.density import Density
from tfp_adaptive.posterior.judge import rounding
from tfp_adaptive.posterior.model import problem as problem_lib

_NUM_CHAINS, _SIZE = 8, 3


_normal = targets.standard_normal


def _density(log_prob, dtype=tf.float64, computed_in=None, size=_SIZE):
  problem = problem_lib.of_density(
    log_prob, tf.TensorSpec([size], dtype), None, _NUM_CHAINS
  )
  return Density(problem, _NUM_CHAINS, computed_in or dtype)


def _measured(log_prob, scale=1.0, center=0.0, **options):
  density = _density(log_prob, **options)
  draws = np.random.default_rng(1).normal(size=(100, _NUM_CHAINS, _SIZE))
  draws = (center + scale * draws).astype(density.dtype.as_numpy_dtype)
  values = density.evaluate(draws.reshape(-1, _SIZE))[0]
  return rounding.measured(density, draws, values.reshape(100, -1))


def _noisy(deviation):
  """Returns a normal density with noise that changes from point to point."""

  def log_prob(x):
    fraction = tf.math.floormod(tf.reduce_sum(x, -1) * 1e7, 1.0)
    noise = deviation * np.sqrt(12.0) * (fraction - 0.5)
    return _normal(x) + tf.stop_gradient(noise)

  return log_prob


@pytest.mark.parametrize('deviation', [0.03, 0.3, 3.0])
def test_noise_of_a_known_size_is_found(deviation):
  found = _measured(_noisy(deviation))
  assert 0.5 * deviation < found.nats < 2.0 * deviation


_ROWS = 1e7  # Equal data: the rounding of one term is that of all.


def _of_equal_data(eta):
  return _ROWS * tf.reduce_sum(10.0 * eta - tf.exp(eta), axis=-1)


def test_rounding_that_follows_the_unknowns_is_found_by_float64():
  deviation = 1.0 / np.sqrt(10.0 * _ROWS)
  draws = np.random.default_rng(0).normal(size=(100, _NUM_CHAINS, 1))
  draws = (np.log(10.0) + deviation * draws).astype(np.float32)
  rows = draws.reshape(-1, 1)
  expected = np.std(
    _of_equal_data(tf.constant(rows)).numpy()
    - _of_equal_data(tf.constant(rows, tf.float64)).numpy()
  )
  assert expected > 1.0
  for computed_in, low, high in (
    (tf.float32, 0.8 * expected, 1.25 * expected),
    (tf.float64, 0.0, 1e-4),
  ):
    density = _density(_of_equal_data, tf.float32, computed_in, size=1)
    values = density.evaluate(rows)[0].reshape(draws.shape[:2])
    at = draws.astype(density.dtype.as_numpy_dtype)
    assert low <= rounding.measured(density, at, values).nats <= high


@pytest.mark.parametrize('scale', [1e-6, 1.0, 1e6])
def test_an_exact_density_has_none_whatever_its_units(scale):
  found = _measured(lambda x: _normal(x / scale), scale)
  assert found.nats < 1e-6


def test_a_density_that_bends_is_not_called_noisy():
  assert _measured(funnels.funnel).nats < 1e-3


@pytest.mark.parametrize('constant', [1e5, 1e7, 1e9])
def test_a_constant_costs_the_digits_of_float32(constant):
  large = lambda x: _normal(x) + np.float32(constant)
  spacing = np.spacing(np.float32(constant))
  found = _measured(large, dtype=tf.float32)
  assert 0.1 * spacing < found.nats < 2.0 * spacing + 0.1
  assert (found.nats > rounding.MOST) == (constant > 1e6)
  # The same program in float64 knows all digits.
  wide = _measured(large, dtype=tf.float32, computed_in=tf.float64)
  assert wide.nats < 1e-6


def test_a_kernel_whose_program_sums_otherwise_is_noisy_by_itself():
  density = _density(_normal)
  rng = np.random.default_rng(1)
  draws = rng.normal(size=(100, _NUM_CHAINS, _SIZE))
  exact = -0.5 * np.sum(draws**2, axis=-1)
  of_kernel = exact + rng.normal(0.0, 0.5, size=exact.shape)
  # A constant beside it decides nothing.
  assert rounding.measured(density, draws, exact + 7.0).nats < 1e-6
  found = rounding.measured(density, draws, of_kernel)
  assert 0.2 < found.nats < 1.0


def _gradient_times(factor):
  @tf.custom_gradient
  def log_prob(x):
    return _normal(x), lambda upstream: -factor * upstream[:, None] * x

  return log_prob


@pytest.mark.parametrize('factor', [0.0, -1.0, 0.9, 1.3, 2.0])
def test_a_gradient_of_another_density_is_told(factor):
  starts = np.random.default_rng(0).uniform(-2.0, 2.0, (_NUM_CHAINS, _SIZE))
  found = rounding.wrong_gradient(_density(_gradient_times(factor)), starts)
  assert found.startswith('The gradient is not that of the log density')


@pytest.mark.parametrize('dtype', [tf.float32, tf.float64])
@pytest.mark.parametrize(
  'log_prob',
  [
    _gradient_times(1.0),
    funnels.funnel,
    _noisy(1e-6),
    lambda x: _normal(x) - 1e6,
    lambda x: -tf.reduce_sum(tf.abs(x), axis=-1),
    lambda x: 1e8 * _normal(x),
  ],
  ids=['right', 'funnel', 'noise', 'constant', 'kinks', 'steep'],
)
def test_a_right_gradient_is_not(log_prob, dtype):
  starts = np.random.default_rng(0).uniform(-2.0, 2.0, (_NUM_CHAINS, _SIZE))
  assert not rounding.wrong_gradient(_density(log_prob, dtype), starts)


def test_a_gradient_is_right_where_points_are_rounded():
  density = _density(lambda x: _normal(x - 2e4), tf.float32)
  starts = np.random.default_rng(1).normal(size=(_NUM_CHAINS, _SIZE)) + 2e4
  assert not rounding.wrong_gradient(density, starts)


def _shifted(x):
  return _normal(x) + np.float32(1e8)


@pytest.mark.full
@pytest.mark.parametrize('dtype', [None, tf.float32])
def test_a_large_constant_is_sampled_right_or_not_at_all(dtype):
  posterior = tfpa.sample_posterior(
    _shifted, init=tf.TensorSpec([2]), progress=False, dtype=dtype
  )
  deviation = posterior.unconstrained.std()
  if dtype is None:
    assert posterior.converged and abs(deviation - 1.0) < 0.03
  else:
    # It is off by a third, and R-hat and effective sizes say nothing.
    assert abs(deviation - 1.0) > 0.1 and not posterior.converged
    failed = posterior.failed[-1]
    assert 'rounding noise' in failed and '`dtype=tf.float64`' in failed
    assert 'next: follow the advice in the failed check' in repr(posterior)
    # More draws or another structure would not help, so the run has ended.
    assert posterior.ended_by == 'rounding noise'
    assert [stage.name for stage in posterior.report][-1] == 'sample'
    assert posterior.num_gradients < 20_000


def test_values_that_are_no_numbers_are_noise_without_bound():
  density = _density(lambda x: np.nan * x[:, 0])
  draws = np.random.default_rng(1).normal(size=(100, _NUM_CHAINS, _SIZE))
  recorded = -0.5 * np.sum(draws**2, axis=-1)
  assert rounding.measured(density, draws, recorded).nats == np.inf


@pytest.mark.parametrize('size', [5, 100])
def test_a_wrong_gradient_is_not_called_noise(size):
  density = _density(_gradient_times(0.5), size=size)
  draws = np.random.default_rng(1).normal(size=(100, _NUM_CHAINS, size))
  values = density.evaluate(draws.reshape(-1, size))[0].reshape(100, -1)
  assert rounding.measured(density, draws, values).nats < 0.01
