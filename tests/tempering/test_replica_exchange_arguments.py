"""What replica exchange takes, warns of and refuses."""

import numpy as np
import pytest
import tensorflow as tf

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
