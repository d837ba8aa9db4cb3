"""Replays: gradients against closed forms and finite differences.

One step of each proposal at fixed noise; g is the gradient of the log target,
e the noise, L the dense factor.
"""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import tfp_adaptive as tfpa
from tests.contracts import parts
from tests.contracts import registry
from tests.contracts import targets
from tests.contracts import trajectories
from tfp_adaptive import interfaces
from tfp_adaptive.core import scale_factor
from tfp_adaptive.linear import control_variates

_EVENT_SIZE = 3
_TARGET = targets.Banana(_EVENT_SIZE)
_FACTOR = 0.6 * targets.correlated_factor(_EVENT_SIZE, 5.0, seed=3)

PROPOSALS = {
  'random_walk': tfpa.proposals.UncalibratedPreconditionedRandomWalk,
  'langevin': tfpa.proposals.UncalibratedPreconditionedLangevin,
  'langevin_exact': lambda target, preconditioner, **options: (
    tfpa.proposals.UncalibratedPreconditionedLangevin(
      target, preconditioner, exact_gradient=True, **options
    )
  ),
}
each_proposal = pytest.mark.parametrize('name', PROPOSALS)


def _log_prob_and_grad(x):
  return targets.value_and_gradient(_TARGET.log_prob, tf.constant(x))


class _Step:
  """One step of a proposal and its replay, all as numpy."""

  def __init__(self, name, num_chains=6, seed=0, state=None, **options):
    self.preconditioner = registry.fixed(_FACTOR)
    proposal = PROPOSALS[name](_TARGET.log_prob, self.preconditioner, **options)
    self.x = _TARGET.draw(num_chains, seed) if state is None else state
    self.grad_x = _log_prob_and_grad(self.x)[1]
    cache = {
      # As after some steps, and as after an accepted step.
      'langevin': lambda first: first + 0.3,
      'random_walk': lambda first: tf.constant(self.grad_x),
    }.get(name)
    _, self.results, self.replay = parts.replayed_step(
      proposal, tf.constant(self.x), tf.constant([seed, 5]), cache
    )
    self.y = self.results.proposed_state.numpy()
    self.noise = self.results.proposed_results.noise.numpy()
    self.grad_y = _log_prob_and_grad(self.y)[1]

  def gradient_in_factor(self, field):
    """Returns d sum(field) / d L in the lower triangle of L, [d, d]."""

    def value(params):
      factor = scale_factor.at(self.preconditioner, params)
      return getattr(self.replay.transition(factor), field)

    gradient = targets.value_and_gradient(value, tf.constant(_FACTOR))[1]
    return np.tril(gradient)


def _log_ratio(name, step, factor):
  """Returns the full log ratio [chains] as a function of L at fixed noise."""
  if name == 'random_walk':
    y = step.x + step.noise @ factor.T
    return _log_prob_and_grad(y)[0] - _log_prob_and_grad(step.x)[0]
  log_prob_x, grad_x = _log_prob_and_grad(step.x)
  y = step.x + 0.5 * grad_x @ factor @ factor.T + step.noise @ factor.T
  log_prob_y, grad_y = _log_prob_and_grad(y)
  backward = 0.5 * (grad_x + grad_y) @ factor + step.noise
  correction = -0.5 * (np.sum(backward**2, 1) - np.sum(step.noise**2, 1))
  return log_prob_y - log_prob_x + correction


_LOWER = list(zip(*np.tril_indices(_EVENT_SIZE)))


@each_proposal
def test_values_are_those_of_the_step(name):
  step = _Step(name)
  params = tf.constant(_FACTOR)
  for factor in (
    scale_factor.at(step.preconditioner, params),
    scale_factor.around(
      step.preconditioner, params, scale_factor.zero_tangent(params)
    ),
  ):
    transition = step.replay.transition(factor)
    np.testing.assert_allclose(
      transition.log_accept_ratio, _log_ratio(name, step, _FACTOR), rtol=1e-9
    )
    np.testing.assert_allclose(
      transition.displacement, step.y - step.x, rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(transition.control_variate, 0.0, atol=1e-12)
    np.testing.assert_array_equal(
      transition.is_accepted, step.results.is_accepted
    )
    assert np.all(transition.is_finite)


def test_fast_langevin_gradient_is_its_closed_form():
  step = _Step('langevin')
  difference = step.grad_x - step.grad_y
  pull = 0.5 * difference @ _FACTOR + step.noise
  np.testing.assert_allclose(
    step.gradient_in_factor('log_accept_ratio'),
    -0.5 * np.tril(difference.T @ pull),
    rtol=1e-9,
    atol=1e-12,
  )


@pytest.mark.parametrize('name', ['random_walk', 'langevin_exact'])
def test_exact_gradients_are_finite_differences_of_the_full_ratio(name):
  step = _Step(name)
  expected = trajectories.finite_difference(
    lambda factor: _log_ratio(name, step, factor).sum(), _FACTOR, _LOWER
  )
  np.testing.assert_allclose(
    step.gradient_in_factor('log_accept_ratio'), expected, rtol=1e-6, atol=1e-6
  )


@each_proposal
def test_displacement_gradient_is_that_of_the_proposal(name):
  step = _Step(name)

  def displacement(factor):
    drift = 0.0 if name == 'random_walk' else 0.5 * step.grad_x @ factor
    return ((drift + step.noise) @ factor.T).sum()

  np.testing.assert_allclose(
    step.gradient_in_factor('displacement'),
    trajectories.finite_difference(displacement, _FACTOR, _LOWER),
    rtol=1e-6,
  )


@pytest.mark.parametrize('step_size', [0.3, 1.7])
def test_the_correction_is_that_of_two_gaussian_densities(step_size):
  step = _Step('langevin', step_size=step_size)
  covariance = step_size**2 * _FACTOR @ _FACTOR.T
  mean_x = step.x + 0.5 * step.grad_x @ covariance
  mean_y = step.y + 0.5 * step.grad_y @ covariance
  expected = [
    stats.multivariate_normal(my, covariance).logpdf(x)
    - stats.multivariate_normal(mx, covariance).logpdf(y)
    for x, y, mx, my in zip(step.x, step.y, mean_x, mean_y)
  ]
  np.testing.assert_allclose(
    step.results.proposed_results.log_acceptance_correction,
    expected,
    rtol=1e-10,
    atol=1e-10,
  )


def _gradients_per_chain(name, spread=1.0, num_draws=100_000):
  """Returns the gradients of min(0, r) and of the control variate, whitened.

  Both [num_draws, d, d]: every chain gets a factor of its own.
  """
  step = _Step(name, state=spread * _TARGET.draw(num_draws, seed=9))
  factors = tf.tile(tf.constant(_FACTOR)[tf.newaxis], [num_draws, 1, 1])
  with tf.GradientTape(persistent=True) as tape:
    tape.watch(factors)
    transition = step.replay.transition(
      interfaces.ScaleFactor(
        apply=lambda v: tf.linalg.matvec(factors, v),
        apply_adjoint=lambda g: tf.linalg.matvec(factors, g, transpose_a=True),
        log_abs_det=tf.zeros([], tf.float64),
        centered_stretch=lambda e, v: _centered_stretch(factors, e, v),
      )
    )
    speed = tf.minimum(transition.log_accept_ratio, 0.0)
  return [
    tf.matmul(
      _FACTOR.T,
      tape.gradient(
        value, factors, unconnected_gradients=tf.UnconnectedGradients.ZERO
      ),
    ).numpy()
    for value in (speed, transition.control_variate)
  ]


def _centered_stretch(factors, left, right):
  """Returns e^T E v - log |det (I + E)| of E = C^-1 factor - I, [chains]."""
  relative = tf.matmul(np.linalg.inv(_FACTOR), factors)
  stretched = tf.reduce_sum(left * tf.linalg.matvec(relative, right), -1)
  value = stretched - tf.linalg.logdet(relative)
  return value - tf.stop_gradient(value)


def _largest_z_score(gradients):
  standard_errors = gradients.std(axis=0) / len(gradients) ** 0.5
  assert np.all(standard_errors > 0.0)
  return np.max(np.abs(gradients.mean(axis=0) / standard_errors))


@each_proposal
def test_the_control_variate_has_mean_zero_in_stationarity(name):
  _, variate = _gradients_per_chain(name)
  assert _largest_z_score(variate) < 4.5  # 9 numbers, each N(0, 1).
  # The negative control: the mean is zero in stationarity only.
  _, variate = _gradients_per_chain(name, spread=1.3)
  assert _largest_z_score(variate) > 6.0


@pytest.mark.parametrize(
  'name, kept', [('random_walk', 0.9), ('langevin', 0.6)]
)
def test_the_control_variate_takes_noise_off(name, kept):
  plain, variate = _gradients_per_chain(name)
  assert (plain + variate).var(axis=0).sum() < kept * plain.var(axis=0).sum()


def test_the_random_walk_carries_the_gradient_at_the_state_of_the_chain():
  proposal = tfpa.proposals.UncalibratedPreconditionedRandomWalk(
    _TARGET.log_prob, registry.fixed(_TARGET.factor)
  )
  kernel = tfpa.MetropolisHastings(proposal)
  state = tf.constant(_TARGET.draw(20))
  results = kernel.bootstrap_results(state)
  cache = proposal.init_replay_cache(results.proposed_results)
  has_moved, num_held = np.zeros([20, 1], bool), 0
  for seed in targets.seeds(5):
    previous = results.accepted_results
    state, results = kernel.one_step(state, results, seed=seed)
    proposed = results.proposed_results, results.proposed_state
    cache = proposal.replay(cache, previous, *proposed, results).cache
    accepted = results.is_accepted.numpy()[:, np.newaxis]
    num_held += np.sum(has_moved & ~accepted)
    has_moved |= accepted
    # Zero, which means unknown, until a chain has moved.
    expected = np.where(has_moved, _log_prob_and_grad(state)[1], 0.0)
    np.testing.assert_allclose(cache, expected, rtol=1e-12)
  assert num_held > 5 and np.sum(~has_moved) < 20


# Control variates of MALA's gradient: their closed forms and exact means.


_IDENTITY = np.eye(_EVENT_SIZE)


def _event_sum(rows):
  return tf.reduce_sum(rows, axis=-1)


def _rows(num_rows, seed=0):
  """Returns a, b, e [num_rows, d], of no particular law but e ~ N(0, I)."""
  rng = np.random.default_rng(seed)
  a, b, e = rng.normal(size=(3, num_rows, _EVENT_SIZE))
  return 2.0 * a + 1.0, b - 0.5, e


def _gradient(function, a, b):
  """Returns the gradient of the sum with respect to E at C = I, [d, d]."""
  params = tf.constant(_IDENTITY)

  def of_tangent(tangent):
    factor = scale_factor.around(registry.fixed(_IDENTITY), params, tangent)
    return function(factor, *map(factor.apply_adjoint, (a, b)))

  value, found = targets.value_and_gradient(of_tangent, tf.zeros_like(params))
  np.testing.assert_array_equal(value, 0.0)
  return found


def _center(a, b, e, slope=0.7):
  return _gradient(
    lambda factor, *_: control_variates.center(slope, factor, a, e), a, b
  )


def _balance(ratio, a, b, e):
  return _gradient(
    lambda _, pull_x, pull_y: control_variates.direction_balance(
      tf.constant(ratio, tf.float64), pull_x - pull_y, a, e, _event_sum
    ),
    a,
    b,
  )


def test_the_centering_gradient_is_its_closed_form():
  a, b, e = _rows(5)
  expected = 0.7 * (e.T @ (e + 0.5 * a) - 5 * np.eye(_EVENT_SIZE))
  np.testing.assert_allclose(_center(a, b, e), expected, rtol=1e-12)


@pytest.mark.parametrize('ratio', [-3.0, -0.4, 0.4, 3.0])
def test_the_balance_is_half_the_sum_of_both_ways(ratio):
  # The way back starts with gradient b and draws -(e + h).
  a, b, e = _rows(1)

  def fast(a, b, e):
    return -0.5 * (a - b).T @ (e + 0.5 * (a - b))

  back = fast(b, a, -(e + 0.5 * (a + b)))
  weight = np.sign(ratio) / (1.0 + np.exp(-ratio)) / (1.0 + ratio**2 / 9.0)
  np.testing.assert_allclose(
    _balance([ratio], a, b, e), 0.5 * weight * (fast(a, b, e) + back)
  )


@pytest.mark.parametrize('ratio', [-30.0, 0.0, 30.0])
def test_the_balance_leaves_chains_alone_that_are_far_out(ratio):
  np.testing.assert_array_equal(_balance([ratio], *_rows(1)), 0.0)


def test_the_mean_slope_follows_its_closed_form_and_outlives_overflow():
  a, b, e = _rows(4)
  ratio = np.array([-1.0, 1.0, -2.0, -0.1])
  fast = 0.5 * np.sum((a - b) * (e + 0.5 * (a - b)), axis=1) / _EVENT_SIZE
  weight = (ratio < 0.0) / (1.0 + ratio**2 / 9.0)
  expected = np.clip(np.mean(fast * weight), 0.0, 2.0)
  mean = tf.constant(0.0, tf.float64)
  for _ in range(200):
    mean = control_variates.mean_slope(mean, tf.constant(ratio), a, b, e)
  np.testing.assert_allclose(mean, expected, rtol=1e-6)
  assert 0.1 < expected
  a[0, 0] = np.inf
  kept = control_variates.mean_slope(mean, tf.constant(ratio), a, b, e)
  np.testing.assert_allclose(kept, mean)
