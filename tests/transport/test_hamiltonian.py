"""HMC behind a map: its numbers against numpy and finite differences."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tests.transport import funnels
from tests.transport import transported
from tests.transport.maps import networks
from tfp_adaptive.core import block_fits
from tfp_adaptive.core import scale_factor
from tfp_adaptive.transport import transported_leapfrog as leapfrog


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


def _up_and_down(step, function, direction, *gradients):
  noise = step.proposed.noise.numpy()
  for size in (1e-6, -1e-6):
    params = _moved(step.params, direction, size)
    yield function(params, step.state, noise, *gradients)


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
  gradients = step.proposed.trajectory.gradients.numpy()
  direction = _direction(step.params, seed)
  up, down = _up_and_down(step, function, direction, gradients)
  np.testing.assert_allclose(
    _along(step.gradient(field), direction),
    np.sum(up - down) / 2e-6,
    rtol=1e-5,
    atol=1e-6,
  )


def test_the_replay_is_not_the_exact_gradient(step):
  # The negative control: gradients of the target move with the path.
  direction = _direction(step.params, 1)
  up, down = _up_and_down(step, transported.numpy_log_ratio, direction)
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
    tf.nest.map_structure(
      functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6),
      *(s.gradient(field) for s in (found, step)),
    )
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
  start[-2] = np.nan
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


# HMC behind a map as a kernel that learns; tests/contracts/test_few_chains.py
# has its law behind a random map.


def _kernel(num_adaptation_steps, **options):
  return tfpa.transport_adaptive_hamiltonian(
    transported.banana,
    num_adaptation_steps,
    num_leapfrog_steps=2,
    transport=transported.NETWORK,
    **options,
  )


@pytest.mark.full
@pytest.mark.parametrize(
  'dtype', [tf.float32, pytest.param(tf.float64, marks=pytest.mark.nightly)]
)
def test_a_compiled_run_learns_then_stays_and_can_be_frozen(dtype):
  kernel = _kernel(300)
  start = tf.constant(transported.draws(5), dtype)
  result = tfpa.sample(kernel, start, 20, seed=3, progress=False)
  assert result.states.dtype == dtype.as_numpy_dtype
  assert np.all(np.isfinite(result.states))
  assert 0.2 < result.trace['is_accepted'].mean() <= 1.0
  learned = (
    result.final_kernel_results.inner_results.accepted_results
  ).preconditioner_params
  last = learned.network[0][-1][0]  # Zero at the start.
  assert np.abs(last).max() > 1e-3
  fixed = tfpa.frozen(kernel, result.final_kernel_results)
  assert not hasattr(fixed, 'num_adaptation_steps')
  got = fixed.bootstrap_results(result.final_state)
  found = got.accepted_results.preconditioner_params
  tf.nest.map_structure(np.testing.assert_array_equal, found, learned)
  seed = tf.constant([1, 2])
  np.testing.assert_allclose(
    fixed.one_step(result.final_state, got, seed=seed)[0],
    kernel.one_step(result.final_state, result.final_kernel_results, seed=seed)[
      0
    ],
    rtol=1e-4 if dtype == tf.float32 else 1e-10,
  )


@pytest.mark.full
@pytest.mark.parametrize(
  'transport', [tfpa.transports.real_nvp, tfpa.transports.conditional_gaussian]
)
def test_the_number_of_chains_may_be_unknown(transport):
  kernel = tfpa.transport_adaptive_hamiltonian(
    targets.standard_normal, 5, transport=transport(), num_leapfrog_steps=1
  )

  @tf.function(
    input_signature=[tf.TensorSpec([None, 3], tf.float64)], autograph=False
  )
  def one_step(start):
    with block_fits.promised(kernel):
      results = kernel.bootstrap_results(start)
    return kernel.one_step(start, results, seed=(1, 2))[0]

  assert one_step(tf.ones([4, 3], tf.float64)).shape == [4, 3]


# Momenta kept behind a map: the joint law, and maps that take none.


_NUM_CHAINS, _NUM_STEPS = 50_000, 10


def _largest_z_score_kept():
  """Returns that of bounded functions of states, momenta and uniforms.

  Ten steps behind a map of the wrong slope, from exact draws.
  """
  kernel = tfpa.transport_adaptive_hamiltonian(
    funnels.funnel,
    0,
    num_leapfrog_steps=(4, 6),
    transport=funnels.fixed(slope=0.5),
    step_size=0.8,
    keep_momentum=True,
  )
  state = funnels.exact_draws(_NUM_CHAINS)
  results = kernel.bootstrap_results(state)
  step = tf.function(kernel.one_step, autograph=False)
  accepted = []
  for i in range(_NUM_STEPS):
    state, results = step(state, results, tf.constant([i, 5]))
    accepted.append(np.mean(results.inner_results.is_accepted))
  assert 0.1 < np.mean(accepted) < 0.95
  kept = results.inner_results.extra
  found = _statistics(state, kept.velocity.numpy(), kept.uniform.numpy())
  rng, num_draws = np.random.default_rng(3), 10 * _NUM_CHAINS
  expected = _statistics(
    funnels.exact_draws(num_draws, seed=4),
    rng.normal(size=(num_draws, 3)),
    rng.uniform(-1.0, 1.0, num_draws),
  )
  error = found.var(axis=0) / _NUM_CHAINS + expected.var(axis=0) / num_draws
  return np.abs((found.mean(0) - expected.mean(0)) / error**0.5).max()


def _statistics(state, velocity, uniform):
  x = np.array(state)
  x[:, 1:] *= np.exp(-x[:, :1])
  flat = np.tanh(np.concatenate([x, velocity, uniform[:, None]], axis=1))
  pairs = flat[:, :, None] * flat[:, None]
  rows, columns = np.triu_indices(flat.shape[1])
  return np.concatenate([flat, pairs[:, rows, columns]], axis=1)


def test_exact_draws_and_momenta_stay_exact_behind_a_map():
  assert _largest_z_score_kept() < 4.5  # The largest of 35; seeds are fixed.


@pytest.mark.full
def test_the_law_of_kept_momenta_is_lost_without_the_log_det(monkeypatch):
  correction = property(lambda end: end.kinetic[1] - end.kinetic[0])
  monkeypatch.setattr(leapfrog.End, 'correction', correction)
  assert _largest_z_score_kept() > 9.0
