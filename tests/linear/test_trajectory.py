"""The leapfrog integrator against an independent one in momenta."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tests.contracts import trajectories
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import tfp_private
from tfp_adaptive.linear import trajectory

_EVENT_SIZE = 3
_TARGET = trajectories.Quartic(_EVENT_SIZE)
_FACTOR = 0.25 * targets.correlated_factor(_EVENT_SIZE, 5.0, seed=3)

each_length = pytest.mark.parametrize('num_steps', [1, 2, 3, 6])


def _value_and_gradient(x):
  return tfp.math.value_and_gradient(_TARGET.log_prob, x)


def _start(num_chains=4, seed=0):
  rng = np.random.default_rng(seed)
  return rng.normal(size=(2, num_chains, _EVENT_SIZE))


def _run(x, velocity, num_steps, factor=_FACTOR):
  log_prob, gradient = _value_and_gradient(tf.constant(x))
  return trajectory.run(
    _value_and_gradient,
    scale_factor.at(registry.fixed(factor), tf.constant(factor)),
    trajectory.Point(tf.constant(x), tf.constant(velocity), log_prob, gradient),
    num_steps,
  )


@each_length
def test_the_end_is_that_of_the_integrator_in_momenta(num_steps):
  x, noise = _start()
  end, path = _run(x, noise, num_steps)
  expected = trajectories.Trajectory(_TARGET, x, noise, _FACTOR, num_steps)
  assert int(path.num_steps) == num_steps
  # The sums of Appendix E; the midpoint is rounded down.
  inner, middle = expected.gradients[1:num_steps], num_steps // 2
  weighted = ((num_steps - i) * g for i, g in enumerate(inner, 1))
  for got, wanted in (
    (end.position, expected.positions[-1]),
    (end.velocity, expected.velocity),
    (end.gradient, expected.gradients[-1]),
    (end.log_prob, _TARGET.value(expected.positions[-1])),
    (path.gradient_sum, sum(inner, np.zeros_like(x))),
    (path.weighted_gradient_sum, sum(weighted, np.zeros_like(x))),
    (path.midpoint, expected.positions[middle]),
    (path.midpoint_gradient, expected.gradients[middle]),
  ):
    np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-12)


# The energy of a trajectory whose coordinates several devices hold.


_FACTOR_SHARDED = 0.35 * targets.correlated_factor(3, 5.0, seed=3)


def test_kinetic_energies_are_summed_over_devices(monkeypatch):
  # Beside this device is another one that moves alike.
  monkeypatch.setattr(tfp_private, 'psum', lambda total, axis: 2.0 * total)
  monkeypatch.setattr(tfp_private, 'get_axis_index', lambda axis: 0)
  proposal = tfpa.proposals.UncalibratedPreconditionedHamiltonian(
    _TARGET.log_prob,
    registry.fixed(_FACTOR_SHARDED),
    2,
    experimental_shard_axis_names=['shards'],
  )
  start = np.random.default_rng(0).normal(size=(40, _EVENT_SIZE))
  _, results = proposal.one_step(
    tf.constant(start),
    proposal.bootstrap_results(tf.constant(start)),
    tf.constant([1, 2]),
  )
  noise = results.noise.numpy()
  path = trajectories.Trajectory(_TARGET, start, noise, _FACTOR_SHARDED, 2)
  # The kinetic energy that is lost in these coordinates, [chains].
  kinetic = 0.5 * np.sum(noise**2 - path.velocity**2, axis=1)
  assert np.std(kinetic) > 0.1
  np.testing.assert_allclose(
    results.log_acceptance_correction, 2.0 * kinetic, rtol=1e-9
  )
