"""References that do not cover the target, and the turns of a step."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import targets
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


@pytest.mark.full
def test_a_frozen_exchange_of_surrogates_keeps_them_and_their_step_size():
  kernel = tfpa.replica_exchange(
    lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1),
    60,
    num_replicas=2,
    kernel_fn=functools.partial(tfpa.kernel_hamiltonian, num_leapfrog_steps=2),
  )
  state = tf.constant(np.random.default_rng(0).normal(size=(8, 2)))
  results = kernel.bootstrap_results(state)
  step = targets.stepper(kernel, 'graph')
  for seed in targets.seeds(60):
    state, results = step(state, results, seed)
  expected = replicas.learned(results.replica_results)
  assert {'surrogate_params', 'walk_params', 'step_size'} <= expected.keys()
  fixed = tfpa.frozen(kernel, results)
  started = fixed.bootstrap_results(state)
  _, after = fixed.one_step(state, started, seed=(1, 2))
  for found in (started, after):
    tf.nest.map_structure(
      np.testing.assert_array_equal,
      replicas.learned(found.replica_results),
      expected,
    )


def _log_normal(x):
  return tf.reduce_sum(-0.5 * tf.math.log(x) ** 2 - tf.math.log(x), axis=-1)


def test_a_replica_that_transforms_its_state_is_refused():
  def kernel_fn(log_prob, num_adaptation_steps):
    return tfp.mcmc.TransformedTransitionKernel(
      tfpa.fisher_divergence_langevin(log_prob, num_adaptation_steps),
      tfp.bijectors.Exp(),
    )

  with pytest.raises(ValueError, match='around `replica_exchange`'):
    kernel = tfpa.replica_exchange(
      _log_normal, 10, num_replicas=2, kernel_fn=kernel_fn
    )
    kernel.bootstrap_results(tf.ones([4, 1], tf.float64))


@pytest.mark.full
def test_an_exchange_behind_a_bijector_is_sampled_frozen_and_counted():
  kernel = tfp.mcmc.TransformedTransitionKernel(
    tfpa.replica_exchange(
      _log_normal,
      100,
      num_replicas=2,
      kernel_fn=tfpa.fisher_divergence_langevin,
    ),
    tfp.bijectors.Exp(),
  )
  result = tfpa.sample(
    kernel,
    tf.ones([100, 1], tf.float64),
    100,
    progress=False,
    jit_compile=False,
  )
  draws = np.log(result.states[50:])
  # The logarithms are standard normal.
  assert abs(draws.mean()) < 0.1 and abs(draws.std() - 1.0) < 0.1
  results = result.final_kernel_results
  cost = tfpa.cost_per_step(kernel, False, results)
  assert cost.gradient == 2 and result.run['num_gradients'] > 0
  fixed = tfpa.frozen(kernel, results)
  temperatures = fixed.inner_kernel.parameters['inverse_temperatures']
  np.testing.assert_array_equal(
    temperatures, results.inner_results.inverse_temperatures
  )
