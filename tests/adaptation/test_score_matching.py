"""When and from what a surrogate is learned; what the run then is."""

import functools
import inspect

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tests.proposals import surrogates
from tfp_adaptive.internal import tfp_private

_SIZE, _NUM_CHAINS, _NUM_ADAPTING = 2, 3, 300


def _kernel(num_adaptation_steps, surrogate=None, **options):
  preconditioner = options.pop(
    'preconditioner', tfpa.preconditioners.cholesky(init_scale=1.0)
  )
  return tfpa.adaptation.ScoreMatchingAdaptation(
    tfpa.MetropolisHastings(
      tfpa.proposals.UncalibratedSurrogateHamiltonian(
        targets.standard_normal,
        surrogate or surrogates.gaussian(),
        preconditioner,
        num_leapfrog_steps=2,
        step_size=0.5,
      )
    ),
    num_adaptation_steps,
    **options,
  )


def _start(seed=0, dtype=np.float64):
  rng = np.random.default_rng(seed)
  return tf.constant(rng.normal(size=(_NUM_CHAINS, _SIZE)), dtype)


def _params(results):
  return tfp_private.get_innermost(results, 'surrogate_params')


def _factor(results):
  return tfp_private.get_innermost(results, 'preconditioner_params')


def _run(kernel, num_steps, start=None):
  start = _start() if start is None else start
  results = kernel.bootstrap_results(start)
  step = targets.stepper(kernel, 'graph')
  return targets.run_steps(step, start, results, num_steps)


@functools.cache
def _long_run(online=False):
  kernel = _kernel(_NUM_ADAPTING, surrogates.gaussian(online=online))
  return _run(kernel, _NUM_ADAPTING + 50)


def _changes(values):
  """Returns the steps, counted from 1, after which a value is another."""
  values = [np.concatenate([np.ravel(leaf) for leaf in v]) for v in values]
  return [
    step + 2
    for step, (one, other) in enumerate(zip(values, values[1:]))
    if np.any(one != other)
  ]


def test_fits_are_on_a_geometric_schedule_that_ends_before_the_last_fifth():
  _, results = _long_run()
  fits = _changes([_params(r)[:2] for r in results])
  assert fits[-1] == 0.8 * _NUM_ADAPTING
  assert fits[0] >= 0.1 * _NUM_ADAPTING  # The first states are far away.
  ratios = np.divide(fits[1:], fits[:-1])
  assert len(fits) >= 4 and np.all((1.5 < ratios) & (ratios < 1.7)), fits
  assert int(results[-1].num_fits) == len(fits)
  assert int(results[-1].num_failed_fits) == 0


def test_nothing_learned_changes_after_the_last_fit_to_the_bit():
  _, results = _long_run()
  learned = [
    [*_params(r), _factor(r), r.history.points, r.num_fits] for r in results
  ]
  last_fit = int(0.8 * _NUM_ADAPTING)
  kept = [row[:3] + row[4:5] for row in learned]
  assert _changes(kept)[-1] == last_fit
  # The history goes on until the end of the adaptation and stops there.
  assert _changes([row[5:6] for row in learned])[-1] <= _NUM_ADAPTING
  assert int(results[-1].step) == _NUM_ADAPTING + 50


def test_the_momentum_scale_is_learned_before_and_with_the_surrogate():
  _, results = _long_run()
  fits = _changes([_params(r)[:2] for r in results])
  scales = _changes([[_factor(r)] for r in results])
  assert set(fits) <= set(scales)
  early = [step for step in scales if step < 0.1 * _NUM_ADAPTING]
  assert early and early[0] >= 10


@pytest.mark.slow
def test_updates_come_often_and_only_after_the_first_fit():
  _, results = _long_run(online=True)
  fits = _changes([_params(r)[:2] for r in results])
  updates = _changes([[_params(r).num_updates] for r in results])
  assert fits[0] < updates[0] and updates[-1] < 0.8 * _NUM_ADAPTING
  assert len(updates) > 5 * len(fits)
  assert not set(updates) & set(fits)


def test_the_learned_scale_needs_no_surrogate_step_of_its_own_if_not_wanted():
  kernel = _kernel(30, learn_momentum_scale=False)
  _, results = _run(kernel, 30)
  np.testing.assert_array_equal(_factor(results[-1]), np.eye(_SIZE))
  assert int(results[-1].num_fits) > 0


def test_the_history_pools_all_chains():
  states, results = _run(_kernel(100), 5)
  held = results[-1].history
  assert int(held.num_seen) == 5 * _NUM_CHAINS
  np.testing.assert_array_equal(
    held.points[: 5 * _NUM_CHAINS], np.concatenate(states)
  )
  assert np.sum(held.is_filled) == 5 * _NUM_CHAINS


def test_a_fit_is_to_the_history_of_its_step():
  _, results = _long_run()
  last = results[int(0.8 * _NUM_ADAPTING) - 1]
  np.testing.assert_allclose(
    _params(last).mean, np.mean(last.history.points, axis=0), rtol=1e-10
  )
  assert np.all(last.history.is_filled)


def test_no_fit_before_there_are_a_few_draws_for_each_dimension():
  kernel = _kernel(20)  # One chain: 16 states at step 16, of 12 needed.
  _, results = _run(kernel, 20, _start()[0])
  fits = _changes([_params(r)[:2] for r in results])
  assert fits and min(fits) >= 12


def test_a_failed_fit_keeps_the_old_params_and_is_counted():
  kernel = _kernel(_NUM_ADAPTING, surrogates.failing(num_good_fits=1))
  _, results = _run(kernel, _NUM_ADAPTING)
  fits = _changes([_params(r)[:2] for r in results])
  assert len(fits) == 1
  last = results[-1]
  assert int(last.num_fits) == 1 and int(last.num_failed_fits) >= 3
  for leaf in tf.nest.flatten((_params(last), _factor(last))):
    assert np.all(np.isfinite(leaf))


@pytest.mark.parametrize('num_adaptation_steps', [1, 2, 9])
def test_the_shortest_runs_work(num_adaptation_steps):
  _, results = _run(_kernel(num_adaptation_steps), num_adaptation_steps + 1)
  assert int(results[-1].step) == num_adaptation_steps + 1
  assert np.all(np.isfinite(_factor(results[-1])))


def test_a_given_history_is_fitted_before_the_first_step():
  draws = np.random.default_rng(1).normal(3.0, 2.0, size=(50, _SIZE))
  kernel = _kernel(0, history=draws)
  results = kernel.bootstrap_results(_start())
  params = _params(results)
  np.testing.assert_allclose(params.mean, draws.mean(axis=0), rtol=1e-10)
  np.testing.assert_allclose(
    np.linalg.inv(params.precision), np.cov(draws.T, bias=True), rtol=1e-3
  )
  assert int(results.num_fits) >= 1
  # C C^T = (Cov^-1 + E[score score^T])^-1 * 2: the covariance, of a Gaussian.
  factor = _factor(results).numpy()
  np.testing.assert_allclose(
    factor @ factor.T, np.cov(draws.T, bias=True), rtol=0.1, atol=0.1
  )
  _, after = _run(kernel, 3)
  for one, other in zip(
    tf.nest.flatten((params, _factor(results))),
    tf.nest.flatten((_params(after[-1]), _factor(after[-1]))),
  ):
    np.testing.assert_array_equal(one, other)


def test_more_draws_than_points_are_thinned_evenly_and_count_as_seen():
  draws = np.arange(200.0).reshape(100, 2)
  kernel = _kernel(0, surrogates.gaussian(num_points=10), history=draws)
  held = kernel.bootstrap_results(_start()).history
  np.testing.assert_array_equal(held.points[:, 0], np.arange(0.0, 200.0, 20.0))
  assert int(held.num_seen) == 100 and np.all(held.is_filled)


def test_fewer_draws_than_points_leave_rows_empty():
  draws = np.arange(12.0).reshape(6, 2) ** 2
  kernel = _kernel(
    20,
    surrogates.gaussian(num_points=10),
    history=draws,
    learn_momentum_scale=False,
  )
  _, results = _run(kernel, 1)
  held = results[-1].history
  assert int(held.num_seen) == 6 + _NUM_CHAINS
  np.testing.assert_array_equal(held.is_filled, [True] * 9 + [False])


@pytest.mark.parametrize(
  'history',
  [np.zeros(4), np.zeros([3, 2, 2]), [[1.0, np.nan]] * 2, np.ones([1, 2])],
  ids=['vector', 'chains', 'nan', 'one_draw'],
)
def test_a_history_that_is_none_is_refused_with_what_to_write(history):
  with pytest.raises(ValueError, match=r'result.states.reshape\(\[-1'):
    _kernel(0, history=history)


def test_a_history_of_another_size_is_refused():
  kernel = _kernel(0, history=np.zeros([10, _SIZE + 1]))
  with pytest.raises(ValueError, match='draws of size 3, but the state has 2'):
    kernel.bootstrap_results(_start())


def test_a_kernel_without_surrogate_is_refused():
  walk = tfpa.MetropolisHastings(
    tfpa.proposals.UncalibratedPreconditionedRandomWalk(
      targets.standard_normal, tfpa.preconditioners.diagonal(1.0)
    )
  )
  with pytest.raises(ValueError, match='UncalibratedSurrogateHamiltonian'):
    tfpa.adaptation.ScoreMatchingAdaptation(walk, 10)
  with pytest.raises(ValueError, match='non-negative int'):
    _kernel(-1)


def test_parameters_are_the_constructor_arguments():
  kernel = _kernel(5, history=np.ones([3, 2]))
  arguments = inspect.signature(type(kernel).__init__).parameters
  assert set(kernel.parameters) == set(arguments) - {'self'}
  copied = kernel.copy(num_adaptation_steps=7)
  assert copied.num_adaptation_steps == 7
  assert copied.parameters['history'] is kernel.parameters['history']
  assert kernel.is_calibrated
  with tf.Graph().as_default() as graph:
    _kernel(5, history=np.ones([3, 2]))
    assert not graph.get_operations()


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
@pytest.mark.parametrize('chains', [(), (4,), (2, 3)], ids=str)
def test_chain_dimensions_and_dtypes(chains, dtype):
  start = tf.zeros([*chains, _SIZE], dtype)
  kernel = _kernel(12)
  before = kernel.bootstrap_results(start)
  _, results = _run(kernel, 12, start)
  tf.nest.assert_same_structure(before, results[-1])
  for one, other in zip(tf.nest.flatten(before), tf.nest.flatten(results[-1])):
    assert one.dtype == other.dtype and one.shape == other.shape
  assert _factor(before).dtype == dtype


@pytest.mark.slow
def test_parts_of_a_state_are_learned_as_one_vector():
  flat = _start()
  parts = dict(a=flat[:, 0], b=flat[:, 1:])

  def target(a, b):
    return -0.5 * (a**2 + tf.reduce_sum(b**2, axis=-1))

  kernel = _kernel(15)
  proposal = kernel.proposal.copy(target_log_prob_fn=target)
  other = kernel.copy(inner_kernel=tfpa.MetropolisHastings(proposal))
  _, expected = _run(kernel, 15, flat)
  _, results = _run(other, 15, parts)
  np.testing.assert_allclose(
    results[-1].history.points, expected[-1].history.points, rtol=1e-10
  )
  np.testing.assert_allclose(
    _factor(results[-1]), _factor(expected[-1]), rtol=1e-8
  )
  assert np.any(_factor(expected[-1]) != np.eye(_SIZE))


@pytest.mark.slow
def test_a_run_is_the_same_in_a_graph_and_compiled():
  kernel = _kernel(20)
  graph, compiled = (
    tfpa.sample(
      kernel, _start(), 5, seed=(1, 2), jit_compile=jit, progress=False
    )
    for jit in (False, True)
  )
  np.testing.assert_allclose(graph.states, compiled.states, rtol=1e-7)
  results = compiled.final_kernel_results
  assert int(results.num_fits) == int(graph.final_kernel_results.num_fits) > 0


def test_frozen_is_the_kernel_at_its_end():
  states, results = _long_run()
  kernel = _kernel(_NUM_ADAPTING)
  fixed = tfpa.frozen(kernel, results[-1])
  assert isinstance(fixed, tfpa.MetropolisHastings)
  state = states[-1]
  expected, _ = kernel.one_step(state, results[-1], seed=(5, 6))
  moved, _ = fixed.one_step(state, fixed.bootstrap_results(state), seed=(5, 6))
  np.testing.assert_allclose(moved, expected, rtol=1e-12)
  assert np.any(moved != state)


def test_frozen_keeps_tensors_that_are_not_of_the_dtype_of_the_state():
  kernel = _kernel(12)
  _, results = _run(kernel, 12, _start(dtype=np.float32))
  fixed = tfpa.frozen(kernel, results[-1])
  params = _params(fixed.bootstrap_results(_start(dtype=np.float32)))
  assert params.num_fits.dtype == tf.int32 and params.mean.dtype == tf.float32
  assert int(params.num_fits) == int(results[-1].num_fits) > 0


def test_a_surrogate_kernel_is_no_kernel_of_tfp():
  kernel = _kernel(0)
  results = kernel.bootstrap_results(_start())
  with pytest.raises(ValueError, match='score of a surrogate'):
    tfpa.as_tfp_kernel(kernel, results)
  np.testing.assert_allclose(
    tfpa.learned_factor(kernel, results), 0.5 * np.eye(_SIZE)
  )


def _resident_bytes():
  with open('/proc/self/statm') as file:
    return 4096 * int(file.read().split()[1])


@pytest.mark.slow
def test_memory_does_not_grow_over_many_steps():
  pytest.importorskip('resource', reason='memory is read as on Linux')
  num_steps, num_rounds = 10_000, 10
  kernel = _kernel(num_steps * num_rounds)
  start = _start()

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


class TestKernelAdaptiveMetropolis:
  """KAMH learns in the same wrapper."""

  def _kernel(self, num_adaptation_steps, **options):
    return tfpa.kernel_adaptive_metropolis(
      targets.standard_normal,
      num_adaptation_steps,
      tfpa.surrogates.kernel_subsample(30),
      **options,
    )

  def test_it_keeps_the_history_as_its_draws_and_tunes_its_step(self):
    kernel = self._kernel(100)
    start = _start()
    states, results = _run(kernel, 110)
    fits = _changes([_params(r)[:1] for r in results])
    assert fits[-1] == 80 and len(fits) >= 3
    held = results[79].inner_results.history
    np.testing.assert_array_equal(_params(results[-1]).points, held.points)
    sizes = [tfp_private.get_innermost(r, 'step_size') for r in results]
    assert _changes([[s] for s in sizes])[-1] <= 102
    assert float(sizes[-1]) != 1.0
    assert np.any(states[-1] != start)

  def test_frozen_is_the_kernel_at_its_end(self):
    kernel = self._kernel(40)
    states, results = _run(kernel, 45)
    fixed = tfpa.frozen(kernel, results[-1])
    assert isinstance(fixed, tfpa.MetropolisHastings)
    expected, _ = kernel.one_step(states[-1], results[-1], seed=(5, 6))
    moved, _ = fixed.one_step(
      states[-1], fixed.bootstrap_results(states[-1]), seed=(5, 6)
    )
    np.testing.assert_allclose(moved, expected, rtol=1e-12)

  def test_a_given_history_is_there_from_the_start(self):
    draws = np.random.default_rng(1).normal(size=(30, _SIZE))
    results = self._kernel(0, history=draws).bootstrap_results(_start())
    np.testing.assert_array_equal(_params(results).points, draws)

  def test_it_has_no_one_matrix(self):
    kernel = self._kernel(0)
    results = kernel.bootstrap_results(_start())
    with pytest.raises(ValueError, match='no one matrix'):
      tfpa.learned_factor(kernel, results)


@pytest.mark.slow
def test_structures_of_the_momentum_scale_are_kept():
  for name in ('diagonal', 'tridiagonal'):
    part = registry.preconditioner(name, init_scale=1.0)
    _, results = _run(_kernel(12, preconditioner=part), 12)
    params = _factor(results[-1])
    tf.nest.assert_same_structure(
      params, part.init(_SIZE, tf.float64, tf.constant(1.0, tf.float64))
    )
    assert np.all(np.isfinite(np.concatenate(tf.nest.flatten(params))))
