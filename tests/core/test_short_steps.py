"""Short steps: their law, and chains that come out of a neck by them."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

import tfp_adaptive as tfpa
from tfp_adaptive.core import short_steps
from tfp_adaptive.core import step_sizes

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
    is_full.append(not results.inner_results.is_short)
  assert 5 < np.sum(is_full) < 25
  np.testing.assert_array_equal(has_moved, is_full)


def _neck(x):
  """N(0, I), and where x_0 < -1 a hundred times as narrow in x_1."""
  precision = tf.where(x[..., 0] < -1.0, tf.constant(1e4, x.dtype), 1.0)
  return (
    -0.5 * x[..., 0] ** 2
    - 0.5 * precision * x[..., 1] ** 2
    + 0.5 * tf.math.log(precision)
  )


def _adapted(target, share=None, num_steps=400):
  """Returns kernel, results and the shares that were lost on the way."""
  kernel = tfpa.gradient_adaptive_langevin(
    target, num_steps - 100, short_step_share=share
  )
  start = tf.constant(np.random.default_rng(1).normal(size=(8, 2)))

  @tf.function(autograph=False, jit_compile=True)
  def run():
    return tfp.mcmc.sample_chain(
      num_steps,
      start,
      kernel=kernel,
      trace_fn=lambda _, results: results.inner_results[1:],
      return_final_kernel_results=True,
      seed=_SEED,
    )

  result = run()
  return kernel, result.final_kernel_results, result.trace


@pytest.mark.full
def test_steps_are_short_where_a_neck_shows_and_nowhere_else():
  kernel, results, (is_short, share, lost, _, num_full) = _adapted(_neck)
  assert np.mean(is_short[100:]) > 0.1 and share[-1] == np.float64(0.2)
  # What decides does not change once the kernel is fixed.
  assert lost[300] == lost[-1] > 1e-3
  num_short = np.sum(is_short[:300])
  assert num_full[-1] == 300 - num_short and num_short > 20
  teaching = kernel.inner_kernel.teaching_share(results.inner_results)
  assert teaching == pytest.approx(1.0 - num_short / 300)
  frozen = tfpa.frozen(kernel, results)
  assert frozen.parameters['short_step_share'] == pytest.approx(0.2)

  kernel, results, (is_short, share, lost, *_) = _adapted(
    lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1)
  )
  assert not np.any(is_short[100:]) and share[-1] == 0.0
  assert lost[-1] < 1e-6
  assert isinstance(tfpa.frozen(kernel, results), tfpa.MetropolisHastings)


@pytest.mark.parametrize('dead', [1e3, np.nan])
def test_a_chain_that_can_never_move_is_in_no_narrow_region(dead):
  def target(x):
    square = tf.reduce_sum(x**2, axis=-1)
    return tf.where(square < 1e4, -0.5 * square, -float('inf'))

  proposal = tfpa.proposals.UncalibratedPreconditionedLangevin(
    target, tfpa.preconditioners.diagonal(init_scale=0.1)
  )
  kernel = short_steps.ShortSteps(tfpa.MetropolisHastings(proposal), 100)
  state = tf.constant([[0.3, 0.1], [dead, dead]], tf.float64)
  results = kernel.bootstrap_results(state)
  results = results._replace(short_step_share=tf.zeros([], tf.float64))
  _, results = kernel.one_step(state, results, seed=_SEED)
  # The first step has the weight 4 / 5 against a share of 1.
  np.testing.assert_allclose(results.share_lost, 0.2)


def test_a_short_step_is_a_step_of_that_size():
  inner = _mala(1.0)
  kernel = short_steps.ShortSteps(inner, 0, 0.9)
  state = tf.constant(np.random.default_rng(2).normal(size=(20, 5)))
  seed = tf.constant([4, 1])
  part = short_steps.draw(0.9, tf.float64, seed)
  assert part < 0.9
  moved, results = kernel.one_step(
    state, kernel.bootstrap_results(state), seed=seed
  )
  sized = _mala(float(part))
  other, expected = sized.one_step(
    state, sized.bootstrap_results(state), seed=seed
  )
  np.testing.assert_allclose(moved, other, rtol=1e-12)
  np.testing.assert_allclose(
    results.inner_results.log_accept_ratio,
    expected.log_accept_ratio,
    rtol=1e-9,
    atol=1e-12,
  )
  assert results.is_short
  # The step size of the next step stays that of the adaptation.
  assert results.inner_results.accepted_results.step_size == 1.0
  assert results.inner_results.proposed_results.step_size == part


def _funnel(z):
  log_variance = z[..., 0]
  return (
    -0.5 * (log_variance / 1.5) ** 2
    - 2.0 * log_variance
    - 0.5 * tf.reduce_sum(z[..., 1:] ** 2, -1) * tf.exp(-log_variance)
  )


def _mala(step_size):
  return tfpa.MetropolisHastings(
    tfpa.proposals.UncalibratedPreconditionedLangevin(
      _funnel,
      tfpa.preconditioners.diagonal(init_scale=1.0),
      step_size=step_size,
    )
  )


def _share_that_moves(short_step_share, num_steps=100, seed=_SEED):
  """Returns the share of chains that leave the neck at the step of the bulk."""
  rng = np.random.default_rng(0)
  start = np.exp(-2.5) * rng.normal(size=(200, 5))
  start[:, 0] = -5.0
  kernel = short_steps.around(_mala(0.5), 0, short_step_share)
  states = tf.function(
    lambda: tfp.mcmc.sample_chain(
      num_steps, tf.constant(start), kernel=kernel, trace_fn=None, seed=seed
    )
  )()
  return np.mean(states[-1, :, 0] != -5.0)


@pytest.mark.full
def test_chains_come_out_of_a_neck_by_short_steps_only():
  assert _share_that_moves(0.2) > 0.5
  assert _share_that_moves(0.0) < 0.05


# How far step sizes may go.


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_step_sizes_have_squares_and_inverses_of_both_sides(dtype):
  limit = float(np.finfo(dtype).max) ** 0.25
  sizes = tf.constant([0.0, 0.1, 3.0, np.inf], dtype)
  found = step_sizes.bounded(sizes).numpy()
  np.testing.assert_allclose(found, [1.0 / limit, 0.1, 3.0, limit], rtol=1e-6)
  squares = found**2
  assert np.all(np.isfinite(squares)) and np.all(np.isfinite(1.0 / squares))
  assert np.all(squares >= np.finfo(dtype).tiny)
