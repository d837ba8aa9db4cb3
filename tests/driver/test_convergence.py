"""R-hat after a run: its number, the coordinate it names, what it ignores."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.driver import convergence

_DRAWS = np.random.default_rng(0).normal(size=(400, 4, 6)).astype(np.float32)


def _shifted():
  draws = _DRAWS.copy()
  draws[:, 1, 3] += 2.0
  return draws


def _by_hand(rows):
  """Brooks and Gelman's ratio of half chains, [draws, chains] -> a number."""
  halves = np.concatenate(np.split(rows.astype(np.float64), 2), axis=1)
  n, m = halves.shape
  between = halves.mean(axis=0).var(ddof=1)
  within = halves.var(axis=0, ddof=1).mean()
  plus = (n - 1) / n * within + between
  return np.sqrt((m + 1) / m * plus / within - (n - 1) / (m * n))


def test_the_worst_coordinate_is_found_with_its_number():
  rhat, name = convergence.worst_rhat(_shifted(), 1)
  assert name == 'coordinate 3'
  np.testing.assert_allclose(rhat, _by_hand(_shifted()[:, :, 3]), rtol=1e-6)
  assert rhat > 1.1


def test_independent_draws_are_near_one():
  rhat, _ = convergence.worst_rhat(_DRAWS, 1)
  assert abs(rhat - 1.0) < 0.01


def test_a_drift_of_one_chain_is_seen():
  rhat, name = convergence.worst_rhat(np.linspace(0.0, 1.0, 200), 0)
  assert rhat > 2.0 and name == 'the state'


@pytest.mark.parametrize(
  'states, num_chain_dims, name',
  [
    ([_DRAWS[..., 0], _shifted()], 1, 'coordinate 3 of part 1'),
    (_shifted().reshape(400, 2, 2, 3, 2), 2, 'coordinate (1, 1)'),
  ],
  ids=['parts', 'matrices'],
)
def test_structures_are_named_by_part_and_index(states, num_chain_dims, name):
  rhat, found = convergence.worst_rhat(states, num_chain_dims)
  assert found == name
  np.testing.assert_allclose(rhat, convergence.worst_rhat(_shifted(), 1)[0])


def test_coordinates_that_never_move_are_passed_over():
  draws = _shifted()
  draws[..., 0] = 2.0
  assert convergence.worst_rhat(draws, 1)[1] == 'coordinate 3'
  rhat, name = convergence.worst_rhat(np.ones([100, 4, 2]), 1)
  assert np.isnan(rhat) and name == ''


def test_large_runs_are_thinned_and_taken_in_blocks(monkeypatch):
  monkeypatch.setattr(convergence, '_BLOCK', 4)
  monkeypatch.setattr(convergence, '_MOST_NUMBERS', _DRAWS.size // 2)
  rhat, name = convergence.worst_rhat(_shifted(), 1)
  assert name == 'coordinate 3'
  np.testing.assert_allclose(rhat, _by_hand(_shifted()[::2, :, 3]), rtol=1e-6)


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


@pytest.mark.full
def test_a_run_that_mixes_does_not_warn():
  assert _said(targets.standard_normal, np.zeros([4, 2]), 1000) == []


def _said(*arguments):
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always', UserWarning)
    _sample(*arguments)
  return [str(w.message) for w in caught if w.category is UserWarning]
