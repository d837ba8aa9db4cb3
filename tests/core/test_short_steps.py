"""Short steps: their law, and chains that come out of a neck by them."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

import tfp_adaptive as tfpa
from experiments import baselines
from tfp_adaptive.core import short_steps

_SEED = (3, 8)


def _draws(share, num_steps):
  seeds = tf.stack([tf.range(num_steps), tf.fill([num_steps], 8)], axis=1)
  return tf.vectorized_map(
    lambda seed: short_steps.draw(share, tf.float64, seed), seeds
  ).numpy()


@pytest.mark.full
def test_a_share_of_the_steps_is_short_and_log_uniform():
  drawn = _draws(0.3, 20_000)
  short = drawn[drawn < 1.0]
  # Standard error sqrt(0.3 0.7 / 20000).
  assert abs(short.size / drawn.size - 0.3) < 4.5 * 0.0033
  assert drawn.max() == 1.0
  part = np.log(short) / math.log(0.1)
  assert stats.kstest(part, 'uniform').pvalue > 1e-4
  # The negative control: not uniform in itself.
  assert stats.kstest((short - 0.1) / 0.9, 'uniform').pvalue < 1e-6


def test_steps_draw_their_own():
  drawn = _draws(0.5, 2000)
  both = np.mean((drawn[1:] < 1.0) & (drawn[:-1] < 1.0))
  assert abs(both - 0.25) < 4.5 * 0.0097  # sqrt(3 / 16 / 2000)


@pytest.mark.full
def test_adaptations_leave_short_steps_alone():
  kernel = tfpa.gradient_adaptive_langevin(
    lambda x: -0.5 * tf.reduce_sum(x**2, -1),
    40,
    preconditioner=tfpa.preconditioners.diagonal(init_scale=1.0),
    short_step_share=0.5,
  )
  state = tf.zeros([3, 2], tf.float64)
  results = kernel.bootstrap_results(state)
  one_step = tf.function(kernel.one_step)
  has_moved, is_full = [], []
  for step in range(30):
    previous = tfpa.learned_factor(kernel, results)
    state, results = one_step(state, results, seed=tf.constant([step, 5]))
    factor = tfpa.learned_factor(kernel, results)
    has_moved.append(np.any(np.asarray(factor) != np.asarray(previous)))
    proposed = results.inner_results.proposed_results
    is_full.append(
      short_steps.draw(0.5, tf.float64, proposed.seed).numpy() == 1.0
    )
  assert 5 < np.sum(is_full) < 25
  np.testing.assert_array_equal(has_moved, is_full)


def test_a_fifth_of_the_steps_is_short_unless_told_otherwise():
  for given, expected in (({}, 0.2), ({'short_step_share': 0.0}, 0.0)):
    kernel = tfpa.gradient_adaptive_langevin(
      lambda x: -0.5 * tf.reduce_sum(x**2, -1), 10, **given
    )
    proposal = kernel.inner_kernel.inner_kernel
    assert proposal.parameters['short_step_share'] == expected


@pytest.mark.parametrize('share', [-0.1, 1.0, float('nan')])
def test_what_is_no_share_is_refused(share):
  with pytest.raises(ValueError, match=r'in \[0, 1\).*but got.*Write'):
    baselines.variance_ratio_langevin(
      lambda x: -0.5 * tf.reduce_sum(x**2, -1), 10, short_step_share=share
    )


def _funnel(z):
  log_variance = z[..., 0]
  return (
    -0.5 * (log_variance / 1.5) ** 2
    - 2.0 * log_variance
    - 0.5 * tf.reduce_sum(z[..., 1:] ** 2, -1) * tf.exp(-log_variance)
  )


def _share_that_moves(short_step_share):
  """Of chains that start in the neck of a funnel, at the bulk's step size."""
  rng = np.random.default_rng(0)
  start = np.exp(-2.5) * rng.normal(size=(200, 5))
  start[:, 0] = -5.0
  kernel = tfpa.MetropolisHastings(
    tfpa.proposals.UncalibratedPreconditionedLangevin(
      _funnel,
      tfpa.preconditioners.diagonal(init_scale=1.0),
      step_size=0.5,
      short_step_share=short_step_share,
    )
  )
  states = tf.function(
    lambda: tfp.mcmc.sample_chain(
      50, tf.constant(start), kernel=kernel, trace_fn=None, seed=_SEED
    )
  )()
  return np.mean(states[-1, :, 0] != -5.0)


@pytest.mark.full
def test_chains_come_out_of_a_neck_by_short_steps_only():
  assert _share_that_moves(0.2) > 0.9
  assert _share_that_moves(0.0) < 0.05
