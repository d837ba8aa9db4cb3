"""The Hamiltonian proposal: one step, and its replay, against numpy.

Gradients of the replay are compared with finite differences of a numpy
trajectory, with its gradients held constant.
"""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import parts
from tests.contracts import registry
from tests.contracts import targets
from tests.contracts import trajectories
from tfp_adaptive.core import scale_factor

_EVENT_SIZE = 3
_TARGET = trajectories.Quartic(_EVENT_SIZE)
_STRUCTURES = ('cholesky', 'diagonal')

each_length = pytest.mark.parametrize('num_steps', [1, 2, 4])
each_structure = pytest.mark.parametrize('structure', _STRUCTURES)


def _dense(structure='cholesky'):
  """Returns C; long enough a step that some energy errors are positive."""
  if structure == 'diagonal':
    return np.diag([0.7, 0.5, 0.9])
  return 0.35 * targets.correlated_factor(_EVENT_SIZE, 5.0, seed=3)


def _preconditioner(structure):
  dense = _dense(structure)
  params = np.diag(dense) if structure == 'diagonal' else dense
  return registry.preconditioner(structure, init_scale=1.0)._replace(
    init=lambda event_size, dtype, scale: tf.constant(params, dtype)
  )


class _Step:
  """One step of the kernel and its replay; the same trajectory in numpy."""

  def __init__(
    self, num_steps, structure='cholesky', seed=0, step_size=1.0, **options
  ):
    self.num_steps, self.step_size = num_steps, step_size
    self.dense = _dense(structure)
    self.preconditioner = _preconditioner(structure)
    proposal = tfpa.proposals.UncalibratedPreconditionedHamiltonian(
      _TARGET.log_prob,
      self.preconditioner,
      num_steps,
      step_size=step_size,
      **options,
    )
    self.x = np.random.default_rng(seed).normal(size=(8, _EVENT_SIZE))
    before, self.results, self.replay = parts.replayed_step(
      proposal, tf.constant(self.x), (seed, 5)
    )
    self.params = before.accepted_results.preconditioner_params
    self.noise = self.results.proposed_results.noise.numpy()
    self.path = self.trajectory(self.dense)

  def trajectory(self, dense):
    return trajectories.Trajectory(
      _TARGET, self.x, self.noise, self.step_size * dense, self.num_steps
    )

  def transition(self):
    return self.replay.transition(
      scale_factor.at(self.preconditioner, self.params)
    )

  def gradient(self, of):
    """Returns d sum(of(transition)) / d params."""
    with tf.GradientTape() as tape:
      tape.watch(self.params)
      value = tf.reduce_sum(of(self.transition()))
    return tape.gradient(value, self.params).numpy()

  def held_constant(self, dense):
    """Returns x_L, log pi(x_L) and the log ratio as functions of C.

    All gradients are those of the step (Appendix E and A.3 of the paper); the
    last two up to a constant.
    """
    factor, length = self.step_size * dense, self.num_steps
    grads = self.path.gradients
    inner = list(enumerate(grads[1:length], 1))
    weighted = sum(
      ((length - i) * g for i, g in inner), 0.5 * length * grads[0]
    )
    plain = sum((g for _, g in inner), 0.5 * (grads[0] + grads[-1]))
    end = self.x + length * self.noise @ factor.T
    end = end + weighted @ factor @ factor.T
    velocity = self.noise + plain @ factor
    fit = np.sum(grads[-1] * end, -1)
    return end, fit, fit - 0.5 * np.sum(velocity**2, -1)

  def expected(self, function):
    """Returns the finite difference of function(C) in the params."""
    entries = zip(*np.nonzero(self.dense))
    full = trajectories.finite_difference(function, self.dense, list(entries))
    return np.diag(full) if self.params.shape.rank == 1 else full


@each_structure
@each_length
def test_values_are_those_of_the_step(num_steps, structure):
  step = _Step(num_steps, structure, step_size=0.9)
  moved = step.transition()
  assert np.max(np.abs(step.path.energy_error)) > 0.01
  for found in (step.results, moved):
    np.testing.assert_allclose(
      found.log_accept_ratio, -step.path.energy_error, rtol=1e-9
    )
  np.testing.assert_allclose(
    moved.displacement, step.path.positions[-1] - step.x, rtol=1e-9, atol=1e-12
  )
  np.testing.assert_array_equal(moved.is_accepted, step.results.is_accepted)
  np.testing.assert_array_equal(moved.control_variate, 0.0)
  assert np.all(moved.is_finite)
  assert np.all(np.isfinite(moved.proposed_log_prob))


@each_structure
@each_length
def test_gradients_hold_the_gradients_of_the_path(num_steps, structure):
  step = _Step(num_steps, structure, step_size=0.9)
  for field, index in (('displacement', 0), ('proposed_log_prob', 1)):
    np.testing.assert_allclose(
      step.gradient(lambda moved, field=field: getattr(moved, field)),
      step.expected(lambda c, i=index: step.held_constant(c)[i].sum()),
      rtol=1e-7,
      atol=1e-7,
    )
  np.testing.assert_allclose(
    step.gradient(lambda moved: moved.log_accept_ratio),
    step.expected(lambda c: step.held_constant(c)[2].sum()),
    rtol=1e-7,
    atol=1e-7,
  )


@each_structure
@each_length
def test_gradients_are_not_those_of_the_energy_error(num_steps, structure):
  # The negative control of those held constant.
  step = _Step(num_steps, structure, step_size=0.9)
  fast = step.gradient(lambda moved: moved.log_accept_ratio)
  exact = step.expected(lambda c: -step.trajectory(c).energy_error.sum())
  assert np.linalg.norm(fast - exact) > 0.05 * np.linalg.norm(exact)


def test_finite_differences_estimate_the_same_entropy():
  one = _Step(3).transition()
  two = _Step(3, hessian_product='finite_difference').transition()
  np.testing.assert_allclose(
    one.proposal_entropy, two.proposal_entropy, rtol=1e-5
  )
  np.testing.assert_allclose(
    one.jacobian_eigenvalue, two.jacobian_eigenvalue, rtol=1e-5
  )
  assert np.all(one.jacobian_eigenvalue < 0.0)  # The target is convex.


def test_a_single_step_has_the_entropy_of_the_factor():
  moved = _Step(1).transition()
  np.testing.assert_allclose(
    moved.proposal_entropy, np.linalg.slogdet(_dense())[1], rtol=1e-12
  )
  np.testing.assert_array_equal(moved.jacobian_eigenvalue, 0.0)
  assert moved.num_log_det_terms == 0
