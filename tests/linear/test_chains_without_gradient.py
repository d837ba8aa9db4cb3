"""One chain where the target has no gradient never moves; the others learn."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import stack
from tfp_adaptive.core import tfp_private
from tfp_adaptive.linear import running_moments

_NUM_STEPS = 25
_START = np.concatenate(
  [np.random.default_rng(0).normal(size=(3, 2)), np.zeros((1, 2))]
)


def _norm(x):
  """A density that is finite at zero, where its gradient is NaN."""
  return -tf.norm(x, axis=-1)


def _run(kernel):
  state, results = tf.constant(_START), kernel.bootstrap_results(_START)
  step = targets.stepper(kernel, 'graph')
  for seed in targets.seeds(_NUM_STEPS):
    state, results = step(state, results, seed)
  np.testing.assert_array_equal(state[-1], 0.0)
  assert np.all(np.any(state[:-1] != _START[:-1], axis=-1))
  return results


def test_the_speed_measure_learns_from_the_others():
  kernel = tfpa.gradient_adaptive_langevin(_norm, 100, short_step_share=0.0)
  results = _run(kernel)
  # Of each step that of one chain.
  assert int(results.num_dropped_gradients) == _NUM_STEPS
  params = tfp_private.get_innermost(results, 'preconditioner_params').numpy()
  assert np.any(params != params[0, 0] * np.eye(2))


@pytest.mark.full
@pytest.mark.parametrize(
  'build', [tfpa.fisher_divergence_hamiltonian, tfpa.fisher_divergence_langevin]
)
def test_the_scale_is_searched_for_those_that_move(build):
  results = _run(build(_norm, 100))
  assert not bool(results.scale_search.is_searching)
  assert 0.05 < float(tfp_private.get_innermost(results, 'step_size')) < 20.0
  # Of all four the acceptance would be 0.75 at most, below what one aims at.
  moves = stack.metropolis_hastings_results(results)
  assert not np.isfinite(moves.log_accept_ratio[-1])
  expected = np.exp(np.minimum(moves.log_accept_ratio[:-1], 0.0)).mean()
  np.testing.assert_allclose(
    adaptation_base.mean_accept_prob(moves), expected, rtol=1e-12
  )


@pytest.mark.full
def test_a_row_whose_square_overflows_is_in_no_moments():
  def target(x):  # Its gradient is finite, and some 1e30.
    return -0.5 * tf.reduce_sum(x**2, axis=-1) - tf.where(
      x[..., 0] > 50.0, 1e30 * (x[..., 0] - 50.0), 0.0
    )

  kernel = tfpa.fisher_divergence_langevin(target, 100)
  start = tf.constant(np.random.default_rng(1).normal(size=(6, 2)), tf.float32)
  far = tf.tensor_scatter_nd_update(start, [[0, 0]], [51.0])
  state, results = far, kernel.bootstrap_results(far)
  step = targets.stepper(kernel, 'graph')
  for seed in targets.seeds(_NUM_STEPS):
    state, results = step(state, results, seed)
  for moments in (results.statistics.state, results.statistics.gradient):
    assert isinstance(moments, running_moments.Moments)
    assert np.all(np.isfinite(moments.spread))
  assert int(results.statistics.num_failed_fits) == 0
