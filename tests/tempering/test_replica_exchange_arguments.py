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


def test_the_kernel_is_rebuilt_from_its_parameters():
  kernel = _langevin()
  copied = kernel.copy(name='another')
  assert copied.name == 'another'
  assert copied.num_replicas == 3 and copied.num_adaptation_steps == 60


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


@pytest.mark.parametrize(
  'options, error, message',
  [
    (dict(num_replicas=1), ValueError, 'at least 2'),
    (dict(num_replicas=2.0), ValueError, 'num_replicas=10'),
    (dict(min_inverse_temperature=0.0), ValueError, 'reference'),
    (dict(min_inverse_temperature=1.0), ValueError, 'min_inverse_temp'),
    (dict(min_inverse_temperature='x'), ValueError, 'min_inverse_temp'),
    (dict(target=3), TypeError, 'target_log_prob_fn'),
    (dict(kernel_fn=3), TypeError, 'kernel_fn'),
    (dict(num_adaptation_steps=-1), ValueError, 'num_adaptation_steps'),
    (dict(reference=3), TypeError, 'reference'),
    (
      dict(reference=tfp.distributions.Normal([0.0, 0.0], 1.0)),
      ValueError,
      'tfd.Independent',
    ),
    (
      dict(
        kernel_fn=lambda target, num_adaptation_steps: (
          tfp.mcmc.MetropolisAdjustedLangevinAlgorithm(target, 0.1)
        )
      ),
      ValueError,
      'builder of `tfpa`',
    ),
    (
      dict(
        kernel_fn=lambda target, num_adaptation_steps: tfpa.crank_nicolson(
          target,
          num_adaptation_steps,
          prior=tfpa.gaussian_priors.spectral(covariance=np.eye(2)),
        )
      ),
      ValueError,
      'cannot be tempered',
    ),
  ],
)
def test_wrong_arguments_are_refused_with_what_to_write(
  options, error, message
):
  arguments = dict(target=targets.standard_normal, num_adaptation_steps=10)
  arguments.update(options)
  with pytest.raises(error, match=message):
    tfpa.replica_exchange(
      arguments.pop('target'),
      arguments.pop('num_adaptation_steps'),
      **arguments,
    )


def test_a_target_that_is_an_estimate_is_refused():
  with pytest.raises(ValueError, match='requires a `seed`'):
    tfpa.replica_exchange(lambda x, seed: targets.standard_normal(x), 10)


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
