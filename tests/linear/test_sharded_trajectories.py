"""The energy of a trajectory whose coordinates several devices hold."""

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tests.contracts import trajectories
from tfp_adaptive.core import tfp_private

_TARGET = trajectories.Quartic(3)
_FACTOR = 0.35 * targets.correlated_factor(3, 5.0, seed=3)
_NUM_STEPS = 2


def _step(build, monkeypatch):
  """Returns starts and results of a step beside a device that moves alike."""
  monkeypatch.setattr(tfp_private, 'psum', lambda total, axis: 2.0 * total)
  monkeypatch.setattr(tfp_private, 'get_axis_index', lambda axis: 0)
  proposal = build(
    _TARGET.log_prob,
    registry.fixed(_FACTOR),
    _NUM_STEPS,
    experimental_shard_axis_names=['shards'],
  )
  start = np.random.default_rng(0).normal(size=(40, 3))
  state = tf.constant(start)
  _, results = proposal.one_step(
    state, proposal.bootstrap_results(state), tf.constant([1, 2])
  )
  return start, results


def _kinetic(start, noise, factor):
  """Returns the kinetic energy that is lost in these coordinates, [chains]."""
  path = trajectories.Trajectory(_TARGET, start, noise, factor, _NUM_STEPS)
  return 0.5 * np.sum(noise**2 - path.velocity**2, axis=1)


def test_kinetic_energies_are_summed_over_devices(monkeypatch):
  start, results = _step(
    tfpa.proposals.UncalibratedPreconditionedHamiltonian, monkeypatch
  )
  kinetic = _kinetic(start, results.noise.numpy(), _FACTOR)
  assert np.std(kinetic) > 0.1
  np.testing.assert_allclose(
    results.log_acceptance_correction, 2.0 * kinetic, rtol=1e-9
  )
