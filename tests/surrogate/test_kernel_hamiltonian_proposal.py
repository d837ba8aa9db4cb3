"""Surrogate trajectories against plain leapfrog steps, and what is drawn."""

import inspect

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tests.surrogate import surrogates

_SIZE = 3
_FACTOR = np.array([[1.5, 0.0, 0.0], [0.4, 0.7, 0.0], [-0.3, 0.2, 1.1]])
_WALK_FACTOR = np.array([[0.3, 0.0, 0.0], [1.0, 2.0, 0.0], [0.1, -0.6, 0.8]])


def _proposal(score=surrogates.bent_score, **options):
  arguments = dict(
    target_log_prob_fn=targets.standard_normal,
    surrogate=surrogates.known(score),
    preconditioner=registry.fixed(_FACTOR),
    num_leapfrog_steps=7,
    step_size=0.2,
  )
  return tfpa.proposals.UncalibratedSurrogateHamiltonian(
    **(arguments | options)
  )


def _starts(*shape, seed=0, dtype=np.float64):
  return tf.constant(np.random.default_rng(seed).normal(size=shape), dtype)


def _step(kernel, x, seed=(1, 2)):
  return kernel.one_step(x, kernel.bootstrap_results(x), seed=seed)


def _leapfrog(x, velocity, step_size, num_steps):
  """Follows `bent_score` by the textbook, in numpy."""

  def score(x):
    return np.sin(np.roll(x, 1, axis=-1)) - x - 0.2 * x**3

  for _ in range(num_steps):
    velocity = velocity + 0.5 * step_size * score(x) @ _FACTOR
    x = x + step_size * velocity @ _FACTOR.T
    velocity = velocity + 0.5 * step_size * score(x) @ _FACTOR
  return x, velocity


@pytest.mark.parametrize('num_steps', [1, 7])
def test_a_step_is_a_leapfrog_trajectory_along_the_surrogate(num_steps):
  x = _starts(5, _SIZE)
  y, results = _step(_proposal(num_leapfrog_steps=num_steps), x)
  velocity = results.noise.numpy()
  expected, end = _leapfrog(x.numpy(), velocity, 0.2, num_steps)
  np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-13)
  correction = 0.5 * np.sum(velocity**2 - end**2, axis=-1)
  np.testing.assert_allclose(
    results.log_acceptance_correction, correction, rtol=1e-10, atol=1e-12
  )
  np.testing.assert_allclose(
    results.target_log_prob, -0.5 * np.sum(expected**2, axis=-1), rtol=1e-12
  )
  assert np.all(np.abs(correction) > 1e-4)  # Else nothing was tested.


def test_the_log_ratio_is_the_change_of_the_true_energy():
  kernel = tfpa.MetropolisHastings(_proposal())
  x = _starts(5, _SIZE)
  _, results = _step(kernel, x)
  proposed = results.proposed_results
  _, end = _leapfrog(x.numpy(), proposed.noise.numpy(), 0.2, 7)
  energy = 0.5 * np.sum(x.numpy() ** 2 + proposed.noise.numpy() ** 2, axis=-1)
  new_energy = 0.5 * np.sum(results.proposed_state.numpy() ** 2 + end**2, -1)
  np.testing.assert_allclose(
    results.log_accept_ratio, energy - new_energy, rtol=1e-10
  )


def _follow(kernel, x, velocity, num_steps=7):
  return kernel._follow(
    kernel.bootstrap_results(x),
    x,
    velocity,
    tf.constant(0.2, x.dtype),
    tf.constant(num_steps),
  )


def test_the_trajectory_runs_back_with_its_velocity_turned():
  kernel = _proposal()
  x, velocity = _starts(5, _SIZE), _starts(5, _SIZE, seed=1)
  y, end = _follow(kernel, x, velocity)
  assert np.min(np.abs(y - x)) > 1e-4
  back, turned = _follow(kernel, y, -end)
  np.testing.assert_allclose(back, x, rtol=0.0, atol=1e-10)
  np.testing.assert_allclose(-turned, velocity, rtol=0.0, atol=1e-10)


def test_the_trajectory_preserves_volume():
  kernel = _proposal()
  start = _starts(2 * _SIZE)
  with tf.GradientTape(persistent=True) as tape:
    tape.watch(start)
    end = tf.concat(_follow(kernel, start[:_SIZE], start[_SIZE:], 3), axis=0)
  jacobian = tape.jacobian(end, start, experimental_use_pfor=False).numpy()
  assert np.linalg.norm(jacobian - np.eye(2 * _SIZE)) > 0.1
  np.testing.assert_allclose(np.linalg.det(jacobian), 1.0, rtol=1e-10)


def test_where_the_score_is_zero_it_is_a_random_walk_of_the_whole_length():
  x = _starts(5, _SIZE)
  y, results = _step(_proposal(tf.zeros_like), x)
  np.testing.assert_allclose(
    y, x + 7 * 0.2 * results.noise.numpy() @ _FACTOR.T, rtol=1e-12
  )
  np.testing.assert_array_equal(results.log_acceptance_correction, np.zeros(5))


def test_a_surrogate_that_knows_nothing_yet_walks():
  surrogate = tfpa.surrogates.kernel_exponential_family_finite(20, 10)
  x = _starts(2, _SIZE)
  y, results = _step(_proposal(surrogate=surrogate), x)
  np.testing.assert_allclose(
    y, x + 7 * 0.2 * results.noise.numpy() @ _FACTOR.T, rtol=1e-12
  )


@pytest.mark.parametrize('num_steps', [1, 30, (1, 10)], ids=str)
def test_the_target_is_called_once_a_step_whatever_its_length(num_steps):
  num_calls = 0

  def target(x):
    nonlocal num_calls
    num_calls += 1
    return targets.standard_normal(x)

  kernel = _proposal(target_log_prob_fn=target, num_leapfrog_steps=num_steps)
  x = _starts(2, _SIZE)
  results = kernel.bootstrap_results(x)
  assert num_calls == 1
  for seed in targets.seeds(3):
    x, results = kernel.one_step(x, results, seed=seed)
  assert num_calls == 4
  assert tfpa.cost_per_step(kernel, adapting=True)[:3] == (1, 0, 0)


def _lengths(num_seeds, **options):
  """Returns (y - x) / noise of walking trajectories, [seeds, chains, d]."""
  kernel = _proposal(
    tf.zeros_like, preconditioner=registry.fixed(np.eye(_SIZE)), **options
  )
  x = tf.zeros([2, _SIZE], tf.float64)
  start = kernel.bootstrap_results(x)

  @tf.function(autograph=False)
  def run(seed):
    y, results = kernel.one_step(x, start, seed=seed)
    return y / results.noise

  return np.stack([run(seed) for seed in targets.seeds(num_seeds)])


def _one_per_step(lengths):
  """Returns [seeds], after a check that all chains and coordinates agree."""
  np.testing.assert_allclose(
    lengths, np.broadcast_to(lengths[:, :1, :1], lengths.shape), rtol=1e-10
  )
  return lengths[:, 0, 0]


def test_the_number_of_steps_is_uniform_in_its_range_and_one_for_all_chains():
  drawn = _one_per_step(_lengths(800, num_leapfrog_steps=(2, 5))) / 0.2
  np.testing.assert_allclose(drawn, np.round(drawn), rtol=1e-10)
  values, counts = np.unique(np.round(drawn), return_counts=True)
  np.testing.assert_array_equal(values, [2, 3, 4, 5])
  assert stats.chisquare(counts).pvalue > 1e-3
  # Power: one value twice as likely as another.
  assert stats.chisquare(counts, 160 * np.array([2, 1, 1, 1])).pvalue < 1e-6


def test_the_length_is_uniform_from_a_third_of_the_longest_on():
  options = dict(trajectory_length=0.6, step_size=0.01)
  drawn = _one_per_step(_lengths(400, **options))
  np.testing.assert_allclose(drawn, np.round(drawn, 2), rtol=1e-10)
  drawn = drawn + np.random.default_rng(0).uniform(-0.005, 0.005, drawn.shape)
  assert stats.kstest(drawn, stats.uniform(0.2, 0.4).cdf).pvalue > 1e-3
  assert stats.kstest(drawn, stats.uniform(0.0, 0.6).cdf).pvalue < 1e-6


@pytest.mark.parametrize('given', [0.0, -1.0, np.inf, True, '4'])
def test_a_length_that_is_none_is_refused(given):
  with pytest.raises(ValueError, match='trajectory_length=4.0'):
    _proposal(trajectory_length=given)


def test_the_step_size_is_uniform_in_its_range_and_one_for_all_chains():
  options = dict(num_leapfrog_steps=1, step_size_jitter=(0.1, 1.5))
  jitter = _one_per_step(_lengths(800, **options)) / 0.2
  assert stats.kstest(jitter, stats.uniform(0.1, 1.4).cdf).pvalue > 1e-3
  assert stats.kstest(jitter, stats.uniform(0.1, 1.0).cdf).pvalue < 1e-6


@pytest.mark.full
def test_a_share_of_the_steps_walks_with_a_scale_and_covariance_of_its_own():
  kernel = _proposal(
    walk_share=0.3,
    walk_step_size=0.7,
    walk_preconditioner=registry.fixed(_WALK_FACTOR),
  )
  x = _starts(2, _SIZE)
  start = kernel.bootstrap_results(x)
  step = tf.function(
    lambda seed: kernel.one_step(x, start, seed=seed), autograph=False
  )
  num_walks, num_seeds = 0, 500
  for seed in targets.seeds(num_seeds):
    y, results = step(seed)
    correction = results.log_acceptance_correction.numpy()
    if np.all(correction == 0.0):
      num_walks += 1
      assert results.trajectory.has_walked
      np.testing.assert_allclose(
        y, x + 0.7 * results.noise.numpy() @ _WALK_FACTOR.T, rtol=1e-12
      )
    else:
      assert not results.trajectory.has_walked
      assert np.all(correction != 0.0)  # All chains do one thing.
    np.testing.assert_allclose(results.trajectory.displacement, y - x)
  standard_error = (0.3 * 0.7 / num_seeds) ** 0.5
  assert abs(num_walks / num_seeds - 0.3) < 4.0 * standard_error


STRUCTURES = {
  'list': lambda flat: [flat[..., 0], flat[..., 1:]],
  'dict': lambda flat: dict(a=flat[..., :2], b=flat[..., 2]),
  'matrix': lambda flat: tf.reshape(flat, [*flat.shape[:-1], 1, _SIZE]),
}


@pytest.mark.parametrize('chains', [(), (4,), (2, 3)], ids=str)
@pytest.mark.parametrize('structure', STRUCTURES)
def test_states_of_any_structure_are_one_vector(structure, chains):
  flat = _starts(*chains, _SIZE)
  state = STRUCTURES[structure](flat)

  def target(*parts, **named_parts):
    return -0.5 * sum(
      tf.reduce_sum(part**2, axis=range(len(chains), part.shape.rank))
      for part in tf.nest.flatten((parts, named_parts))
    )

  options = dict(num_leapfrog_steps=(1, 3), step_size_jitter=(0.5, 1.0))
  expected, expected_results = _step(_proposal(**options), flat)
  moved, results = _step(_proposal(target_log_prob_fn=target, **options), state)
  tf.nest.assert_same_structure(state, moved)
  for one, other in zip(
    tf.nest.flatten(moved), tf.nest.flatten(STRUCTURES[structure](expected))
  ):
    np.testing.assert_allclose(one, other, rtol=1e-12)
  np.testing.assert_allclose(
    results.target_log_prob, expected_results.target_log_prob, rtol=1e-12
  )
  assert results.log_acceptance_correction.shape == chains


@pytest.mark.parametrize('chains', [(), (4,)], ids=str)
def test_a_scalar_state_moves_in_one_dimension(chains):
  x = _starts(*chains)
  kernel = _proposal(
    target_log_prob_fn=lambda x: -0.5 * x**2,
    preconditioner=registry.fixed([[2.0]]),
    num_leapfrog_steps=1,
    score=lambda x: -x,
  )
  y, results = _step(kernel, x)
  velocity = results.noise[..., 0] - 0.5 * 0.2 * 2.0 * x
  np.testing.assert_allclose(y, x + 0.2 * 2.0 * velocity, rtol=1e-12)


@pytest.mark.full
def test_a_step_is_the_same_eager_in_a_graph_and_compiled():
  kernel = tfpa.MetropolisHastings(
    _proposal(
      num_leapfrog_steps=(1, 10), step_size_jitter=(0.1, 1.0), walk_share=0.2
    )
  )
  x = _starts(20, _SIZE)
  start = kernel.bootstrap_results(x)
  steps = {mode: targets.stepper(kernel, mode) for mode in targets.MODES}
  for seed in targets.seeds(3):
    eager, results = steps['eager'](x, start, seed)
    for mode in ('graph', 'xla'):
      state, other = steps[mode](x, start, seed)
      np.testing.assert_array_equal(other.is_accepted, results.is_accepted)
      np.testing.assert_allclose(state, eager, rtol=1e-10, atol=1e-12)
      np.testing.assert_allclose(
        other.log_accept_ratio, results.log_accept_ratio, rtol=1e-8, atol=1e-11
      )


def test_float32_stays_float32_and_follows_the_same_trajectory():
  x = _starts(5, _SIZE, dtype=np.float32)
  kernel = _proposal()
  start = kernel.bootstrap_results(x)
  y, results = kernel.one_step(x, start, seed=(1, 2))
  for one, other in zip(
    tf.nest.flatten((x, start)), tf.nest.flatten((y, results))
  ):
    assert one.dtype == other.dtype and one.shape == other.shape
  expected, _ = _leapfrog(x.numpy(), results.noise.numpy(), 0.2, 7)
  np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_step_sizes_may_differ_by_chain():
  x = _starts(4, _SIZE)
  sizes = np.array([[0.1], [0.2], [0.3], [0.4]])
  y, results = _step(_proposal(step_size=sizes), x)
  expected, _ = _leapfrog(x.numpy(), results.noise.numpy(), sizes, 7)
  np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-13)


def test_a_trajectory_that_overflows_is_rejected():
  kernel = tfpa.MetropolisHastings(
    _proposal(lambda x: 1e3 * x**3, num_leapfrog_steps=20)
  )
  x = _starts(3, _SIZE)
  state, results = _step(kernel, x)
  assert not np.any(np.isfinite(results.proposed_state))
  np.testing.assert_array_equal(results.is_accepted, np.zeros(3, bool))
  np.testing.assert_array_equal(state, x)


def test_parameters_are_the_constructor_arguments():
  kernel = _proposal()
  arguments = inspect.signature(type(kernel).__init__).parameters
  assert set(kernel.parameters) == set(arguments) - {'self'}
  copied = kernel.copy(step_size=2.0, walk_share=0.5)
  assert copied.parameters == dict(
    kernel.parameters, step_size=2.0, walk_share=0.5
  )
  assert not kernel.is_calibrated and kernel.name == type(kernel).__name__
  assert kernel.experimental_with_shard_axes(None) is kernel
  with pytest.raises(ValueError, match='Shard chains'):
    kernel.experimental_with_shard_axes(['axis'])


def test_the_constructor_builds_no_tensors():
  with tf.Graph().as_default() as graph:
    _proposal(num_leapfrog_steps=(1, 10), step_size_jitter=(0.1, 1.0))
    assert not graph.get_operations()


@pytest.mark.parametrize('given', [0, -1, 2.0, True, (3, 2), (1,), (0, 2), '3'])
def test_a_number_of_steps_that_is_none_is_refused(given):
  with pytest.raises(ValueError, match=r'num_leapfrog_steps=\(1, 10\)'):
    _proposal(num_leapfrog_steps=given)


@pytest.mark.parametrize('given', [1.0, (0.0, 1.0), (1.0, 0.5), (0.5,)])
def test_a_range_of_step_sizes_that_is_none_is_refused(given):
  with pytest.raises(ValueError, match=r'step_size_jitter=\(0.5, 1.0\)'):
    _proposal(step_size_jitter=given)


@pytest.mark.parametrize('given', [-0.1, 1.1, np.nan])
def test_a_share_of_walks_that_is_none_is_refused(given):
  with pytest.raises(ValueError, match='walk_share=0.2'):
    _proposal(walk_share=given)


def test_parts_that_are_none_are_refused():
  with pytest.raises(TypeError, match='with parentheses'):
    _proposal(surrogate=tfpa.surrogates.kernel_exponential_family_finite)
  with pytest.raises(TypeError, match='with parentheses'):
    _proposal(preconditioner=tfpa.preconditioners.cholesky)
  with pytest.raises(TypeError, match='target_log_prob_fn'):
    _proposal(target_log_prob_fn=3.0)
  with pytest.raises(ValueError, match='Write `target_is_stochastic=True`'):
    _proposal(target_log_prob_fn=lambda x, seed: x[..., 0])


def test_a_list_is_one_structure_for_each_part():
  kernel = tfpa.kernel_hamiltonian(
    lambda a, b: -0.5 * tf.reduce_sum(tf.concat([a, b], -1) ** 2, axis=-1),
    1,
    preconditioner=[
      tfpa.preconditioners.diagonal(),
      tfpa.preconditioners.cholesky(),
    ],
  )
  results = kernel.bootstrap_results([tf.zeros([4, 3]), tf.zeros([4, 2])])
  params = results.inner_results.accepted_results.preconditioner_params
  assert [tf.nest.flatten(p)[0].shape for p in params] == [[3], [2, 2]]
