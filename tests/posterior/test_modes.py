"""Chains that sit in modes of their own, and what carries between them."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.posterior.structures import modes
from tfp_adaptive.posterior.structures import structure


def _draws(shift, size=2, num_chains=4):
  noise = np.random.default_rng(0).normal(size=(250, num_chains, size))
  return noise + shift * np.arange(num_chains)[:, np.newaxis]


@pytest.mark.parametrize(
  'shift, size, expected',
  [(0.0, 2, False), (2.0, 2, True), (2.0, 20, True), (2.0, 21, False)],
)
def test_an_exchange_may_help_where_chains_disagree_in_few_coordinates(
  shift, size, expected
):
  assert modes.may_be_helped(_draws(shift, size)) is expected
  assert not modes.may_be_helped(_draws(shift, size)[:40])  # Few tell nothing.


def test_a_chain_that_never_moved_hides_no_modes():
  draws = _draws(8.0)
  draws[:, 0] = draws[0, 0]
  assert modes.may_be_helped(draws)


def test_scales_of_coordinates_do_not_widen_each_other():
  draws = _draws(0.0) * [1e4, 1e-2]
  factor = np.array(modes.around(draws).factor)
  expected = 2.5 * np.std(draws.reshape(-1, 2), axis=0, ddof=1)
  np.testing.assert_allclose(np.linalg.norm(factor, axis=1), expected, 1e-5)


def test_the_wide_law_has_the_moments_of_all_draws():
  draws = _draws(2.0)
  draws[3, 1, 0] = np.nan  # The density was NaN there.
  found = modes.around(draws)
  rows = np.delete(draws.reshape(-1, 2), 3 * 4 + 1, axis=0)
  np.testing.assert_allclose(found.mean, rows.mean(axis=0))
  np.testing.assert_allclose(
    np.array(found.factor) @ np.array(found.factor).T,
    2.5**2 * np.cov(rows.T),
    rtol=1e-5,
  )


def test_a_coordinate_that_never_moved_leaves_a_law():
  draws = _draws(2.0)
  draws[..., 1] = 3.0
  assert np.all(np.isfinite(modes.around(draws).factor))


@pytest.mark.parametrize(
  'barrier, expected', [(1.2, 5), (2.1, 7), (6.5, 15), (30.0, 20)]
)
def test_a_barrier_asks_for_replicas(barrier, expected):
  assert modes.around(_draws(2.0)).after(barrier).num_replicas == expected


def test_an_exchange_is_rebuilt_from_what_a_file_keeps():
  part = modes.around(_draws(2.0))
  as_lists = [list(part.mean), [list(row) for row in part.factor], 7]
  found = structure.rebuilt(modes.NAME, 2, {}, (), (), exchange=as_lists)
  assert modes.is_exchange(found.part)
  assert found.part.num_replicas == 7
  kernels = [p.kernel(_log_prob, 20, tf.float32) for p in (part, found.part)]
  assert [k.num_replicas for k in kernels] == [5, 7]
  x = tf.constant([[0.5, -1.0]])
  first, second = (k.parameters['reference'].log_prob(x) for k in kernels)
  np.testing.assert_allclose(first, second)


_WEIGHT, _CENTER = 0.7, 6.0


def _log_prob(x):
  """0.7 N(6, I) + 0.3 N(-6, I)."""
  logs = [
    np.log(weight) - 0.5 * tf.reduce_sum((x - center) ** 2, axis=-1)
    for weight, center in ((_WEIGHT, _CENTER), (1.0 - _WEIGHT, -_CENTER))
  ]
  return tf.reduce_logsumexp(tf.stack(logs), axis=0)


@pytest.mark.nightly
def test_weights_of_modes_are_found_and_what_is_saved_goes_on(tmp_path):
  arguments = dict(init=tf.TensorSpec([2]))
  posterior = tfpa.sample_posterior(
    _log_prob, seed=3, progress=False, **arguments
  )
  assert posterior.converged and posterior.choice == modes.NAME
  assert any('5 temperatures' in stage.found for stage in posterior.report)
  by_chain = np.mean(posterior.states[..., 0] > 0.0, axis=0)
  error = np.std(by_chain, ddof=1) / np.sqrt(len(by_chain))
  assert error < 0.05
  assert abs(np.mean(by_chain) - _WEIGHT) < 4.0 * error
  posterior.save(tmp_path / 'run.npz')
  loaded = tfpa.load_posterior(tmp_path / 'run.npz', _log_prob, **arguments)
  np.testing.assert_array_equal(
    loaded.more(100).states, posterior.more(100).states
  )
