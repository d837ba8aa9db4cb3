"""R-hat after a run: its number, the coordinate it names, what it ignores."""

import warnings

import numpy as np
import pytest
import tensorflow as tf
from arviz_stats.base import array_stats

import tfp_adaptive as tfpa
from tfp_adaptive.driver import convergence

_DRAWS = np.random.default_rng(0).normal(size=(400, 4, 6)).astype(np.float32)


def _shifted():
  draws = _DRAWS.copy()
  draws[:, 1, 3] += 2.0
  return draws


def _arviz(function, draws, **arguments):
  return function(draws, chain_axis=1, draw_axis=0, **arguments)


def _of_all_kinds():
  """Slow, skewed, heavy-tailed and repeated draws, and a shifted chain."""
  rng = np.random.default_rng(1)
  draws = rng.normal(size=(600, 4, 5))
  for t in range(1, 600):
    draws[t, :, 0] += 0.9 * draws[t - 1, :, 0]
  draws[..., 1] = np.exp(draws[..., 1])
  draws[..., 2] = rng.standard_cauchy(size=(600, 4))
  draws[..., 3] = np.repeat(draws[::3, :, 3], 3, axis=0)
  draws[:, 1, 4] += 0.3
  return draws


def test_all_are_those_of_arviz():
  draws = _of_all_kinds()
  found = convergence.diagnose(draws)
  rhat = _arviz(array_stats.rhat, draws, method='rank')
  np.testing.assert_allclose(found.rhat, rhat, rtol=1e-6)
  bulk = _arviz(array_stats.ess, draws, method='bulk')
  # It cuts the sum of a fast series one term later.
  np.testing.assert_allclose(found.ess_bulk, bulk, rtol=0.05)
  tail = _arviz(array_stats.ess, draws, method='tail', prob=(0.05, 0.95))
  np.testing.assert_allclose(found.ess_tail, tail, rtol=0.05)
  squares = (draws - draws.mean(axis=(0, 1))) ** 2
  moments = [
    _arviz(array_stats.ess, x, method='mean') for x in (draws, squares)
  ]
  np.testing.assert_allclose(found.ess_moments, np.min(moments, 0), rtol=0.05)
  assert rhat[4] > 1.01 > rhat[2] and bulk[0] < 0.15 * bulk[2]


def test_draws_that_go_to_and_fro_are_worth_no_more_than_may_be_told():
  draws = np.random.default_rng(2).normal(size=(600, 4, 1))
  for t in range(1, 600):
    draws[t] -= 0.8 * draws[t - 1]
  found = convergence.diagnose(draws)
  # A mean would have 2400 (1 + 0.8) / (1 - 0.8) draws, nine times as many.
  np.testing.assert_allclose(found.ess_bulk, 2400 * np.log10(2400))
  bulk = _arviz(array_stats.ess, draws, method='bulk')
  np.testing.assert_allclose(found.ess_bulk, bulk)
  # Squares have a correlation of 0.64: an efficiency of 0.36 / 1.64.
  np.testing.assert_allclose(found.ess_moments, 2400 * 0.36 / 1.64, rtol=0.3)


def test_the_worst_coordinate_is_found_by_name():
  rhat, name = convergence.worst(_shifted(), 1)['rhat']
  assert name == 'coordinate 3' and rhat > 1.1
  draws = _of_all_kinds()
  worst = convergence.worst(draws, 1)
  assert worst['ess_bulk'][1] == worst['ess_tail'][1] == 'coordinate 0'


@pytest.mark.parametrize(
  'states, num_chain_dims, name',
  [
    ([_DRAWS[..., 0], _shifted()], 1, 'coordinate 3 of part 1'),
    (_shifted().reshape(400, 2, 2, 3, 2), 2, 'coordinate (1, 1)'),
  ],
  ids=['parts', 'matrices'],
)
def test_structures_are_named_by_part_and_index(states, num_chain_dims, name):
  rhat, found = convergence.worst(states, num_chain_dims)['rhat']
  assert found == name
  np.testing.assert_allclose(rhat, convergence.worst(_shifted(), 1)['rhat'][0])


def test_coordinates_that_never_move_are_passed_over():
  draws = _shifted()
  draws[..., 0] = 2.0
  assert convergence.worst(draws, 1)['rhat'][1] == 'coordinate 3'
  assert convergence.worst(np.ones([100, 4, 2]), 1) == {}


@pytest.mark.full
def test_good_draws_of_very_many_coordinates_are_not_doubted(monkeypatch):
  # Thinned to few rows, the worst of so many coordinates would look bad.
  draws = np.random.default_rng(1).normal(size=(1000, 4, 20_000))
  rhat, _ = convergence.worst(draws.astype(np.float32), 1)['rhat']
  assert rhat < convergence.LARGEST_RHAT
  assert convergence.thinning_of(draws, 1) == 1
  # A quarter of the numbers is ranked, of 256 coordinates.
  assert convergence.thinning(65_536, 4, 256) == 4
  # Of a million chains a few rows are left.
  assert convergence.thinning(100, 10**6) == 6


def _two_modes(x):
  squares = [tf.reduce_sum((x - m) ** 2, axis=-1) for m in (-50.0, 50.0)]
  return tf.reduce_logsumexp(-0.5 * tf.stack(squares), axis=0)


def _sample(target, start, num_results):
  return tfpa.sample(
    tfpa.gradient_adaptive_langevin(target, 300),
    tf.constant(start),
    num_results,
    progress=False,
  )


@pytest.mark.full
def test_a_run_warns_of_chains_that_disagree_unless_it_is_short():
  start = np.array([[-50.0], [50.0], [50.0]])
  with pytest.warns(UserWarning, match=r'R-hat is .* in coordinate 0, above'):
    _sample(_two_modes, start, 200)
  assert _said(_two_modes, start, 50) == []


def _said(*arguments):
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always', UserWarning)
    _sample(*arguments)
  return [str(w.message) for w in caught if w.category is UserWarning]
