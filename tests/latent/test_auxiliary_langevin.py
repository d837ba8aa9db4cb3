"""Auxiliary MALA against dense densities, and MALA as its marginal."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.latent import auxiliary_langevin

_DELTA = 0.5
_WEIGHTS = np.array([0.5, 1.0, 2.0])


def _target(x):
  return tf.reduce_sum(tf.sin(tf.constant(_WEIGHTS) * x) - 0.3 * x**4, axis=-1)


def _gradient(x):
  return _WEIGHTS * np.cos(_WEIGHTS * x) - 1.2 * x**3


def _log_normal(x, mean, variance):
  return -0.5 * np.sum((x - mean) ** 2, axis=-1) / variance


def _states(num=5):
  return np.random.default_rng(1).normal(size=(num, 3))


@pytest.mark.parametrize('auxiliary', ['z', 'u'])
def test_correction_is_that_of_the_extended_target(auxiliary):
  kernel = tfpa.proposals.UncalibratedAuxiliaryLangevin(
    _target, _DELTA, auxiliary
  )
  seen = {}
  propose = kernel._propose

  def remember(*args):
    y, seen['drawn'] = propose(*args)
    return y, seen['drawn']

  kernel._propose = remember
  states = tf.constant(_states())
  proposed, results = kernel.one_step(
    states, kernel.bootstrap_results(states), seed=(1, 2)
  )
  x, y = states.numpy(), proposed.numpy()
  u, z = (row.numpy() for row in seen['drawn'])
  variance = 0.5 * _DELTA
  ratio = 0.0
  for sign, here, there in ((1.0, y, x), (-1.0, x, y)):
    pull = variance * _gradient(here)
    if auxiliary == 'z':
      ratio += sign * _log_normal(z, here + pull, variance)
      ratio += sign * _log_normal(there, z, variance)
    else:
      ratio += sign * _log_normal(u, here, variance)
      ratio += sign * _log_normal(there, u + pull, variance)
  np.testing.assert_allclose(
    results.log_acceptance_correction, ratio, atol=1e-12
  )


def test_its_marginal_is_mala():
  kernel = tfpa.proposals.UncalibratedMarginalGradient(
    _target, auxiliary_langevin.FLAT, _DELTA
  )
  states = tf.constant(_states())
  proposed, results = kernel.one_step(
    states, kernel.bootstrap_results(states), seed=(1, 2)
  )
  x, y = states.numpy(), proposed.numpy()
  forward = _log_normal(y, x + 0.5 * _DELTA * _gradient(x), _DELTA)
  backward = _log_normal(x, y + 0.5 * _DELTA * _gradient(y), _DELTA)
  np.testing.assert_allclose(
    results.log_acceptance_correction, backward - forward, atol=1e-12
  )


def test_both_draw_with_the_mean_and_variance_of_mala():
  num_draws = 40000
  x = _states(1)[0]
  states = tf.constant(np.tile(x, (num_draws, 1)))
  for kernel in (
    tfpa.proposals.UncalibratedAuxiliaryLangevin(_target, _DELTA),
    tfpa.proposals.UncalibratedMarginalGradient(
      _target, auxiliary_langevin.FLAT, _DELTA
    ),
  ):
    proposed, _ = kernel.one_step(
      states, kernel.bootstrap_results(states), seed=(1, 2)
    )
    noise = (proposed.numpy() - x - 0.5 * _DELTA * _gradient(x)) / _DELTA**0.5
    assert np.all(np.abs(noise.mean(axis=0)) < 4.5 / np.sqrt(num_draws))
    assert np.all(
      np.abs((noise**2).mean(axis=0) - 1.0) < 4.5 * np.sqrt(2.0 / num_draws)
    )
