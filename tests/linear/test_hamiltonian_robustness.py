"""The Hamiltonian kernel where targets are rough, through `tfpa.sample`."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.core import tfp_private
from tfp_adaptive.linear.criteria import penalty

_NUM_ADAPTING, _NUM_RESULTS = 300, 200
_PLATEAU = (3.0, 20.0)  # Radii between which the rough target is flat.


class _Rough:
  """N(0, I) with what can go wrong, switched on by variables.

  One program serves all: NaN where x_0 < `nan_below`, lower by 3 where
  x_0 > `jump_above`, and, if `is_flat`, constant between two radii.
  """

  def __init__(self):
    self.nan_below, self.jump_above = tf.Variable(-1e9), tf.Variable(1e9)
    self.is_flat = tf.Variable(False)

  def switch(self, nan_below=-1e9, jump_above=1e9, is_flat=False):
    self.nan_below.assign(nan_below)
    self.jump_above.assign(jump_above)
    self.is_flat.assign(is_flat)

  def log_prob(self, x):
    radius = tf.sqrt(tf.reduce_sum(x**2, axis=-1))
    low, high = _PLATEAU
    flat = tf.minimum(radius, low) + tf.maximum(radius - high, 0.0)
    value = -0.5 * tf.where(self.is_flat, flat, radius) ** 2
    first = x[..., 0]
    value -= tf.where(first > self.jump_above, 3.0, 0.0)
    return value * tf.where(first < self.nan_below, np.nan, 1.0)


@pytest.fixture(scope='module')
def rough():
  """Returns the target and (start, **switches) -> run, compiled once."""
  target = _Rough()
  kernel = tfpa.entropy_adaptive_hamiltonian(
    target.log_prob, _NUM_ADAPTING, num_leapfrog_steps=3
  )

  def run(start, **switches):
    target.switch(**switches)
    return _sample(kernel, tf.constant(start, tf.float32))

  return target, run


def _sample(kernel, start, num_results=_NUM_RESULTS, **options):
  with warnings.catch_warnings():
    # Of divergences: they are looked at below.
    warnings.filterwarnings('ignore', '.*diverged', UserWarning)
    return tfpa.sample(
      kernel, start, num_results, seed=(1, 2), progress=False, **options
    )


def _assert_sound(run):
  assert np.all(np.isfinite(run.states))
  accepted = run.trace['is_accepted']
  assert 0.1 < accepted.mean() <= 1.0
  assert np.all(np.any(accepted, axis=0))  # No chain is stuck.
  assert np.all(np.isfinite(run.adaptation_trace['log_scale']))


def _num_dropped(run, after=20):
  """Counts dropped gradients; the search for a scale may diverge before."""
  count = run.adaptation_trace['num_dropped_gradients']
  return count[-1] - count[after]


def _starts(num_chains=10, event_size=2):
  return np.abs(np.random.default_rng(0).normal(size=(num_chains, event_size)))


@pytest.mark.full
def test_a_region_of_nan_is_never_entered_and_its_gradients_are_dropped(rough):
  _, run = rough
  result = run(_starts(), nan_below=-0.5)
  _assert_sound(result)
  assert np.all(result.states[..., 0] >= -0.5)
  assert _num_dropped(result) > 30
  # Some of the region's border is reached.
  assert result.states[..., 0].min() < -0.3


@pytest.mark.full
def test_an_ordinary_target_has_no_gradient_dropped(rough):
  # The negative control of the count.
  _, run = rough
  with warnings.catch_warnings():
    warnings.simplefilter('error', UserWarning)
    result = run(_starts())
  _assert_sound(result)
  # Far above the acceptance that was wanted, and rightly no warning of it.
  assert result.trace['is_accepted'].mean() > 0.67 + 0.15
  assert _num_dropped(result) == 0
  assert np.abs(result.states.mean()) < 0.2
  assert np.abs(result.states.var() - 1.0) < 0.2


def test_a_discontinuity_is_crossed_as_often_as_it_should_be(rough):
  _, run = rough
  # P(x_0 > 1/2) = 0.3085 e^-3 / (0.6915 + 0.3085 e^-3) = 0.0217.
  z_scores = []
  for jump_above in (0.5, 1e9):
    result = run(_starts(), jump_above=jump_above)
    _assert_sound(result)
    above = np.mean(result.states[..., 0] > 0.5, axis=0)
    standard_error = above.std(ddof=1) / len(above) ** 0.5
    z_scores.append((above.mean() - 0.0217) / standard_error)
  assert abs(z_scores[0]) < 4.8  # Student's t of ten chains: 1 in 1000.
  assert z_scores[1] > 10.0  # The negative control: no discontinuity.


def test_a_start_without_gradient_still_finds_its_scale(rough):
  target, run = rough
  start = 5.0 * np.ones([10, 2])
  target.switch(is_flat=True)
  x = tf.constant(start, tf.float32)
  with tf.GradientTape() as tape:
    tape.watch(x)
    value = target.log_prob(x)
  np.testing.assert_array_equal(tape.gradient(value, x), 0.0)
  result = run(start, is_flat=True)
  _assert_sound(result)
  # Moves are of the size of the plateau, not of rounding or of infinity.
  assert 0.05 < np.exp(result.trace['log_scale'][-1]) < 100.0


@pytest.mark.full
def test_many_chains_in_one_dimension_of_float64_have_the_right_moments():
  kernel = tfpa.entropy_adaptive_hamiltonian(
    lambda x: -0.5 * tf.reduce_sum((x - 3.0) ** 2 / 4.0, axis=-1),
    200,
    num_leapfrog_steps=2,
  )
  result = _sample(kernel, tf.constant(_starts(200, 1)), 100)
  _assert_sound(result)
  assert result.states.dtype == np.float64
  # Chains are independent: their spread gives the standard errors.
  for values, expected in (
    (result.states, 3.0),
    ((result.states - 3.0) ** 2, 4.0),
  ):
    means = values.mean(axis=(0, 2))
    standard_error = means.std() / len(means) ** 0.5
    assert abs(means.mean() - expected) < 4 * standard_error
    # The negative control: a tenth less would be seen.
    assert abs(means.mean() - 0.9 * expected) > 4 * standard_error
  factor = tfpa.learned_factor(kernel, result.final_kernel_results)
  assert 0.2 < float(factor[0, 0]) / 2.0 < 1.6  # In units of the deviation.


@pytest.mark.full
def test_a_thousand_chains_adapt_together_and_none_freezes():
  deviations = np.array([1.0, 0.2, 5.0], np.float32)
  kernel = tfpa.entropy_adaptive_hamiltonian(
    lambda x: -0.5 * tf.reduce_sum(tf.square(x / deviations), axis=-1),
    100,
    num_leapfrog_steps=2,
  )
  rng = np.random.default_rng(5)
  start = rng.normal(size=(1000, 3)).astype(np.float32) * 3.0 * deviations
  result = _sample(kernel, tf.constant(start), 30)
  _assert_sound(result)
  assert result.states.shape == (30, 1000, 3)
  # The shape is learned: 25 to 1 before.
  scales = np.diag(tfpa.learned_factor(kernel, result.final_kernel_results))
  relative = scales / deviations
  assert relative.max() / relative.min() < 1.3
  # Chains are independent: their spread gives the standard errors.
  last = result.states[-1] / deviations
  for power, expected in ((1, 0.0), (2, 1.0)):
    values = last.astype(np.float64) ** power
    standard_error = values.std(axis=0) / 1000**0.5
    errors = values.mean(axis=0) - expected
    assert np.all(np.abs(errors) < 4.0 * standard_error)
    # The negative control: a quarter of a deviation, or of a variance, off.
    assert np.all(np.abs(errors + 0.25) > 4.0 * standard_error)


@pytest.mark.full
@pytest.mark.parametrize('length', [1, 3])
def test_one_chain_without_chain_dimension_adapts(length):
  kernel = tfpa.entropy_adaptive_hamiltonian(
    lambda x: -0.5 * tf.reduce_sum(x**2 / tf.constant([1.0, 9.0]), axis=-1),
    500,
    num_leapfrog_steps=length,
  )
  # One of them compiled: it takes seconds.
  result = _sample(kernel, tf.ones([2]), 400, jit_compile=length > 1)
  assert result.states.shape == (400, 2)
  assert np.all(np.isfinite(result.states))
  assert 0.2 < result.trace['is_accepted'].mean() <= 1.0
  factor = tfpa.learned_factor(kernel, result.final_kernel_results)
  # The deviations are 1 and 3.
  assert factor[1, 1] > 1.5 * factor[0, 0]


@pytest.mark.full
def test_a_penalty_at_its_bound_is_warned_of():
  # A trajectory far longer than a period, and no room for the weight.
  kernel = tfpa.entropy_adaptive_hamiltonian(
    targets.standard_normal,
    2,
    num_leapfrog_steps=4,
    preconditioner=tfpa.preconditioners.cholesky(init_scale=1.2),
    criterion=tfpa.criteria.generalized_speed_measure(
      0.67, penalty_threshold=0.75, penalty_weights=(1.0, 1.01)
    ),
  )
  with pytest.warns(UserWarning, match='`penalty_weight` at its bound'):
    result = tfpa.sample(
      kernel,
      tf.constant(_starts()),
      5,
      seed=(1, 2),
      progress=False,
      jit_compile=False,
    )
  assert np.all(np.isfinite(result.states))


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
  _, all_results = targets.run_steps(
    targets.stepper(kernel, 'graph'), state, results, num_steps
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


def _scale_beside_a_neck(curvature):
  """Returns C's scale where the last of 8 chains has a narrower target."""
  variances = tf.constant([1.0] * 7 + [1.0 / curvature])

  def log_prob(x):
    return -0.5 * tf.reduce_sum(x**2, axis=-1) / variances

  kernel = tfpa.entropy_adaptive_hamiltonian(
    log_prob, _NUM_ADAPTING, num_leapfrog_steps=3
  )
  start = _starts(8, 4) * tf.sqrt(variances)[:, tf.newaxis]
  results = _sample(kernel, start, num_results=10).final_kernel_results
  params = tfp_private.get_innermost(results, 'preconditioner_params')
  return np.exp(np.mean(np.log(np.abs(np.diag(params)))))


@pytest.mark.nightly
@pytest.mark.filterwarnings('ignore:No move was accepted')
def test_one_chain_in_a_neck_does_not_shrink_the_proposal(monkeypatch):
  alone = _scale_beside_a_neck(1.0)
  assert 0.9 < _scale_beside_a_neck(30.0) / alone < 1.1
  # The negative control: unbounded, that chain alone has its way.
  monkeypatch.setattr(
    penalty, 'influence', lambda moved: tf.ones_like(moved.log_accept_ratio)
  )
  assert _scale_beside_a_neck(30.0) / alone < 0.5
