"""What replica exchange takes, warns of and refuses."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import targets


def _langevin():
  return tfpa.replica_exchange(
    targets.standard_normal,
    60,
    num_replicas=3,
    kernel_fn=tfpa.fisher_divergence_langevin,
  )


@pytest.mark.full
@pytest.mark.parametrize('start', [0.5, {'x': np.ones([2, 3])}])
def test_one_chain_and_dicts_of_two_chain_axes_are_taken(start):
  def log_prob(x):
    return -0.5 * x**2

  state = tf.nest.map_structure(tf.constant, start)
  kernel = tfpa.replica_exchange(
    log_prob, 4, num_replicas=3, kernel_fn=tfpa.adaptive_metropolis
  )
  result = tfpa.sample(
    kernel, state, 3, seed=(1, 2), progress=False, jit_compile=False
  )
  tf.nest.assert_same_structure(result.states, start)
  assert np.shape(tf.nest.flatten(result.states)[0])[0] == 3


def test_too_few_replicas_and_no_restarts_are_told():
  kernel = _langevin()
  results = kernel.bootstrap_results(tf.constant(np.zeros((2, 2))))
  tried = tf.constant([4.0, 4.0], tf.float64)
  seldom = results._replace(rejections=0.95 * tried, num_exchanges=tried)
  first, second = kernel.warnings_after(seldom, {})
  assert 'up to 95%' in first and '`num_replicas=5` or more' in first
  assert second.startswith('No state came from the last replica')
  journeys = results.journeys._replace(num_restarts=tf.constant([0, 1]))
  often = results._replace(
    rejections=0.5 * tried, num_exchanges=tried, journeys=journeys
  )
  assert not list(kernel.warnings_after(often, {}))


def _mala(target, num_adaptation_steps):
  del num_adaptation_steps
  return tfp.mcmc.MetropolisAdjustedLangevinAlgorithm(target, 0.1)


def _with_a_prior(target, num_adaptation_steps):
  prior = tfpa.gaussian_priors.spectral(covariance=np.eye(2))
  return tfpa.crank_nicolson(target, num_adaptation_steps, prior=prior)


@pytest.mark.parametrize(
  'name, value, message',
  [
    ('num_replicas', 1, 'at least 2'),
    ('num_replicas', 2.0, 'num_replicas=10'),
    ('min_inverse_temperature', 0.0, 'reference'),
    ('min_inverse_temperature', 'x', 'min_inverse_temp'),
    ('target_log_prob_fn', 3, 'target_log_prob_fn'),
    ('target_log_prob_fn', lambda x, seed: x[..., 0], 'requires a `seed`'),
    ('num_adaptation_steps', -1, 'num_adaptation_steps'),
    ('reference', 3, 'reference'),
    (
      'reference',
      tfp.distributions.Normal([0.0, 0.0], 1.0),
      'tfd.Independent',
    ),
    ('kernel_fn', 3, 'kernel_fn'),
    ('kernel_fn', _mala, 'builder of `tfpa`'),
    ('kernel_fn', _with_a_prior, 'cannot be tempered'),
  ],
)
def test_wrong_arguments_are_refused_with_what_to_write(name, value, message):
  arguments = dict(
    target_log_prob_fn=targets.standard_normal, num_adaptation_steps=10
  )
  with pytest.raises((TypeError, ValueError), match=message):
    tfpa.replica_exchange(**(arguments | {name: value}))


def test_a_start_outside_of_the_reference_is_refused():
  def unit_interval(x):
    inside = tf.reduce_all((x > 0.0) & (x < 1.0), axis=-1)
    return tf.where(inside, 0.0 * x[..., 0], -np.inf)

  kernel = tfpa.replica_exchange(
    targets.standard_normal,
    10,
    num_replicas=3,
    kernel_fn=tfpa.fisher_divergence_langevin,
    reference=unit_interval,
  )
  with pytest.raises(ValueError, match='reference'):
    kernel.bootstrap_results(tf.constant(np.full((2, 2), 3.0)))
