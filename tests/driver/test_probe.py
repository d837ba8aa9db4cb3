"""Readings of a target are equal for the same target, and for no other."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tests.contracts import targets
from tfp_adaptive.driver import probe

_STATE = np.random.default_rng(0).normal(size=(4, 3))


def _of(value_and_gradient, dtype='float32'):
  """Returns the reading of a function of x, through JSON."""

  def evaluate(point):
    value, gradient = value_and_gradient(np.asarray(point))
    return {
      'log density': np.asarray(value, dtype),
      'gradient': np.asarray(gradient, dtype),
    }

  reading = probe.read(evaluate, probe.points(tf.constant(_STATE)))
  return json.loads(json.dumps(reading))


def _normal(scale=1.0, constant=0.0, shift=0.0):
  return lambda x: (
    -0.5 * np.sum((x - shift) ** 2, -1) / scale**2 + constant,
    (shift - x) / scale**2,
  )


def _elsewhere(reading):
  return dict(reading, machine=['another'])


@pytest.mark.parametrize('dtype, least', [('float32', 1e-4), ('float64', 1e-9)])
@pytest.mark.parametrize('constant', [0.0, -1.4e6])
def test_a_gradient_is_not_hidden_by_a_constant(dtype, least, constant):
  saved = _of(_normal(constant=constant), dtype)
  assert probe.differences(saved, saved) == ''
  found = _of(_normal(1.0 + least, constant), dtype)
  assert 'before' in probe.differences(saved, found)
  words = probe.differences(saved, _of(_normal(1.0 + 100 * least, constant)))
  assert words
  if constant and dtype == 'float32':
    assert probe.differences(saved, found).startswith('gradient at the start (')


@pytest.mark.parametrize('dtype', ['float32', 'float64'])
def test_rounding_of_another_machine_is_accepted_there_alone(dtype):
  eps = np.finfo(dtype).eps
  rng = np.random.default_rng(1)

  def rounded(x):
    value, gradient = _normal(constant=-300.0)(x)
    value = value * (1.0 + 200.0 * eps * rng.uniform(-1, 1, value.shape))
    worst = np.max(np.abs(gradient))
    return value, gradient + 200.0 * eps * worst

  saved = _of(_normal(constant=-300.0), dtype)
  rng = np.random.default_rng(1)
  found = _of(rounded, dtype)
  found['noise'] = dict.fromkeys(found['noise'], 0.0)
  assert probe.differences(saved, _elsewhere(found)) == ''
  assert probe.differences(saved, found) != ''
  # Power: a change is seen on another machine, too.
  other = _elsewhere(_of(_normal(1.01, -300.0), dtype))
  assert probe.differences(saved, other) != ''


@pytest.mark.parametrize('size', [3, 128, 129, 5000])
def test_one_number_of_many_is_seen(size):
  state = np.random.default_rng(2).normal(size=[size]).astype('f')

  def reading(change):
    def evaluate(point):
      gradient = np.array(point)
      gradient[size // 2] += change
      return dict(gradient=gradient)

    return probe.read(evaluate, probe.points(tf.constant(state)))

  assert probe.differences(reading(0.0), reading(0.0)) == ''
  assert probe.differences(reading(0.0), reading(0.01)) != ''


def test_what_is_random_by_design_is_not_compared():
  rng = np.random.default_rng(3)

  def noisy(x):
    value, gradient = _normal()(x)
    return value + rng.normal(size=value.shape), gradient

  saved = _of(noisy)
  assert saved['noise']['gradient'] == 0.0
  assert probe.differences(saved, _of(noisy)) == ''
  # Its gradient is not random, and is compared.

  def other(x):
    return noisy(x)[0], _normal(1.1)(x)[1]

  assert probe.differences(saved, _of(other)).startswith('gradient')


def test_points_where_nothing_can_be_computed_are_compared_as_such():
  def bounded(edge):
    def evaluate(x):
      if np.max(x) > edge:
        raise ArithmeticError
      return _normal()(x)

    return evaluate

  edge = np.max(_STATE)
  saved = _of(bounded(edge))
  assert [bool(point) for point in saved['points']][0]
  assert not all(saved['points'])
  assert probe.differences(saved, _of(bounded(edge))) == ''
  assert 'only one of both' in probe.differences(saved, _of(bounded(9.0)))


def test_points_are_fixed_and_of_ordinary_size():
  scale = np.array([1e-3, 1.0, 1e3])
  for dtype in ('float32', 'float64'):
    start = tf.constant(_STATE, dtype)
    moved = np.abs(probe.points(start)[1] - start)
    assert 0.3 < moved.min() and moved.max() < 0.71
    # With deviations of each coordinate, the moves have their size.
    moved = np.abs((probe.points(start, scale)[1] - start) / scale)
    assert np.all((moved > 0.49) & (moved < 1.01))
    again = probe.points(start, scale)[1]
    np.testing.assert_array_equal(again, probe.points(start, scale)[1])


_log_prob = targets.standard_normal


_KERNELS = {
  'RandomWalkMetropolis': lambda: tfp.mcmc.RandomWalkMetropolis(_log_prob),
  'HamiltonianMonteCarlo': lambda: tfp.mcmc.HamiltonianMonteCarlo(
    _log_prob, 0.1, 2
  ),
  'NoUTurnSampler': lambda: tfp.mcmc.NoUTurnSampler(_log_prob, 0.1),
  'EllipticalSliceSampler': lambda: (
    tfp.experimental.mcmc.EllipticalSliceSampler(
      lambda seed: tf.random.stateless_normal([4, 3], seed, tf.float64),
      _log_prob,
    )
  ),
}


@pytest.mark.parametrize('name', _KERNELS)
def test_kernels_show_the_density_in_their_results(name):
  kernel = _KERNELS[name]()
  results = kernel.bootstrap_results(tf.constant(_STATE))
  found = dict(probe.fields_of_density(results))
  expected = -0.5 * np.sum(_STATE**2, axis=-1)
  values = [v for k, v in found.items() if 'grad' not in k]
  # The first of several replicas has the density itself.
  assert any(np.allclose(np.reshape(v, [-1, 4])[0], expected) for v in values)
