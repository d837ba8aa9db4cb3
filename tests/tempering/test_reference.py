"""References that do not cover the target, and the turns of a step."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tfp_adaptive.tempering import exchange
from tfp_adaptive.tempering import replicas

tfd = tfp.distributions


def _unit_box(x):
  inside = tf.reduce_all(tf.abs(x) < 1.0, axis=-1)
  return tf.where(inside, 0.0 * x[..., 0], -np.inf)


@pytest.mark.full
@pytest.mark.parametrize(
  'reference',
  [
    _unit_box,
    tfd.Independent(tfd.Uniform(-np.ones(1), np.ones(1)), 1),
  ],
  ids=['density', 'law'],
)
def test_a_reference_narrower_than_the_target_does_not_truncate_it(reference):
  kernel = tfpa.replica_exchange(
    lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1),
    0,
    num_replicas=3,
    kernel_fn=functools.partial(
      tfpa.fisher_divergence_langevin,
      preconditioner=tfpa.preconditioners.diagonal(init_scale=1.2),
    ),
    reference=reference,
  )
  result = tfpa.sample(
    kernel,
    tf.zeros([100, 1], tf.float64),
    300,
    num_burnin_steps=20,
    progress=False,
    jit_compile=False,
  )
  # 0.317 of a normal law; beyond the box the first replica goes alone.
  share = np.mean(np.abs(result.states) > 1.0)
  assert abs(share - 0.3173) < 0.03
  densities = result.final_kernel_results.densities
  assert np.isfinite(densities.target).all()
  assert np.isneginf(densities.reference[0]).any()
  assert np.isfinite(result.trace['target_log_prob']).all()


def test_what_the_target_does_not_ask_for_has_no_gradient():
  # Of a negative scale the gradient of this reference is no number.
  reference = tfd.LogNormal(tf.constant(0.0, tf.float64), 1.0).log_prob
  at_target, at_reference, between = (
    replicas.tempered(lambda x: -0.5 * tf.math.log(x) ** 2, reference, b)
    if b < 1.0
    else replicas.tempered(lambda x: -0.5 * x**2, reference, b)
    for b in (1.0, tf.constant(0.0, tf.float64), 0.5)
  )
  x = tf.constant([-1.0, 0.0, 1.0], tf.float64)
  value, gradient = tfp.math.value_and_gradient(at_target, x)
  np.testing.assert_allclose(value, [-0.5, 0.0, -0.5])
  np.testing.assert_allclose(gradient, [1.0, 0.0, -1.0])
  value, gradient = tfp.math.value_and_gradient(at_reference, x[2:])
  np.testing.assert_allclose(value, reference(x[2:]))
  np.testing.assert_allclose(gradient, [-1.0])
  # Where both count it is no number, and such a move is rejected.
  assert not np.isfinite(between(x[:1]))


_Results = collections.namedtuple(
  '_Results',
  [
    'densities',
    'inverse_temperatures',
    'replica_states',
    'journeys',
    'rejections',
    'num_exchanges',
  ],
)


def _alike(num_replicas):
  """Returns results whose exchanges are all accepted; states are names."""
  temperatures = tf.linspace(1.0, 0.1, num_replicas)
  equal = tf.zeros([num_replicas, 1])
  return _Results(
    densities=exchange.Densities(equal, [], [], []),
    inverse_temperatures=temperatures,
    replica_states=tf.range(num_replicas)[:, tf.newaxis],
    journeys=exchange.Journeys(
      tf.zeros_like(equal, tf.bool), tf.zeros([1], tf.int32)
    ),
    rejections=tf.zeros([num_replicas - 1]),
    num_exchanges=tf.zeros([num_replicas - 1]),
  )


def test_two_replicas_exchange_once():
  after = exchange.exchange_all(_alike(2), tf.constant([0, 1]))
  np.testing.assert_array_equal(after.replica_states[:, 0], [1, 0])
  np.testing.assert_array_equal(after.num_exchanges, [1.0])


def test_who_turns_back_at_the_last_replica_without_a_step_does_not_restart():
  results = exchange.exchange_all(_alike(3), tf.constant([0, 1]))
  # In four turns 012 becomes 102, 120, 210, 201: the first state was at the
  # last place, and left it before it took a step there; the last one came down.
  np.testing.assert_array_equal(results.replica_states[:, 0], [2, 0, 1])
  np.testing.assert_array_equal(results.journeys.num_restarts, [1])
  results = exchange.exchange_all(results, tf.constant([0, 1]))
  # 021, 012, 102, 120: states 0 and 1 came to the first place, 1 from a step.
  np.testing.assert_array_equal(results.journeys.num_restarts, [2])
