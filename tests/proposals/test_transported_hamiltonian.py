"""HMC behind a map: the same law as densities by change of variables give.

The numpy map and its log det below are written independently of the library's.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tests.transports import networks
from tfp_adaptive.internal import scale_factor
from tfp_adaptive.proposals import transported_hamiltonian as module

_Proposal = module.UncalibratedTransportedHamiltonian
_NUM_STEPS = 3
_STEP_SIZE = 0.7
_NETWORK = tfpa.transports.real_nvp(hidden_sizes=(4,))


def _banana(x):
  bent = x[..., 1] + 0.5 * (x[..., 0] ** 2 - 1.0)
  return -0.5 * (x[..., 0] ** 2 + 2.0 * bent**2)


def _gradient(x):
  x = tf.constant(x)
  with tf.GradientTape() as tape:
    tape.watch(x)
    value = _banana(x)
  return tape.gradient(value, x).numpy()


def _draws(num_draws, seed=0):
  """Returns exact draws of `_banana`, [num_draws, 2]."""
  x = np.random.default_rng(seed).normal(size=(num_draws, 2)) * [1.0, 0.5**0.5]
  x[:, 1] -= 0.5 * (x[:, 0] ** 2 - 1.0)
  return x


def _numpy_map(params, z):
  """Returns f(z) and log |det Df(z)| of `_NETWORK`; float64 or complex."""
  rows, log_det = [z[..., :1], z[..., 1:]], 0.0
  for moved, layer in ((1, params.network[0]), (0, params.network[1])):
    (first, bias), (last, last_bias) = [
      (np.asarray(w), np.asarray(b)) for w, b in layer
    ]
    hidden = np.log1p(np.exp(rows[1 - moved] @ first + bias))
    outputs = hidden @ last + last_bias
    # A sigmoid from 1/2 to 2 that is 1 at zero.
    scale = 0.5 + 1.5 / (1.0 + 2.0 * np.exp(-outputs[..., :1]))
    rows[moved] = rows[moved] * scale + outputs[..., 1:]
    log_det = log_det + np.log(scale[..., 0])
  log_scale = 10.0 * np.asarray(params.raw_scale)
  stacked = np.concatenate(rows, axis=-1) * np.exp(log_scale)
  return stacked, log_det + log_scale.sum()


def _numpy_slope(params, z, gradient):
  """Returns Df^T gradient + grad log |det Df| by complex steps."""
  columns = []
  for i in range(z.shape[-1]):
    position, log_det = _numpy_map(params, z + 1e-30j * np.eye(z.shape[-1])[i])
    columns.append(np.sum(gradient * position.imag, axis=-1) + log_det.imag)
  return np.stack(columns, axis=-1) / 1e-30


def _numpy_inverse(params, q):
  """Returns f^-1(q) by Newton's method."""
  z = np.zeros_like(q)
  for _ in range(100):
    residual = q - _numpy_map(params, z)[0]
    jacobian = np.stack(
      [_numpy_slope_of_row(params, z, i) for i in range(q.shape[-1])], axis=-2
    )
    step = np.linalg.solve(jacobian, residual[..., np.newaxis])[..., 0]
    z = z + step * np.minimum(1.0, 1.0 / np.abs(step).max())
    if np.abs(step).max() < 1e-14:
      break
  assert np.abs(residual).max() < 1e-10
  return z


def _numpy_slope_of_row(params, z, i):
  return np.stack(
    [
      _numpy_map(params, z + 1e-30j * e)[0].imag[..., i] / 1e-30
      for e in np.eye(z.shape[-1])
    ],
    axis=-1,
  )


def _numpy_trajectory(params, q, noise, gradients=None):
  """Returns q_L, log |det Df| at both ends, w_L; gradients live or given."""
  z, velocity = _numpy_inverse(params, q), noise
  start = _gradient(q)
  log_det_start = _numpy_map(params, z)[1]
  velocity = velocity + 0.5 * _STEP_SIZE * _numpy_slope(params, z, start)
  for done in range(_NUM_STEPS):
    z = z + _STEP_SIZE * velocity
    position, log_det = _numpy_map(params, z)
    grad = _gradient(position) if gradients is None else gradients[done]
    kick = 0.5 if done == _NUM_STEPS - 1 else 1.0
    velocity = velocity + kick * _STEP_SIZE * _numpy_slope(params, z, grad)
  return position, (log_det, log_det_start), velocity


def _numpy_log_ratio(params, q, noise, gradients=None):
  end, (log_det, log_det_start), velocity = _numpy_trajectory(
    params, q, noise, gradients
  )
  log_prob = (
    _banana(tf.constant(end)).numpy()
    if gradients is None
    else np.sum(gradients[-1] * end, axis=-1)
  )
  kinetic = 0.5 * np.sum(velocity**2 - noise**2, axis=-1)
  start = _banana(tf.constant(q)).numpy()
  return log_prob - start + log_det - log_det_start - kinetic


def _fixed(transport, params):
  return transport._replace(
    init=lambda event_size, dtype, scale: tf.nest.map_structure(
      tf.constant, params
    ),
    init_scale=1.0,
  )


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
  params = networks.random_params(_NETWORK, 2, 0.6)
  proposal = _Proposal(
    _banana, _fixed(_NETWORK, params), _NUM_STEPS, step_size=_STEP_SIZE
  )
  return _Step(proposal, _draws(6))


def test_the_ratio_is_that_of_densities_by_change_of_variables(step):
  noise = step.proposed.noise.numpy()
  end, _, _ = _numpy_trajectory(step.params, step.state, noise)
  np.testing.assert_allclose(step.results.proposed_state, end, atol=1e-9)
  expected = _numpy_log_ratio(step.params, step.state, noise)
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
  end, _, velocity = _numpy_trajectory(step.params, step.state, noise)
  back, _, _ = _numpy_trajectory(step.params, end, -velocity)
  np.testing.assert_allclose(back, step.state, atol=1e-8)
  np.testing.assert_allclose(
    _numpy_log_ratio(step.params, end, -velocity),
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
    ('log_accept_ratio', _numpy_log_ratio),
    ('displacement', lambda *args: _numpy_trajectory(*args)[0]),
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
    _numpy_log_ratio(_moved(step.params, direction, size), step.state, noise)
    for size in (1e-6, -1e-6)
  )
  exact = np.sum(up - down) / 2e-6
  fast = _along(step.gradient('log_accept_ratio'), direction)
  assert abs(fast - exact) > 1e-2 * abs(exact)


@pytest.mark.parametrize('num_leapfrog_steps', [1, 2, 5])
def test_a_linear_map_is_the_preconditioned_hamiltonian(num_leapfrog_steps):
  factor = 0.4 * targets.correlated_factor(3, 5.0, seed=3)
  target, transport = targets.Banana(3), networks.linear()
  params = transport.init(3, tf.float64, tf.constant(1.0, tf.float64))
  params = params._replace(network=tf.constant(factor))
  state = target.draw(6)
  linear = _Step(
    tfpa.proposals.UncalibratedPreconditionedHamiltonian(
      target.log_prob, registry.fixed(factor), num_leapfrog_steps, _STEP_SIZE
    ),
    state,
  )
  mapped = _Step(
    _Proposal(
      target.log_prob, _fixed(transport, params), num_leapfrog_steps, _STEP_SIZE
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
  state = tf.constant(_draws(5))
  plain = tfpa.MetropolisHastings(
    tfpa.proposals.UncalibratedPreconditionedHamiltonian(
      _banana, tfpa.preconditioners.diagonal(0.4), 3
    )
  )
  mapped = tfpa.MetropolisHastings(
    _Proposal(_banana, tfpa.transports.real_nvp(init_scale=0.4), 3)
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


def _largest_z_score(target_log_prob_fn, draws, whiten, scale, num_steps=2):
  """Returns the largest z-score of moments after steps from exact draws."""
  params = networks.random_params(_NETWORK, 2, scale, seed=4)
  kernel = tfpa.MetropolisHastings(
    _Proposal(target_log_prob_fn, _fixed(_NETWORK, params), 2, step_size=0.6)
  )
  state = tf.constant(draws)
  step = targets.stepper(kernel, 'graph')
  states, results = targets.run_steps(
    step, state, kernel.bootstrap_results(state), num_steps
  )
  accepted = np.mean(results[-1].is_accepted)
  assert 0.1 < accepted < 0.95, accepted
  u = whiten(states[-1].numpy())
  # Each has mean zero under N(0, I).
  moments = np.stack(
    [u[:, 0], u[:, 1], u[:, 0] ** 2 - 1, u[:, 1] ** 2 - 1, u[:, 0] * u[:, 1]]
  )
  deviations = moments.std(axis=1) / moments.shape[1] ** 0.5
  return np.max(np.abs(moments.mean(axis=1) / deviations))


def _unbend(x):
  return np.stack(
    [x[:, 0], 2.0**0.5 * (x[:, 1] + 0.5 * (x[:, 0] ** 2 - 1.0))], axis=1
  )


_LAWS = {
  'banana': lambda: (_banana, _draws(100_000), _unbend, 1.0),
  'gaussian': lambda: (
    targets.standard_normal,
    np.random.default_rng(1).normal(size=(100_000, 2)),
    lambda x: x,
    2.0,
  ),
}


@pytest.mark.parametrize('law', _LAWS)
def test_a_random_map_leaves_the_target_invariant(law):
  assert _largest_z_score(*_LAWS[law]()) < 4.0  # Five numbers, each N(0, 1).


@pytest.mark.parametrize('law', _LAWS)
def test_the_law_is_lost_without_the_log_det(law, monkeypatch):
  # The negative control of the test above.
  monkeypatch.setattr(
    module, '_correction', lambda end: end.kinetic[1] - end.kinetic[0]
  )
  assert _largest_z_score(*_LAWS[law]()) > 8.0


def _dense_log_det(params, midpoint, kappa):
  """Returns log det(I + D) at f^-1(midpoint) from the dense Hessian of U~."""
  z = _NETWORK.bijector(params).inverse(tf.constant(midpoint)[tf.newaxis])
  with tf.GradientTape() as outer:
    outer.watch(z)
    with tf.GradientTape() as inner:
      inner.watch(z)
      bijector = _NETWORK.bijector(params)
      rows = tf.identity(z)
      potential = -_banana(bijector.forward(rows))
      potential -= bijector.forward_log_det_jacobian(rows, event_ndims=1)
    slope = inner.gradient(potential, z)
  hessian = outer.batch_jacobian(slope, z)[0].numpy()
  jacobian = np.eye(2) - kappa * _STEP_SIZE**2 * hessian
  assert np.abs(np.linalg.eigvals(jacobian - np.eye(2))).max() < 0.6
  return np.linalg.slogdet(jacobian)[1]


def test_the_entropy_and_its_gradient_are_those_of_the_dense_hessian():
  # All chains share their midpoint; each has a probe of its own.
  num_chains, midpoint = 4000, np.array([0.4, 0.3])
  params = networks.random_params(_NETWORK, 2, 0.28)
  proposal = _Proposal(
    _banana, _fixed(_NETWORK, params), _NUM_STEPS, step_size=_STEP_SIZE,
    num_fixed_terms=3, continue_prob=0.4,
  )  # fmt: skip
  step = _Step(proposal, _draws(num_chains))
  shared = np.tile(midpoint, (num_chains, 1))
  trajectory = step.proposed.trajectory
  trajectory = trajectory._replace(
    midpoint=tf.constant(shared),
    gradients=tf.tensor_scatter_nd_update(
      trajectory.gradients, [[0]], _gradient(shared)[np.newaxis]
    ),
  )
  kappa = (_NUM_STEPS**2 - 1) / 6
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


def test_diverged_chains_are_marked_and_leave_finite_gradients():
  def half(x):
    return tf.where(x[..., 0] > 0.0, _banana(x), tf.constant(np.nan, x.dtype))

  proposal = _Proposal(
    half, _NETWORK._replace(init_scale=0.5), _NUM_STEPS, step_size=_STEP_SIZE
  )
  step = _Step(proposal, np.abs(_draws(40)) * 0.4)
  is_finite = step.transition().is_finite.numpy()
  assert 3 < is_finite.sum() < 37
  np.testing.assert_array_equal(
    step.next_state[~is_finite], step.state[~is_finite]
  )
  for field in ('log_accept_ratio', 'proposal_entropy'):
    for gradient in tf.nest.flatten(step.gradient(field)):
      assert np.all(np.isfinite(gradient))


def _kernel(num_adaptation_steps, **options):
  return tfpa.transport_adaptive_hamiltonian(
    _banana, 2, num_adaptation_steps, transport=_NETWORK, **options
  )


@pytest.mark.parametrize(
  'dtype', [tf.float32, pytest.param(tf.float64, marks=pytest.mark.slow)]
)
def test_a_compiled_run_learns_then_stays_and_can_be_frozen(dtype):
  kernel = _kernel(300)
  start = tf.constant(_draws(5), dtype)
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
  for one, other in zip(
    tf.nest.flatten(got.accepted_results.preconditioner_params),
    tf.nest.flatten(learned),
    strict=True,
  ):
    np.testing.assert_array_equal(one, other)
  seed = tf.constant([1, 2])
  np.testing.assert_allclose(
    fixed.one_step(result.final_state, got, seed=seed)[0],
    kernel.one_step(result.final_state, result.final_kernel_results, seed=seed)[
      0
    ],
    rtol=1e-4 if dtype == tf.float32 else 1e-10,
  )


def test_states_of_several_parts_and_no_chains_are_mapped_together():
  def target(a, b):
    return _banana(tf.stack([a, b], axis=-1))

  kernel = tfpa.transport_adaptive_hamiltonian(target, 2, 1, transport=_NETWORK)
  state = [tf.constant(0.3, tf.float64), tf.constant(-0.2, tf.float64)]
  results = kernel.bootstrap_results(state)
  for i in range(2):
    state, results = kernel.one_step(state, results, seed=tf.constant([i, 1]))
  assert [part.shape for part in state] == [[], []]
  assert int(results.step) == 2


def test_a_map_is_not_reported_as_a_matrix():
  kernel = _kernel(0)
  results = kernel.bootstrap_results(tf.constant(_draws(2)))
  for function in (tfpa.as_tfp_kernel, tfpa.learned_covariance):
    with pytest.raises(ValueError, match='A transport is no matrix'):
      function(kernel, results)


def test_parts_that_do_not_fit_are_refused():
  with pytest.raises(TypeError, match='`transport` must be'):
    _Proposal(_banana, tfpa.transports.real_nvp, 3)
  with pytest.raises(ValueError, match='num_leapfrog_steps'):
    _Proposal(_banana, _NETWORK, 0)
  with pytest.raises(ValueError, match='works on tangents'):
    _kernel(10, optimizer=tfpa.optimizers.relative_gradient())
  with pytest.raises(ValueError, match='cannot be sharded'):
    _Proposal(_banana, _NETWORK, 3, experimental_shard_axis_names='i')


def test_parameters_build_the_same_kernel_again():
  proposal = _Proposal(_banana, _NETWORK, 3, step_size=0.5)
  copied = proposal.copy(num_leapfrog_steps=4)
  assert copied.num_leapfrog_steps == 4
  assert copied.transport is _NETWORK
  assert copied.step_size == 0.5
