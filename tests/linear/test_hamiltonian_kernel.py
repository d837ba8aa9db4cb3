"""The Hamiltonian kernel: its entropy, and its form with one leapfrog step."""

import functools

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tests.contracts import trajectories
from tfp_adaptive.core import scale_factor

_EVENT_SIZE = 3
_TARGET = trajectories.Quartic(_EVENT_SIZE)
_FACTOR = 0.35 * targets.correlated_factor(_EVENT_SIZE, 5.0, seed=3)


def _log_det_of(dense, num_steps, x):
  """Returns log det(I + D_L) with the Hessian at x, [chains]."""
  jacobian = dense.T @ _TARGET.hessian(x) @ dense
  jacobian = -(num_steps**2 - 1) / 6 * jacobian
  assert np.linalg.norm(jacobian, 2, axis=(-2, -1)).max() < 0.7
  return np.linalg.slogdet(np.eye(_EVENT_SIZE) + jacobian)[1]


@functools.cache
def _entropies(num_steps=5, num_seeds=80, num_chains=500):
  """Returns log det estimates, log dets at the middle and at the start.

  Each a mean over chains, by seed: chains share the number of terms.
  """
  dense, step_size = _FACTOR, 0.22
  preconditioner = registry.fixed(_FACTOR)
  proposal = tfpa.proposals.UncalibratedPreconditionedHamiltonian(
    _TARGET.log_prob, preconditioner, num_steps, step_size=step_size
  )
  kernel = tfpa.MetropolisHastings(proposal)
  state = tf.fill([num_chains, _EVENT_SIZE], tf.constant(1.5, tf.float64))
  before = kernel.bootstrap_results(state)
  cache = proposal.init_replay_cache(before.proposed_results)
  factor = scale_factor.at(preconditioner, tf.constant(dense))

  @tf.function(autograph=False)
  def step(seed):
    _, results = kernel.one_step(state, before, seed=seed)
    proposed = results.proposed_results
    moved = proposal.replay(
      cache, before.accepted_results, proposed, results.proposed_state, results
    ).transition(factor)
    return proposed.noise, moved.proposal_entropy - factor.log_abs_det

  rows, scaled = [], step_size * dense
  for seed in targets.seeds(num_seeds):
    noise, estimate = step(seed)
    path = trajectories.Trajectory(
      _TARGET, state.numpy(), noise.numpy(), scaled, num_steps
    )
    middle, start = path.positions[num_steps // 2], path.positions[0]
    log_dets = [_log_det_of(scaled, num_steps, x) for x in (middle, start)]
    rows.append([np.mean(v) for v in (estimate, *log_dets)])
  return np.array(rows).T


def _z_score(differences):
  return differences.mean() / (differences.std() / len(differences) ** 0.5)


def test_the_mean_entropy_is_the_log_determinant_at_the_middle():
  estimate, middle, start = _entropies()
  assert abs(_z_score(estimate - middle)) < 4.0
  assert abs(_z_score(estimate - start)) > 6.0  # The negative control.
  assert abs(middle.mean()) > 0.2


def _adapting_run(kernel, num_steps=30):
  start = tf.constant(np.random.default_rng(1).normal(size=(4, _EVENT_SIZE)))
  return targets.run(kernel, start, num_steps, 'graph')


def test_one_leapfrog_step_is_the_langevin_kernel_step_for_step():
  parts = dict(
    criterion=tfpa.criteria.generalized_speed_measure(0.55),
    optimizer=tfpa.optimizers.relative_gradient(),
  )
  runs = [
    _adapting_run(kernel)
    for kernel in (
      tfpa.gradient_adaptive_langevin(
        _TARGET.log_prob, 25, short_step_share=0.0, **parts
      ),
      tfpa.entropy_adaptive_hamiltonian(
        _TARGET.log_prob, 25, num_leapfrog_steps=1, **parts
      ),
    )
  ]
  accepted, params = [], []
  for langevin, hamiltonian in zip(*(results for _, results in runs)):
    one, two = langevin.inner_results, hamiltonian.inner_results
    np.testing.assert_array_equal(one.is_accepted, two.is_accepted)
    np.testing.assert_allclose(
      two.log_accept_ratio, one.log_accept_ratio, rtol=1e-9, atol=1e-11
    )
    np.testing.assert_allclose(
      two.accepted_results.preconditioner_params,
      one.accepted_results.preconditioner_params,
      rtol=1e-9,
      atol=1e-12,
    )
    accepted.append(one.is_accepted)
    params.append(one.accepted_results.preconditioner_params)
  for one, two in zip(*(states for states, _ in runs)):
    np.testing.assert_allclose(two, one, rtol=1e-9, atol=1e-11)
  assert 0.1 < np.mean(accepted) < 0.95
  learned = params[-1].numpy()
  assert np.linalg.norm(learned - learned[0, 0] * np.eye(_EVENT_SIZE)) > 0.01
