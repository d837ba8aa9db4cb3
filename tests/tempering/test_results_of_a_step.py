"""Temperatures that move, what is counted at each, and whose step it is."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.tempering import replicas

tfd = tfp.distributions

_TRIED = 1e9  # Turns, beside which those of one step do not count.


@functools.cache
def _started():
  """Returns a compiled step of three replicas, a state and results."""
  kernel = tfpa.replica_exchange(
    targets.standard_normal,
    60,
    num_replicas=3,
    kernel_fn=tfpa.adaptive_metropolis,
  )
  state = tf.zeros([4, 2], tf.float64)
  step = targets.stepper(kernel, 'graph')
  return step, state, kernel.bootstrap_results(state)


def _after(number):
  """Returns results after that step, with rejections of many turns before."""
  step, state, results = _started()
  np.testing.assert_allclose(results.inverse_temperatures, [1.0, 0.1, 0.01])
  results = results._replace(
    rejections=tf.constant([0.6 * _TRIED, 0.2 * _TRIED], tf.float64),
    num_exchanges=tf.constant([_TRIED, _TRIED], tf.float64),
    journeys=results.journeys._replace(num_restarts=tf.fill([4], 7)),
    step=tf.constant(number - 1),
  )
  return step(state, results, tf.constant([1, 2]))[1]


@pytest.mark.full
def test_temperatures_move_at_the_end_of_a_round_and_counts_begin_anew():
  results = _after(30)
  # A half of the barrier of 0.8 is at two thirds of the first interval.
  np.testing.assert_allclose(
    results.inverse_temperatures, [1.0, 0.1 ** (2.0 / 3.0), 0.01], rtol=1e-6
  )
  np.testing.assert_array_equal(results.rejections, [0.0, 0.0])
  np.testing.assert_array_equal(results.num_exchanges, [0.0, 0.0])
  np.testing.assert_array_equal(results.num_restarts, [0] * 4)


@pytest.mark.full
@pytest.mark.parametrize('number', [29, 31])
def test_within_a_round_temperatures_stay_and_counts_go_on(number):
  results = _after(number)
  np.testing.assert_allclose(results.inverse_temperatures, [1.0, 0.1, 0.01])
  # Each pair tries in two of the four turns.
  np.testing.assert_array_equal(results.num_exchanges, [_TRIED + 2.0] * 2)
  np.testing.assert_allclose(results.rejection_rates, [0.6, 0.2])
  assert np.all(results.num_restarts >= 7)


_Parts = collections.namedtuple('_Parts', ['second', 'first'])


def _named_tuple():
  return tfd.JointDistributionNamed(
    _Parts(
      second=tfd.Normal(np.float64(100.0), 1.0),
      first=tfd.Normal(np.float64(0.0), 1.0),
    )
  )


def _coroutine():
  def model():
    root = tfd.JointDistributionCoroutine.Root
    yield root(tfd.Normal(np.float64(100.0), 1.0, name='second'))
    yield root(tfd.Normal(np.float64(0.0), 1.0, name='first'))

  return tfd.JointDistributionCoroutine(model)


@pytest.mark.parametrize('law', [_named_tuple, _coroutine])
def test_parts_of_a_dict_are_drawn_by_name(law):
  like = {name: tf.zeros([5], tf.float64) for name in ('second', 'first')}
  drawn = replicas.drawn(law(), like, [5], tf.constant([1, 2]))
  assert set(drawn) == set(like)
  np.testing.assert_allclose(drawn['second'], 100.0, atol=10.0)
  np.testing.assert_allclose(drawn['first'], 0.0, atol=10.0)
