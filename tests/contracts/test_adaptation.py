"""Adaptation learns what it should, for as long as it should, at any scale."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core import random
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results

_EVENT_SIZE = 5
_NUM_CHAINS = 20
_NUM_RESULTS = 20
# Condition number of the target seen through the learned factor; 1 is perfect.
_MAX_CONDITION = 2.5


def _gaussian(factor):
  inverse = np.linalg.inv(factor)

  def log_prob(x):
    return targets.standard_normal(
      tf.linalg.matvec(tf.constant(inverse, x.dtype), x)
    )

  return log_prob


# Both structures for one kernel of each adaptation, the dense one for all.
_LEARNED = [(case, case.structure) for case in registry.KERNELS] + [
  (case, 'diagonal')
  for case in registry.KERNELS
  if case.name in ('langevin', 'adaptive_metropolis')
]
each_learned = pytest.mark.parametrize(
  'case, structure', registry.tiered(_LEARNED)
)


@functools.cache
def _learned(case, structure):
  """Returns the target's factor, the kernel and its run."""
  if structure == 'cholesky':
    factor = targets.correlated_factor(_EVENT_SIZE)
  else:
    factor = np.diag(np.geomspace(0.1, 100.0, _EVENT_SIZE))
  kernel = case.build(
    _gaussian(factor),
    case.num_learning_steps,
    preconditioner=registry.preconditioner(structure),
  )
  rng = np.random.default_rng(0)
  run = tfpa.sample(
    kernel,
    tf.constant(rng.normal(size=(_NUM_CHAINS, _EVENT_SIZE)) @ factor.T),
    num_results=_NUM_RESULTS,
    progress=False,
  )
  return factor, kernel, run


@pytest.mark.full
@each_learned
def test_a_gaussian_is_learned_up_to_scale(case, structure):
  factor, kernel, run = _learned(case, structure)
  # What an isotropic factor leaves: the negative control.
  assert np.linalg.cond(factor @ factor.T) > 20 * _MAX_CONDITION
  learned = tfpa.learned_factor(kernel, run.final_kernel_results)
  whitened = np.linalg.solve(learned, factor)
  condition = np.linalg.cond(whitened @ whitened.T)
  assert condition < _MAX_CONDITION


@pytest.mark.full
@registry.each_kernel
def test_the_wanted_acceptance_is_reached(case):
  _, _, run = _learned(case, case.structure)
  wanted = case.accept_prob
  half = case.num_learning_steps // 2
  accepted = run.adaptation_trace['is_accepted'][half:].mean()
  if case.name == 'hamiltonian':
    # Its entropy is greatest at a smaller scale than the acceptance allows.
    assert wanted - 0.08 < accepted < 0.999
    return
  # Steered by a feedback of rate 0.02: within a few hundredths.
  assert abs(accepted - wanted) < 0.08


@pytest.mark.full
@registry.each_kernel
def test_the_whole_path_follows_the_scale_of_the_coordinates(case):
  # Same accept decisions and rescaled draws, for scales 1e-3 ... 1e3. The
  # factor starts at the rescaled one: the scale search starts isotropic.
  base = targets.correlated_factor(3, 10.0)
  start = np.random.default_rng(1).normal(size=(4, 3))

  @tf.function(jit_compile=True, autograph=False)
  def run(scale):
    def log_prob(x):
      z = tf.linalg.matvec(tf.constant(np.linalg.inv(base)), x / scale)
      return targets.standard_normal(z)

    kernel = case.build(
      log_prob,
      100,
      preconditioner=registry.fixed(
        tf.linalg.diag(scale), structure=case.structure
      ),
    )
    state = scale * tf.constant(start)
    results = kernel.bootstrap_results(state)

    def body(previous, i):
      state, results, _ = previous
      state, results = kernel.one_step(
        state, results, seed=random.fold_in(tf.constant([1, 2]), i)
      )
      return state, results, mh_results(results).is_accepted

    first = (state, results, tf.zeros([4], tf.bool))
    draws, results, accepted = tf.scan(body, tf.range(60), first)
    params = mh_results(results).accepted_results.preconditioner_params[-1]
    return draws, accepted, params

  ones = tf.ones([3], tf.float64)
  draws, accepted, params = run(ones)
  assert 0.05 < np.mean(accepted) < 0.99
  assert np.any(params != np.eye(3))
  for scale in ([1e-3, 1.0, 1e3], [1e3, 1e-2, 7.0]):
    scale = np.array(scale)
    scaled_draws, scaled_accepted, scaled_params = run(tf.constant(scale))
    np.testing.assert_array_equal(scaled_accepted, accepted)
    np.testing.assert_allclose(scaled_draws / scale, draws, rtol=1e-6)
    rows = scale[:, np.newaxis] if params.shape.rank == 2 else scale
    np.testing.assert_allclose(
      scaled_params / rows, params, rtol=1e-6, atol=1e-9
    )


@pytest.mark.full
@registry.each_kernel
def test_frozen_kernels_keep_what_was_learned_and_adapt_no_more(case):
  _, kernel, run = _learned(case, case.structure)
  frozen = tfpa.frozen(kernel, run.final_kernel_results)
  state = tf.constant(run.final_state)
  before = frozen.bootstrap_results(state)
  np.testing.assert_array_equal(
    tfpa.learned_factor(frozen, before),
    tfpa.learned_factor(kernel, run.final_kernel_results),
  )
  kept = mh_results(run.final_kernel_results).extra
  if kept:  # The momenta that the chains have.
    before = before._replace(extra=kept)
  seed = tf.constant([7, 8], tf.int32)
  frozen_state, after = frozen.one_step(state, before, seed=seed)
  expected, _ = kernel.one_step(state, run.final_kernel_results, seed=seed)
  np.testing.assert_allclose(frozen_state, expected, rtol=1e-12)
  np.testing.assert_array_equal(
    after.accepted_results.preconditioner_params,
    before.accepted_results.preconditioner_params,
  )
