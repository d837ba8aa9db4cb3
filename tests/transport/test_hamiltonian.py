"""HMC behind a map: its numbers against numpy and finite differences."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tests.transport import transported
from tests.transport.maps import networks
from tfp_adaptive.core import scale_factor


class _Step:
  """One step of `MetropolisHastings` around a proposal, and its replay."""

  def __init__(self, proposal, state, seed=0):
    kernel = tfpa.MetropolisHastings(proposal)
    self.state = state
    before = kernel.bootstrap_results(tf.constant(state))
    self.next_state, self.results = kernel.one_step(
      tf.constant(state), before, seed=tf.constant([seed, 5])
    )
    self.start = before.accepted_results
    self.cache = proposal.init_replay_cache(before.proposed_results)
    self.proposed = self.results.proposed_results
    self.proposal = proposal
    self.preconditioner = proposal.preconditioner
    self.params = self.start.preconditioner_params

  @functools.cached_property
  def replay(self):
    return self.proposal.replay(
      self.cache,
      self.start,
      self.proposed,
      self.results.proposed_state,
      self.results,
    )

  def transition(self, params=None):
    params = self.params if params is None else params
    return self.replay.transition(scale_factor.at(self.preconditioner, params))

  def gradient(self, field):
    with tf.GradientTape() as tape:
      tape.watch(self.params)
      value = tf.reduce_sum(getattr(self.transition(), field))
    return tape.gradient(value, self.params)


@pytest.fixture(scope='module')
def step():
  params = networks.random_params(transported.NETWORK, 2, 0.6)
  proposal = transported.Proposal(
    transported.banana,
    transported.fixed(transported.NETWORK, params),
    transported.NUM_STEPS,
    step_size=transported.STEP_SIZE,
  )
  return _Step(proposal, transported.draws(6))


def test_the_ratio_is_that_of_densities_by_change_of_variables(step):
  noise = step.proposed.noise.numpy()
  end, _, _ = transported.numpy_trajectory(step.params, step.state, noise)
  np.testing.assert_allclose(step.results.proposed_state, end, atol=1e-9)
  expected = transported.numpy_log_ratio(step.params, step.state, noise)
  np.testing.assert_allclose(step.results.log_accept_ratio, expected, atol=1e-9)
  assert np.ptp(expected) > 0.1
  np.testing.assert_allclose(
    step.transition().log_accept_ratio, expected, atol=1e-9
  )
  np.testing.assert_allclose(
    step.transition().displacement, end - step.state, atol=1e-9
  )


def test_the_move_runs_back_to_its_start(step):
  # The proposal with velocity -w_L from the end comes back with ratio -r.
  noise = step.proposed.noise.numpy()
  end, _, velocity = transported.numpy_trajectory(
    step.params, step.state, noise
  )
  back, _, _ = transported.numpy_trajectory(step.params, end, -velocity)
  np.testing.assert_allclose(back, step.state, atol=1e-8)
  np.testing.assert_allclose(
    transported.numpy_log_ratio(step.params, end, -velocity),
    -step.results.log_accept_ratio,
    atol=1e-8,
  )


def _along(gradients, direction):
  return sum(
    np.sum(g * d)
    for g, d in zip(tf.nest.flatten(gradients), tf.nest.flatten(direction))
  )


def _direction(params, seed):
  rng = np.random.default_rng(seed)
  return tf.nest.map_structure(lambda p: rng.normal(size=p.shape), params)


def _moved(params, direction, size):
  return tf.nest.map_structure(lambda p, d: p + size * d, params, direction)


@pytest.mark.parametrize('seed', [1, 2, 3])
@pytest.mark.parametrize(
  'field, function',
  [
    ('log_accept_ratio', transported.numpy_log_ratio),
    ('displacement', lambda *args: transported.numpy_trajectory(*args)[0]),
  ],
)
def test_replay_gradients_are_differences_of_the_replayed_numbers(
  step, field, function, seed
):
  direction = _direction(step.params, seed)
  noise = step.proposed.noise.numpy()
  gradients = step.proposed.trajectory.gradients.numpy()
  up, down = (
    function(_moved(step.params, direction, size), step.state, noise, gradients)
    for size in (1e-6, -1e-6)
  )
  np.testing.assert_allclose(
    _along(step.gradient(field), direction),
    np.sum(up - down) / 2e-6,
    rtol=1e-5,
    atol=1e-6,
  )


def test_the_replay_is_not_the_exact_gradient(step):
  # The negative control: gradients of the target move with the path.
  direction = _direction(step.params, 1)
  noise = step.proposed.noise.numpy()
  up, down = (
    transported.numpy_log_ratio(
      _moved(step.params, direction, size), step.state, noise
    )
    for size in (1e-6, -1e-6)
  )
  exact = np.sum(up - down) / 2e-6
  fast = _along(step.gradient('log_accept_ratio'), direction)
  assert abs(fast - exact) > 1e-2 * abs(exact)


@pytest.mark.full
@pytest.mark.parametrize('num_leapfrog_steps', [1, 2, 5])
def test_a_linear_map_is_the_preconditioned_hamiltonian(num_leapfrog_steps):
  factor = 0.4 * targets.correlated_factor(3, 5.0, seed=3)
  target, transport = targets.Banana(3), networks.linear()
  params = transport.init(3, tf.float64, tf.constant(1.0, tf.float64))
  params = params._replace(network=tf.constant(factor))
  state = target.draw(6)
  linear = _Step(
    tfpa.proposals.UncalibratedPreconditionedHamiltonian(
      target.log_prob,
      registry.fixed(factor),
      num_leapfrog_steps,
      transported.STEP_SIZE,
    ),
    state,
  )
  mapped = _Step(
    transported.Proposal(
      target.log_prob,
      transported.fixed(transport, params),
      num_leapfrog_steps,
      transported.STEP_SIZE,
    ),
    state,
  )
  np.testing.assert_allclose(mapped.next_state, linear.next_state, rtol=1e-9)
  for field in ('log_accept_ratio', 'proposal_entropy', 'jacobian_eigenvalue'):
    got, expected = (
      np.asarray(getattr(s.transition(), field)) for s in (mapped, linear)
    )
    np.testing.assert_allclose(
      got, expected + np.zeros(6), rtol=1e-8, atol=1e-10
    )
  for field in (
    'log_accept_ratio',
    'displacement',
    'proposal_entropy',
    'jacobian_eigenvalue',
  ):
    if field == 'jacobian_eigenvalue' and num_leapfrog_steps == 1:
      continue  # A constant.
    np.testing.assert_allclose(
      mapped.gradient(field).network,
      np.tril(linear.gradient(field)),
      rtol=1e-8,
      atol=1e-10,
      err_msg=field,
    )


def test_many_steps_from_the_start_are_those_of_the_identity_mass():
  state = tf.constant(transported.draws(5))
  plain = tfpa.MetropolisHastings(
    tfpa.proposals.UncalibratedPreconditionedHamiltonian(
      transported.banana, tfpa.preconditioners.diagonal(0.4), 3
    )
  )
  mapped = tfpa.MetropolisHastings(
    transported.Proposal(
      transported.banana, tfpa.transports.real_nvp(init_scale=0.4), 3
    )
  )
  expected, got = (
    targets.run_steps(
      targets.stepper(kernel, 'graph'),
      state,
      kernel.bootstrap_results(state),
      20,
    )
    for kernel in (plain, mapped)
  )
  np.testing.assert_allclose(got[0], expected[0], rtol=1e-8, atol=1e-10)
  np.testing.assert_array_equal(
    [r.is_accepted for r in got[1]], [r.is_accepted for r in expected[1]]
  )


def _dense_log_det(params, midpoint, kappa):
  """Returns log det(I + D) at f^-1(midpoint) from the dense Hessian of U~."""
  z = transported.NETWORK.bijector(params).inverse(
    tf.constant(midpoint)[tf.newaxis]
  )
  with tf.GradientTape() as outer:
    outer.watch(z)
    with tf.GradientTape() as inner:
      inner.watch(z)
      bijector = transported.NETWORK.bijector(params)
      rows = tf.identity(z)
      potential = -transported.banana(bijector.forward(rows))
      potential -= bijector.forward_log_det_jacobian(rows, event_ndims=1)
    slope = inner.gradient(potential, z)
  hessian = outer.batch_jacobian(slope, z)[0].numpy()
  jacobian = np.eye(2) - kappa * transported.STEP_SIZE**2 * hessian
  assert np.abs(np.linalg.eigvals(jacobian - np.eye(2))).max() < 0.6
  return np.linalg.slogdet(jacobian)[1]


def test_the_entropy_and_its_gradient_are_those_of_the_dense_hessian():
  # All chains share their midpoint; each has a probe of its own.
  num_chains, midpoint = 4000, np.array([0.4, 0.3])
  params = networks.random_params(transported.NETWORK, 2, 0.28)
  proposal = transported.Proposal(
    transported.banana,
    transported.fixed(transported.NETWORK, params),
    transported.NUM_STEPS,
    step_size=transported.STEP_SIZE,
    num_fixed_terms=3,
  )
  step = _Step(proposal, transported.draws(num_chains))
  shared = np.tile(midpoint, (num_chains, 1))
  trajectory = step.proposed.trajectory
  trajectory = trajectory._replace(
    midpoint=tf.constant(shared),
    gradients=tf.tensor_scatter_nd_update(
      trajectory.gradients, [[0]], transported.gradient(shared)[np.newaxis]
    ),
  )
  kappa = (transported.NUM_STEPS**2 - 1) / 6
  step.proposed = step.proposed._replace(trajectory=trajectory)
  direction = _direction(params, 3)
  size, cotangent = tf.zeros([], tf.float64), tf.ones([num_chains], tf.float64)
  # One derivative per chain: the transpose of the transpose.
  with tf.GradientTape() as outer:
    outer.watch(cotangent)
    with tf.GradientTape() as tape:
      tape.watch(size)
      factor = scale_factor.at(
        proposal.preconditioner, _moved(params, direction, size)
      )
      log_det = step.replay.transition(factor).log_jacobian
    pulled = tape.gradient(log_det, size, output_gradients=cotangent)
  slopes = outer.gradient(pulled, cotangent).numpy()
  up, down = (
    _dense_log_det(_moved(params, direction, width), midpoint, kappa)
    for width in (1e-5, -1e-5)
  )
  for values, expected in (
    (log_det.numpy(), _dense_log_det(params, midpoint, kappa)),
    (slopes, (up - down) / 2e-5),
  ):
    standard_error = values.std() / num_chains**0.5
    assert abs(values.mean() - expected) < 4.0 * standard_error
    assert abs(expected) > 8.0 * standard_error  # The test has power.


def _once(x):
  """`transported.banana`, which cannot be differentiated twice."""

  @tf.custom_gradient
  def slope(x):
    def refuse(*_):
      raise NotImplementedError('Once is all.')

    bent = 2.0 * x[..., 1] + x[..., 0] ** 2 - 1.0
    return tf.stack([-x[..., 0] * (1.0 + bent), -bent], axis=-1), refuse

  @tf.custom_gradient
  def value(x):
    return transported.banana(x), lambda by: by[..., tf.newaxis] * slope(x)

  return value(x)


@pytest.mark.full
def test_finite_differences_do_without_second_derivatives(step):
  def of(method):
    proposal = transported.Proposal(
      _once,
      transported.fixed(transported.NETWORK, step.params),
      transported.NUM_STEPS,
      step_size=transported.STEP_SIZE,
      hessian_product=method,
    )
    return _Step(proposal, transported.draws(6))

  found = of('finite_difference')
  for field in ('proposal_entropy', 'jacobian_eigenvalue'):
    got, expected = (getattr(s.transition(), field) for s in (found, step))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)
    assert np.ptp(expected) > 0.1
    for got, expected in zip(
      *(tf.nest.flatten(s.gradient(field)) for s in (found, step))
    ):
      np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
  # Three gradients of a step; of the entropy four on average, all gradients.
  cost = found.proposal.cost(adapting=True)
  assert (cost.gradient, cost.hessian_vector) == (7.0, 0.0)
  with pytest.raises(NotImplementedError, match='Once is all'):
    of('autodiff').transition()


@pytest.mark.full
def test_diverged_chains_are_marked_and_leave_finite_gradients():
  def half(x):
    value = tf.where(
      x[..., 0] > 0.0, transported.banana(x), tf.constant(np.nan, x.dtype)
    )
    # Finite at the start of the last chain, and its gradient is not.
    return value - 1e-6 * tf.norm(x - [[0.5, 0.5]], axis=-1)

  proposal = transported.Proposal(
    half,
    transported.NETWORK._replace(init_scale=0.5),
    transported.NUM_STEPS,
    step_size=transported.STEP_SIZE,
  )
  start = np.abs(transported.draws(40)) * 0.4
  start[-1] = 0.5
  step = _Step(proposal, start)
  is_finite = step.transition().is_finite.numpy()
  assert not is_finite[-1]
  assert 3 < is_finite.sum() < 37
  np.testing.assert_array_equal(
    step.next_state[~is_finite], step.state[~is_finite]
  )
  for field in ('log_accept_ratio', 'proposal_entropy'):
    for gradient in tf.nest.flatten(step.gradient(field)):
      assert np.all(np.isfinite(gradient))
