"""What holds of every kernel that learns its number of leapfrog steps."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.core import block_fits
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results

_NUM_ADAPTATION_STEPS = 60


def learned(results):
  """Returns the learned range (fewest, most), ints."""
  return tuple(results.trajectory_length.num_leapfrog_steps.numpy())


def check_frozen_and_counted(kernel, state):
  """Checks the cost and the frozen kernel against the steps taken.

  Args:
    kernel: One that adapts for 60 steps, lengths of 1 to 8.
    state: Its first state.
  """
  with block_fits.promised(kernel):  # Without fits that are asked for.
    results = kernel.bootstrap_results(state)
  taken = []
  stepper = tf.function(kernel.one_step, autograph=False)
  for seed in targets.seeds(_NUM_ADAPTATION_STEPS + 10):
    state, results = stepper(state, results, seed=seed)
    proposed = mh_results(results).proposed_results
    taken.append(int(proposed.trajectory.num_steps))
  fewest, most = learned(results)
  assert 1 <= fewest <= most <= 8
  late = taken[_NUM_ADAPTATION_STEPS:]
  assert set(late) <= set(range(fewest, most + 1))
  fixed = tfpa.frozen(kernel, results)
  assert fixed.parameters['inner_kernel'].num_leapfrog_steps == (fewest, most)
  adapting, frozen = (
    tfpa.cost_per_step(kernel, flag, results).gradient for flag in (True, False)
  )
  assert adapting == pytest.approx(np.mean(taken[:_NUM_ADAPTATION_STEPS]))
  assert frozen == np.mean((fewest, most))
  assert tfpa.cost_per_step(fixed, False).gradient == frozen
  with pytest.raises(ValueError, match='results'):
    tfpa.cost_per_step(kernel, False)


def check_failures(build):
  """Checks that where the density fails is rejected and not learned from.

  Args:
    build: Log density of [chains, 3] -> kernel that adapts for 60 steps.
  """

  def half(x):
    outside = tf.where(x[..., 0] > 0.5, np.float64('nan'), 0.0)
    return targets.standard_normal(x) + outside

  with pytest.warns(UserWarning, match='diverged'):  # They are counted.
    run = tfpa.sample(
      build(half), -tf.ones([4, 3], tf.float64), 5, progress=False, seed=(0, 3),
      jit_compile=False,
    )  # fmt: skip
  assert np.all(run.states[..., 0] <= 0.5)
  lengths = run.final_kernel_results.trajectory_length
  assert all(np.all(np.isfinite(leaf)) for leaf in tf.nest.flatten(lengths))
  assert lengths.next_review > 25.0
