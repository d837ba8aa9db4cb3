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
from tfp_adaptive.linear import trajectory

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


class _Step:
  """One step of the kernel and its replay; the same trajectory in numpy."""

  def __init__(
    self, num_steps, structure='cholesky', seed=0, step_size=1.0, **options
  ):
    self.num_steps, self.step_size = num_steps, step_size
    self.dense = _dense(structure)
    self.preconditioner = registry.fixed(self.dense, structure=structure)
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
  fast = step.gradient(lambda moved: moved.log_accept_ratio)
  held_constant = step.expected(lambda c: step.held_constant(c)[2].sum())
  np.testing.assert_allclose(fast, held_constant, rtol=1e-7, atol=1e-7)
  # The negative control: the energy error itself.
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


# Target calls of the Hamiltonian kernel, counted in eager execution.


def _counted_steps(length, num_steps):
  """Returns calls and results of adapting steps."""
  target = targets.CountedTarget()
  kernel = tfpa.entropy_adaptive_hamiltonian(
    target,
    num_steps,
    num_leapfrog_steps=length,
    preconditioner=tfpa.preconditioners.cholesky(init_scale=0.3),
  )
  state = tf.ones([3, 2], tf.float64)
  results = kernel.bootstrap_results(state)
  calls, all_results = [], []
  for seed in targets.seeds(num_steps):
    target.calls.update(dict.fromkeys(target.calls, 0))
    state, results = kernel.one_step(state, results, seed=seed)
    calls.append(dict(target.calls))
    all_results.append(results)
  return calls, all_results


def _num_terms(results):
  return int(results.criterion_state.penalty.num_log_det_terms)


@pytest.mark.parametrize('length', [2, 5])
def test_an_adapting_step_makes_one_hessian_product_more_than_terms(length):
  calls, all_results = _counted_steps(length, 8)
  drawn = [_num_terms(results) for results in all_results]
  assert min(drawn) >= 2 and len(set(drawn)) > 1
  for counted, num_terms in zip(calls, drawn):
    # A product evaluates the target and its gradient on the way.
    made = length + num_terms + 1
    products = num_terms + 1
    assert counted == dict(target=made, gradient=made, hessian_vector=products)


# The theory behind the entropy: D_L against exact Jacobians of v -> x_L.


def _exact(target, x, velocity, factor, num_steps, width):
  """Returns DS_L at one point by central differences of the trajectory."""

  def end(velocity):
    path = trajectories.Trajectory(target, x, velocity, factor, num_steps)
    return path.positions[-1]

  columns = [
    (end(velocity + width * e) - end(velocity - width * e)) / (2.0 * width)
    for e in np.eye(len(x))
  ]
  whitened = np.linalg.solve(factor, np.stack(columns, axis=1))
  return whitened / num_steps - np.eye(len(x))


def _approximation(hessian, factor, num_steps):
  kappa = trajectory.curvature_weight(
    tf.constant(num_steps), tf.float64
  ).numpy()
  return -kappa * factor.T @ hessian @ factor


@pytest.mark.parametrize('num_steps', [2, 3, 5])
def test_on_a_gaussian_the_error_falls_as_the_fourth_power_of_the_step(
  num_steps,
):
  # The map is linear in v there: a difference of any width is its Jacobian.
  target = trajectories.Quartic(_EVENT_SIZE, coefficient=0.0)
  base = 0.3 * targets.correlated_factor(_EVENT_SIZE, 3.0)
  x = np.ones(_EVENT_SIZE)
  errors, sizes = [], []
  for step_size in (0.4, 0.2, 0.1):
    factor = step_size * base
    exact = _exact(target, x, np.zeros_like(x), factor, num_steps, 1.0)
    approximation = _approximation(target.hessian(x), factor, num_steps)
    errors.append(np.linalg.norm(exact - approximation))
    sizes.append(np.linalg.norm(exact))
  if num_steps == 2:  # One Hessian, one term: nothing is left out.
    assert np.all(np.array(errors) < 1e-9 * np.array(sizes))
    return
  np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 16.0, rtol=0.1)
  # The negative control: of D_L itself only the square falls so.
  np.testing.assert_allclose(np.divide(sizes[:-1], sizes[1:]), 4.0, rtol=0.1)


# The Hamiltonian kernel: its entropy, and its form with one leapfrog step.


def _log_det_of(dense, num_steps, x):
  """Returns log det(I + D_L) with the Hessian at x, [chains]."""
  jacobian = dense.T @ _TARGET.hessian(x) @ dense
  jacobian = -(num_steps**2 - 1) / 6 * jacobian
  assert np.linalg.norm(jacobian, 2, axis=(-2, -1)).max() < 0.7
  return np.linalg.slogdet(np.eye(_EVENT_SIZE) + jacobian)[1]


def _entropies(num_steps=5, num_seeds=80, num_chains=500):
  """Returns log det estimates, log dets at the middle and at the start.

  Each a mean over chains, by seed: chains share the number of terms.
  """
  dense, step_size = _dense(), 0.22
  preconditioner = registry.fixed(dense)
  proposal = tfpa.proposals.UncalibratedPreconditionedHamiltonian(
    _TARGET.log_prob, preconditioner, num_steps, step_size=step_size
  )
  kernel = tfpa.MetropolisHastings(proposal)
  state = tf.fill([num_chains, _EVENT_SIZE], tf.constant(1.5, tf.float64))
  before = kernel.bootstrap_results(state)
  cache = proposal.init_replay_cache(before.proposed_results)
  factor = scale_factor.at(preconditioner, tf.constant(dense))

  @tf.function(autograph=False)
  def step(seed):
    _, results = kernel.one_step(state, before, seed=seed)
    proposed = results.proposed_results
    moved = proposal.replay(
      cache, before.accepted_results, proposed, results.proposed_state, results
    ).transition(factor)
    return proposed.noise, moved.proposal_entropy - factor.log_abs_det

  rows, scaled = [], step_size * dense
  for seed in targets.seeds(num_seeds):
    noise, estimate = step(seed)
    path = trajectories.Trajectory(
      _TARGET, state.numpy(), noise.numpy(), scaled, num_steps
    )
    middle, start = path.positions[num_steps // 2], path.positions[0]
    log_dets = [_log_det_of(scaled, num_steps, x) for x in (middle, start)]
    rows.append([np.mean(v) for v in (estimate, *log_dets)])
  return np.array(rows).T


def _z_score(differences):
  return differences.mean() / (differences.std() / len(differences) ** 0.5)


def test_the_mean_entropy_is_the_log_determinant_at_the_middle():
  estimate, middle, start = _entropies()
  assert abs(_z_score(estimate - middle)) < 4.0
  assert abs(_z_score(estimate - start)) > 6.0  # The negative control.
  assert abs(middle.mean()) > 0.2


def _adapting_run(kernel, num_steps=30):
  start = tf.constant(np.random.default_rng(1).normal(size=(4, _EVENT_SIZE)))
  return targets.run(kernel, start, num_steps, 'graph')


def test_one_leapfrog_step_is_the_langevin_kernel_step_for_step():
  parts = dict(
    criterion=tfpa.criteria.generalized_speed_measure(0.55),
    optimizer=tfpa.optimizers.relative_gradient(),
  )
  runs = [
    _adapting_run(kernel)
    for kernel in (
      tfpa.gradient_adaptive_langevin(
        _TARGET.log_prob, 25, short_step_share=0.0, **parts
      ),
      tfpa.entropy_adaptive_hamiltonian(
        _TARGET.log_prob, 25, num_leapfrog_steps=1, **parts
      ),
    )
  ]
  accepted, params = [], []
  for langevin, hamiltonian in zip(*(results for _, results in runs)):
    one, two = langevin.inner_results, hamiltonian.inner_results
    np.testing.assert_array_equal(one.is_accepted, two.is_accepted)
    np.testing.assert_allclose(
      two.log_accept_ratio, one.log_accept_ratio, rtol=1e-9, atol=1e-11
    )
    np.testing.assert_allclose(
      two.accepted_results.preconditioner_params,
      one.accepted_results.preconditioner_params,
      rtol=1e-9,
      atol=1e-12,
    )
    accepted.append(one.is_accepted)
    params.append(one.accepted_results.preconditioner_params)
  for one, two in zip(*(states for states, _ in runs)):
    np.testing.assert_allclose(two, one, rtol=1e-9, atol=1e-11)
  assert 0.1 < np.mean(accepted) < 0.95
  learned = params[-1].numpy()
  assert np.linalg.norm(learned - learned[0, 0] * np.eye(_EVENT_SIZE)) > 0.01


# The Hamiltonian kernel where targets are rough, through `tfpa.sample`.


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


@pytest.mark.full
def test_a_scale_far_too_large_is_left_within_a_few_steps():
  # Not to be mistaken for what a penalty on the Jacobian asks of chains that
  # have one: their trajectories explode, and its sign must not be turned.
  scales, num_dropped = _scales_from(targets.standard_normal, 50.0)
  diverging = np.diff(num_dropped) == 4
  assert np.all(diverging[:3]) and not np.any(diverging[-3:])
  assert np.all(np.diff(scales)[diverging] < 0.0)
