"""What a run says about itself when it is over."""

import collections
import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa


def test_an_adaptation_that_did_not_settle_is_named():
  # No adapting step and a scale far too small: accepted almost always.
  kernel = tfpa.gradient_adaptive_langevin(
    lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1),
    num_adaptation_steps=0,
    preconditioner=tfpa.preconditioners.diagonal(init_scale=1e-3),
  )
  with pytest.warns(UserWarning, match='aimed at 0.55'):
    tfpa.sample(kernel, tf.zeros([4, 2]), 200, seed=(0, 1), progress=False)


def test_a_chain_that_moves_between_its_recorded_steps_is_not_called_stuck():
  Results = collections.namedtuple('Results', ['is_accepted', 'step'])

  class EverySecond(tfp.mcmc.TransitionKernel):
    """Moves at odd steps and accepts nothing at those that are recorded."""

    is_calibrated = True

    def bootstrap_results(self, state):
      return Results(tf.zeros([3], tf.bool), tf.constant(0))

    def one_step(self, state, results, seed=None):
      step = results.step + 1
      is_odd = step % 2 == 1
      moved = state + tf.cast(is_odd, state.dtype)
      accepted = tf.fill([3], is_odd)
      return moved, Results(accepted, step)

  with warnings.catch_warnings():
    warnings.simplefilter('error', UserWarning)
    run = tfpa.sample(
      EverySecond(),
      tf.zeros([3, 2]),
      num_results=4,
      num_steps_between_results=1,
      progress=False,
      jit_compile=False,
    )
  assert not run.trace['is_accepted'].any()
  assert len(np.unique(run.states[:, 0, 0])) == 4
