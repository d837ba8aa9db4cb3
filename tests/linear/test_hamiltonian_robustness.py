"""The Hamiltonian kernel where targets are rough, through `tfpa.sample`."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets

_NUM_ADAPTING, _NUM_RESULTS = 300, 200


def _kernel(target):
  return tfpa.entropy_adaptive_hamiltonian(
    target, _NUM_ADAPTING, num_leapfrog_steps=3
  )


def _sample(kernel, start, num_results=_NUM_RESULTS):
  run = tfpa.sample(kernel, start, num_results, seed=(1, 2), progress=False)
  accepted = run.trace['is_accepted']
  assert np.all(np.isfinite(run.states))
  assert 0.1 < accepted.mean() <= 1.0
  assert np.all(np.isfinite(run.adaptation_trace['log_scale']))
  return run


def _starts(num_chains=10, event_size=2):
  return np.abs(np.random.default_rng(0).normal(size=(num_chains, event_size)))


@pytest.mark.full
def test_a_discontinuity_is_crossed_as_often_as_it_should_be():
  # P(x_0 > 1/2) = 0.3085 e^-3 / (0.6915 + 0.3085 e^-3) = 0.0217.
  z_scores = []
  for fall in (3.0, 0.0):

    def target(x, fall=fall):
      step = tf.where(x[..., 0] > 0.5, tf.constant(fall), 0.0)
      return targets.standard_normal(x) - step

    result = _sample(_kernel(target), tf.constant(_starts(), tf.float32))
    above = np.mean(result.states[..., 0] > 0.5, axis=0)
    standard_error = above.std(ddof=1) / len(above) ** 0.5
    z_scores.append((above.mean() - 0.0217) / standard_error)
  assert abs(z_scores[0]) < 4.8  # Student's t of ten chains: 1 in 1000.
  assert z_scores[1] > 10.0  # The negative control: no discontinuity.


@pytest.mark.full
def test_a_start_without_gradient_still_finds_its_scale():
  def target(x):  # Flat between the radii 3 and 20.
    radius = tf.sqrt(tf.reduce_sum(x**2, axis=-1))
    flat = tf.minimum(radius, 3.0) + tf.maximum(radius - 20.0, 0.0)
    return -0.5 * flat**2

  result = _sample(_kernel(target), 5.0 * tf.ones([10, 2]))
  # Moves are of the size of the plateau, not of rounding or of infinity.
  assert 0.05 < np.exp(result.trace['log_scale'][-1]) < 100.0


def _spike(x):
  """Finite at one point only."""
  is_start = tf.reduce_all(tf.equal(x, 1.0), axis=-1)
  return tf.where(is_start, 0.0 * x[..., 0], -np.inf)


def _scales_from(target, scale, num_steps=12):
  """Returns |det C| and the gradients dropped after each adapting step."""
  kernel = tfpa.entropy_adaptive_hamiltonian(
    target,
    100,
    num_leapfrog_steps=3,
    preconditioner=tfpa.preconditioners.cholesky(init_scale=scale),
  )
  state = tf.ones([4, 3], tf.float64)
  results = kernel.bootstrap_results(state)
  _, all_results = targets.run(
    kernel, state, num_steps, 'graph', results=results
  )
  all_results = [results, *all_results]
  return (
    [np.prod(np.diag(tfpa.learned_factor(kernel, r))) for r in all_results],
    np.array([int(r.num_dropped_gradients) for r in all_results]),
  )


def test_the_proposal_shrinks_while_everything_diverges():
  scales, num_dropped = _scales_from(_spike, 0.5)
  np.testing.assert_array_equal(num_dropped, 4 * np.arange(13))
  assert np.all(np.isfinite(scales)) and np.all(np.diff(scales) < 0.0)


@pytest.mark.full
def test_a_scale_far_too_large_is_left_within_a_few_steps():
  # Not to be mistaken for what a penalty on the Jacobian asks of chains that
  # have one: their trajectories explode, and its sign must not be turned.
  scales, num_dropped = _scales_from(targets.standard_normal, 50.0)
  diverging = np.diff(num_dropped) == 4
  assert np.all(diverging[:3]) and not np.any(diverging[-3:])
  assert np.all(np.diff(scales)[diverging] < 0.0)
