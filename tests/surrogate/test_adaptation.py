"""When and from what a surrogate is learned; what the run then is."""

import functools
import inspect

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tests.surrogate import learning
from tests.surrogate import surrogates
from tfp_adaptive.core import history
from tfp_adaptive.core import tfp_private
from tfp_adaptive.surrogate import weighted_points

_SIZE, _NUM_CHAINS = learning.SIZE, learning.NUM_CHAINS
_NUM_ADAPTING = 300


@functools.cache
def _long_run(online=False):
  kernel = learning.kernel(_NUM_ADAPTING, surrogates.gaussian(online=online))
  return learning.run(kernel, _NUM_ADAPTING + 50)


@pytest.mark.full
def test_fits_are_on_a_geometric_schedule_that_ends_before_the_last_fifth():
  _, results = _long_run()
  fits = learning.changes([learning.params_of(r)[:2] for r in results])
  assert fits[-1] == 0.8 * _NUM_ADAPTING
  assert fits[0] >= 0.1 * _NUM_ADAPTING  # The first states are far away.
  ratios = np.divide(fits[1:], fits[:-1])
  assert len(fits) >= 4 and np.all((1.5 < ratios) & (ratios < 1.7)), fits
  assert int(results[-1].num_fits) == len(fits)
  assert int(results[-1].num_failed_fits) == 0


def test_nothing_learned_changes_after_the_last_fit_to_the_bit():
  _, results = _long_run()
  learned = [
    [
      *learning.params_of(r),
      learning.factor_of(r),
      r.history.points,
      r.num_fits,
    ]
    for r in results
  ]
  last_fit = int(0.8 * _NUM_ADAPTING)
  kept = [row[:3] + row[4:5] for row in learned]
  assert learning.changes(kept)[-1] == last_fit
  # The history goes on until the end of the adaptation and stops there.
  assert learning.changes([row[5:6] for row in learned])[-1] <= _NUM_ADAPTING
  assert int(results[-1].step) == _NUM_ADAPTING + 50


def test_the_momentum_scale_is_learned_before_and_with_the_surrogate():
  _, results = _long_run()
  fits = learning.changes([learning.params_of(r)[:2] for r in results])
  scales = learning.changes([[learning.factor_of(r)] for r in results])
  assert set(fits) <= set(scales)
  early = [step for step in scales if step < 0.1 * _NUM_ADAPTING]
  assert early and early[0] >= 10


@pytest.mark.full
def test_updates_come_often_and_only_after_the_first_fit():
  _, results = _long_run(online=True)
  fits = learning.changes([learning.params_of(r)[:2] for r in results])
  updates = learning.changes(
    [[learning.params_of(r).num_updates] for r in results]
  )
  assert fits[0] < updates[0] and updates[-1] < 0.8 * _NUM_ADAPTING
  assert len(updates) > 5 * len(fits)
  assert not set(updates) & set(fits)


def test_the_learned_scale_needs_no_surrogate_step_of_its_own_if_not_wanted():
  kernel = learning.kernel(30, learn_momentum_scale=False)
  _, results = learning.run(kernel, 30)
  np.testing.assert_array_equal(learning.factor_of(results[-1]), np.eye(_SIZE))
  assert int(results[-1].num_fits) > 0


@pytest.mark.full
def test_the_history_pools_all_chains():
  states, results = learning.run(learning.kernel(100), 5)
  held = results[-1].history
  assert int(held.num_seen) == 5 * _NUM_CHAINS
  np.testing.assert_array_equal(
    held.points[: 5 * _NUM_CHAINS], np.concatenate(states)
  )
  assert np.sum(held.is_filled) == 5 * _NUM_CHAINS


@pytest.mark.full
def test_all_steps_walk_before_the_first_fit_and_few_after_the_last():
  kernel = learning.kernel(100, walk_share=0.3, trajectory_length=4.0)
  _, results = learning.run(kernel, 101)
  shares = np.array(
    [tfp_private.get_innermost(r, 'walk_params').share for r in results]
  )
  fits = learning.changes([learning.params_of(r)[:2] for r in results])
  assert np.all(shares[: fits[0] - 1] == 1.0)
  assert np.all(shares[fits[0] - 1 : fits[-1]] == 0.5)
  # A Gaussian is followed farther than a walk moves; frozen at the end.
  assert shares[fits[-1] + 10] == 0.3 and np.all(shares[-2:] == 0.3)
  walked = [_has_walked(r) for r in results]
  assert np.all(walked[: fits[0]]) and not np.all(walked)
  # The step size is that of the fit: a Gaussian bears a long one.
  sizes = [tfp_private.get_innermost(r, 'step_size') for r in results]
  assert learning.changes([[size] for size in sizes])[-1] <= fits[-1]
  assert 0.5 < sizes[-1] < 1.3 and sizes[0] == 0.5


@pytest.mark.full
def test_where_a_surrogate_misleads_most_steps_walk():
  kernel = learning.kernel(
    100, surrogates.misleading(), walk_share=0.1, trajectory_length=4.0
  )
  _, results = learning.run(kernel, 101)
  walk = tfp_private.get_innermost(results[-1], 'walk_params')
  assert walk.earned[0] < 0.1 * walk.earned[1]
  np.testing.assert_allclose(walk.share, 0.9)


def _has_walked(results):
  return results.inner_results.proposed_results.trajectory.has_walked


@pytest.mark.full
def test_where_no_fit_succeeds_all_steps_walk():
  kernel = learning.kernel(
    30,
    surrogates.failing(num_good_fits=0),
    walk_share=0.3,
    trajectory_length=4.0,
  )
  _, results = learning.run(kernel, 35)
  params = tfp_private.get_innermost(results[-1], 'walk_params')
  assert int(results[-1].num_failed_fits) > 0 and float(params.share) == 1.0
  assert float(tfp_private.get_innermost(results[-1], 'step_size')) == 0.5


@pytest.mark.full
def test_walks_learn_covariance_and_scale_and_others_leave_them():
  _, results = learning.run(
    learning.kernel(_NUM_ADAPTING, walk_share=0.5), _NUM_ADAPTING + 5
  )
  walks = [tfp_private.get_innermost(r, 'walk_params') for r in results]
  walked = [_has_walked(r) for r in results]
  sizes = np.array([walk.step_size for walk in walks])
  adapting = walked[1:_NUM_ADAPTING]
  steps = np.arange(2, _NUM_ADAPTING + 1)
  accepted = np.array([r.mean_accept_prob for r in results[1:_NUM_ADAPTING]])
  expected = 3.0 * (steps + 10.0) ** -0.6 * (accepted - 0.234)
  np.testing.assert_allclose(
    np.diff(np.log(sizes[:_NUM_ADAPTING])),
    np.where(adapting, expected, 0.0),
    atol=1e-12,
  )
  np.testing.assert_array_equal(np.diff(sizes[:_NUM_ADAPTING]) != 0, adapting)
  assert 0 < np.sum(adapting) < len(adapting)
  assert np.all(sizes[_NUM_ADAPTING:] == sizes[_NUM_ADAPTING - 1])
  fits = learning.changes([walk.factor_params for walk in walks])
  last = results[fits[-1] - 1].history  # Steps count from one.
  _, covariance = weighted_points.moments(last.points, history.weights(last))
  factor = walks[-1].factor_params.numpy()
  np.testing.assert_allclose(factor @ factor.T, covariance, rtol=1e-6)


def test_a_fit_is_to_the_history_of_its_step():
  _, results = _long_run()
  last = results[int(0.8 * _NUM_ADAPTING) - 1]
  np.testing.assert_allclose(
    learning.params_of(last).mean,
    np.mean(last.history.points, axis=0),
    rtol=1e-10,
  )
  assert np.all(last.history.is_filled)


def test_no_fit_before_there_are_a_few_draws_for_each_dimension():
  kernel = learning.kernel(20)  # One chain: 16 states at step 16, of 12 needed.
  _, results = learning.run(kernel, 20, learning.start()[0])
  fits = learning.changes([learning.params_of(r)[:2] for r in results])
  assert fits and min(fits) >= 12


@pytest.mark.full
def test_a_failed_fit_keeps_the_old_params_and_is_counted():
  kernel = learning.kernel(_NUM_ADAPTING, surrogates.failing(num_good_fits=1))
  _, results = learning.run(kernel, _NUM_ADAPTING)
  fits = learning.changes([learning.params_of(r)[:2] for r in results])
  assert len(fits) == 1
  last = results[-1]
  assert int(last.num_fits) == 1 and int(last.num_failed_fits) >= 3
  for leaf in tf.nest.flatten(
    (learning.params_of(last), learning.factor_of(last))
  ):
    assert np.all(np.isfinite(leaf))


@pytest.mark.full
@pytest.mark.parametrize('num_adaptation_steps', [1, 2, 9])
def test_the_shortest_runs_work(num_adaptation_steps):
  _, results = learning.run(
    learning.kernel(num_adaptation_steps), num_adaptation_steps + 1
  )
  assert int(results[-1].step) == num_adaptation_steps + 1
  assert np.all(np.isfinite(learning.factor_of(results[-1])))


def test_a_kernel_without_surrogate_is_refused():
  walk = tfpa.MetropolisHastings(
    tfpa.proposals.UncalibratedPreconditionedRandomWalk(
      targets.standard_normal, tfpa.preconditioners.diagonal(1.0)
    )
  )
  with pytest.raises(ValueError, match='UncalibratedSurrogateHamiltonian'):
    tfpa.adaptation.ScoreMatchingAdaptation(walk, 10)
  with pytest.raises(ValueError, match='non-negative int'):
    learning.kernel(-1)


def test_parameters_are_the_constructor_arguments():
  kernel = learning.kernel(5, history=np.ones([3, 2]))
  arguments = inspect.signature(type(kernel).__init__).parameters
  assert set(kernel.parameters) == set(arguments) - {'self'}
  copied = kernel.copy(num_adaptation_steps=7)
  assert copied.num_adaptation_steps == 7
  assert copied.parameters['history'] is kernel.parameters['history']
  assert kernel.is_calibrated
  with tf.Graph().as_default() as graph:
    learning.kernel(5, history=np.ones([3, 2]))
    assert not graph.get_operations()


@pytest.mark.full
@pytest.mark.parametrize('dtype', [np.float32, np.float64])
@pytest.mark.parametrize('chains', [(), (4,), (2, 3)], ids=str)
def test_chain_dimensions_and_dtypes(chains, dtype):
  start = tf.zeros([*chains, _SIZE], dtype)
  kernel = learning.kernel(12)
  before = kernel.bootstrap_results(start)
  _, results = learning.run(kernel, 12, start)
  tf.nest.assert_same_structure(before, results[-1])
  for one, other in zip(tf.nest.flatten(before), tf.nest.flatten(results[-1])):
    assert one.dtype == other.dtype and one.shape == other.shape
  assert learning.factor_of(before).dtype == dtype


@pytest.mark.full
def test_a_number_of_chains_that_is_not_known_gives_the_same_step():
  kernel = learning.kernel(20)

  @tf.function(
    input_signature=[tf.TensorSpec([None, _SIZE], tf.float64)], autograph=False
  )
  def run(start):
    _, results = kernel.one_step(
      start, kernel.bootstrap_results(start), seed=(1, 2)
    )
    return results.history.points

  _, expected = kernel.one_step(
    learning.start(), kernel.bootstrap_results(learning.start()), seed=(1, 2)
  )
  np.testing.assert_allclose(run(learning.start()), expected.history.points)


@pytest.mark.full
@pytest.mark.parametrize('outside', [-np.inf, np.nan])
def test_proposals_without_a_density_never_poison_what_is_learned(outside):
  def half_space(x):
    inside = targets.standard_normal(x)
    return tf.where(x[..., 0] > 0.0, inside, tf.constant(outside, x.dtype))

  kernel = learning.kernel(30)
  kernel = kernel.copy(
    inner_kernel=tfpa.MetropolisHastings(
      kernel.proposal.copy(target_log_prob_fn=half_space)
    )
  )
  states, results = learning.run(kernel, 30, tf.abs(learning.start()))
  num_outside = sum(
    np.sum(r.inner_results.proposed_state[:, 0] <= 0.0) for r in results
  )
  assert num_outside > 10  # Else nothing was tested.
  assert np.all(np.array(states)[..., 0] > 0.0)
  last = results[-1]
  assert int(last.num_fits) > 0
  learned = (
    learning.params_of(last),
    learning.factor_of(last),
    last.history.points,
  )
  assert all(np.all(np.isfinite(leaf)) for leaf in tf.nest.flatten(learned))


@pytest.mark.full
def test_parts_of_a_state_are_learned_as_one_vector():
  flat = learning.start()
  parts = dict(a=flat[:, 0], b=flat[:, 1:])

  def target(a, b):
    return -0.5 * (a**2 + tf.reduce_sum(b**2, axis=-1))

  kernel = learning.kernel(15)
  proposal = kernel.proposal.copy(target_log_prob_fn=target)
  other = kernel.copy(inner_kernel=tfpa.MetropolisHastings(proposal))
  _, expected = learning.run(kernel, 15, flat)
  _, results = learning.run(other, 15, parts)
  np.testing.assert_allclose(
    results[-1].history.points, expected[-1].history.points, rtol=1e-10
  )
  np.testing.assert_allclose(
    learning.factor_of(results[-1]), learning.factor_of(expected[-1]), rtol=1e-8
  )
  assert np.any(learning.factor_of(expected[-1]) != np.eye(_SIZE))


@pytest.mark.full
def test_a_run_is_the_same_in_a_graph_and_compiled():
  kernel = learning.kernel(20)
  graph, compiled = (
    tfpa.sample(
      kernel, learning.start(), 5, seed=(1, 2), jit_compile=jit, progress=False
    )
    for jit in (False, True)
  )
  np.testing.assert_allclose(graph.states, compiled.states, rtol=1e-7)
  results = compiled.final_kernel_results
  assert int(results.num_fits) == int(graph.final_kernel_results.num_fits) > 0


def _resident_bytes():
  with open('/proc/self/statm') as file:
    return 4096 * int(file.read().split()[1])


@pytest.mark.full
def test_memory_does_not_grow_over_many_steps():
  pytest.importorskip('resource', reason='memory is read as on Linux')
  num_steps, num_rounds = 10_000, 10
  kernel = learning.kernel(num_steps * num_rounds)
  start = learning.start()

  @tf.function(jit_compile=True, autograph=False)
  def run(state, results, seed):
    return tf.while_loop(
      lambda step, *_: step < num_steps,
      lambda step, state, results: (
        step + 1,
        *kernel.one_step(state, results, seed=tf.stack([seed, step])),
      ),
      (0, state, results),
    )[1:]

  state, results = start, kernel.bootstrap_results(start)
  used = []
  for seed in range(num_rounds):
    state, results = run(state, results, tf.constant(seed))
    used.append(_resident_bytes())
  assert int(results.step) == num_steps * num_rounds
  # A row per step would be 10 MB with the state alone kept as objects.
  assert used[-1] - used[1] < 2**22, used
  assert results.history.points.shape == [64, _SIZE]


@pytest.mark.full
def test_structures_of_the_momentum_scale_are_kept():
  for name in ('diagonal', 'tridiagonal'):
    part = registry.preconditioner(name, init_scale=1.0)
    _, results = learning.run(learning.kernel(12, preconditioner=part), 12)
    params = learning.factor_of(results[-1])
    tf.nest.assert_same_structure(
      params, part.init(_SIZE, tf.float64, tf.constant(1.0, tf.float64))
    )
    assert np.all(np.isfinite(np.concatenate(tf.nest.flatten(params))))
