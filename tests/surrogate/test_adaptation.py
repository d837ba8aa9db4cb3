"""When and from what a surrogate is learned; what the run then is."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
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


def test_fits_are_on_a_geometric_schedule_that_ends_before_the_last_fifth():
  _, results = _long_run()
  fits = learning.changes([learning.params_of(r)[:2] for r in results])
  assert fits[-1] == 0.8 * _NUM_ADAPTING
  assert fits[0] >= 0.1 * _NUM_ADAPTING  # The first states are far away.
  ratios = np.divide(fits[1:], fits[:-1])
  assert len(fits) >= 4 and np.all((1.5 < ratios) & (ratios < 1.7)), fits
  assert int(results[-1].num_fits) == len(fits)
  assert int(results[-1].num_failed_fits) == 0
  # To the bit; the history goes on until the end of the adaptation.
  factors = learning.changes([[learning.factor_of(r)] for r in results])
  held = learning.changes([[r.history.points] for r in results])
  assert factors[-1] <= fits[-1] and held[-1] <= _NUM_ADAPTING


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
@pytest.mark.parametrize('outside', [-np.inf, np.nan])
def test_proposals_without_a_density_never_poison_what_is_learned(outside):
  def half_space(x):
    inside = targets.standard_normal(x)
    return tf.where(x[..., 0] > 0.0, inside, tf.constant(outside, x.dtype))

  kernel = learning.kernel(30, target=half_space)
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


@pytest.mark.parametrize('dead', [1e3, np.nan])
def test_chains_that_can_never_move_are_not_in_the_history(dead):
  def bounded(x):
    value = targets.standard_normal(x)
    return tf.where(x[..., 0] < 100.0, value, -float('inf'))

  def count(params, rows):
    is_finite = tf.reduce_all(tf.math.is_finite(rows), axis=-1)
    num_rows = tf.reduce_sum(tf.cast(is_finite, tf.int32))
    return params._replace(num_updates=params.num_updates + num_rows)

  surrogate = surrogates.gaussian(num_points=200)._replace(update=count)
  kernel = learning.kernel(60, surrogate, target=bounded)
  still = tf.fill([2, _SIZE], tf.constant(dead, tf.float64))
  start = tf.concat([learning.start()[:1], still], axis=0)
  states, results = learning.run(kernel, 60, start)
  np.testing.assert_array_equal(states[-1][1:], still)
  held = results[-1].history
  np.testing.assert_array_equal(
    held.points.numpy()[held.is_filled], np.array(states)[:, 0]
  )
  # 12 draws are needed, and two chains of three add none.
  fits = learning.changes([learning.params_of(r)[:2] for r in results])
  assert fits and min(fits) >= 12
  counts = [learning.params_of(r).num_updates for r in results]
  assert counts[-1] == len(learning.changes([[n] for n in counts])) > 0


@pytest.mark.full
def test_frozen_walks_as_often_as_was_learned():
  kernel = tfpa.kernel_hamiltonian(
    lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1),
    60,
    surrogate=surrogates.misleading(),
  )
  for num_steps, is_learned in ((0, False), (60, True)):
    _, results = learning.run(kernel, max(num_steps, 1))
    share = results[-1].inner_results.accepted_results.walk_params.share
    # All of them, of what no fit was made of.
    assert share > 0.3 if is_learned else share == 1.0
    fixed = tfpa.frozen(kernel, results[-1])
    assert fixed.inner_kernel.walk_share == share
    after = fixed.bootstrap_results(learning.start())
    assert after.accepted_results.walk_params.share == share


# Draws known before the run: what is fitted, kept, refused.


@pytest.mark.full
def test_a_given_history_is_fitted_before_the_first_step():
  draws = np.random.default_rng(1).normal(3.0, 2.0, size=(50, _SIZE))
  kernel = learning.kernel(0, history=draws)
  results = kernel.bootstrap_results(learning.start())
  params = learning.params_of(results)
  np.testing.assert_allclose(params.mean, draws.mean(axis=0), rtol=1e-10)
  np.testing.assert_allclose(
    np.linalg.inv(params.precision), np.cov(draws.T, bias=True), rtol=1e-3
  )
  assert int(results.num_fits) >= 1
  # C C^T = (Cov^-1 + E[score score^T])^-1 * 2: the covariance, of a Gaussian.
  factor = learning.factor_of(results).numpy()
  np.testing.assert_allclose(
    factor @ factor.T, np.cov(draws.T, bias=True), rtol=0.1, atol=0.1
  )
  _, after = learning.run(kernel, 3)
  learned = [
    (learning.params_of(r), learning.factor_of(r)) for r in (results, after[-1])
  ]
  tf.nest.map_structure(np.testing.assert_array_equal, *learned)


def test_fewer_draws_than_points_leave_rows_empty():
  draws = np.arange(12.0).reshape(6, 2) ** 2
  kernel = learning.kernel(
    20,
    surrogates.gaussian(num_points=10),
    history=draws,
    learn_momentum_scale=False,
  )
  _, results = learning.run(kernel, 1)
  held = results[-1].history
  assert int(held.num_seen) == 6 + _NUM_CHAINS
  np.testing.assert_array_equal(held.is_filled, [True] * 9 + [False])


def test_a_history_of_another_size_is_refused():
  kernel = learning.kernel(0, history=np.zeros([10, _SIZE + 1]))
  with pytest.raises(ValueError, match='draws of size 3, but the state has 2'):
    kernel.bootstrap_results(learning.start())
