"""The study's settings are chosen and set as it says."""

import json

import numpy as np
import pytest
import tensorflow as tf

from experiments.studies import outlook
from experiments.studies import outlook_runs
from experiments.studies.outlook_runs import Setting
from experiments.studies.trajectory_lengths import effective_sizes


def _rows(target, values):
  """Returns records of a grid; as JSON has them."""
  return [
    json.loads(
      json.dumps(
        dict(
          target=target,
          setting=setting._asdict(),
          **dict.fromkeys(('bulk', 'tail', 'squares'), value),
        )
      )
    )
    for setting, value in values.items()
  ]


def test_rules_are_the_best_of_all_targets_and_own_ones_of_each():
  low, high = (Setting(((1, 1),), a, 1.0, True) for a in (0.7, 0.9))
  two, hmc = Setting(((2, 2),), 0.8, 1.0, True), Setting(((2, 2),))
  rows = [
    *_rows('a', {low: 10.0, high: 9.0, two: 5.0, hmc: 8.0}),
    *_rows('b', {low: 1.0, high: 2.0, two: 5.0, hmc: 3.0}),
  ]
  found = outlook.ways(rows, 'a')
  # Geometric means: 10^(1/2) and 18^(1/2).
  assert found['kept, L = 1'] == high
  assert found['kept, L = 1, uniform drawn anew'] == high._replace(
    is_moved=False
  )
  assert found['kept, L = 2'] == two
  assert found['kept, best of its grid'] == low
  assert found['HMC, best of its grid'] == hmc
  # Nothing was measured on this one.
  assert 'kept, best of its grid' not in outlook.ways(rows, 'c')


@pytest.fixture(scope='module')
def runs():
  scales = np.array([1.0, 3.0, 0.2])
  problem = outlook_runs.Problem(
    lambda x: -0.5 * tf.reduce_sum((x / scales) ** 2, axis=-1), 3
  )
  runs = outlook_runs.Runs(problem, 100)
  runs._learned[None] = outlook_runs.Learned(
    np.diag(scales),
    0.5,
    [2, 3],
    np.random.default_rng(1).normal(size=(8, 3)) * scales,
    4.0,
  )
  return runs


@pytest.fixture(autouse=True)
def _short(monkeypatch):
  monkeypatch.setattr(outlook_runs, '_NUM_GRADIENTS', 4000)


@pytest.mark.full
@pytest.mark.parametrize('accept', [0.7, 0.9])
def test_steps_have_the_wanted_acceptance_whatever_is_kept(runs, accept):
  for damping in (None, 1.0):
    found = runs.measure(Setting(((1, 1),), accept, damping, True))
    # Some 1e4 steps, correlated, of a step size tuned on 5000.
    assert found['accepted'] == pytest.approx(accept, abs=0.02)


@pytest.mark.full
def test_a_step_keeps_what_its_time_and_the_slowest_direction_say(runs):
  law, found = runs._law(Setting(((2, 2),), 0.8, 0.7, True))
  (size,) = found['step_sizes']
  expected = np.exp(-0.7 / 4.0**0.5 * 2 * size)
  assert found['persistence'] == pytest.approx(expected)
  assert law.drift.numpy() == pytest.approx(0.5 * (1.0 - expected**2))
  assert not law.is_fresh
  _, found = runs._law(Setting(((2, 2),)))
  assert found['persistence'] == 0.0


@pytest.mark.full
def test_mixtures_have_the_lengths_and_step_sizes_of_each(runs):
  law, found = runs._law(Setting(((1, 1), ('most', 'most'))))
  assert law.lengths.numpy().tolist() == [[1, 1], [3, 3]]
  one, most = found['step_sizes']
  assert one != most
  np.testing.assert_allclose(
    law.factors / np.array([one, most])[:, np.newaxis, np.newaxis],
    [np.diag([1.0, 3.0, 0.2])] * 2,
  )


def test_the_worst_coordinates_have_the_least_sizes_of_all():
  rng = np.random.default_rng(3)
  # Autoregressions of which coordinate 30 is the slowest.
  rates = np.linspace(0.0, 0.9, 40)
  rates[30] = 0.99
  states = np.zeros((2000, 4, 40))
  for i in range(1, len(states)):
    noise = rng.normal(size=(4, 40))
    states[i] = rates * states[i - 1] + (1.0 - rates**2) ** 0.5 * noise
  part = outlook_runs._worst_coordinates(states)
  assert part.shape[-1] < 25
  for kind in ('bulk', 'tail', 'squares'):
    found, expected = (effective_sizes(s, 1000.0)[kind] for s in (part, states))
    assert found == pytest.approx(expected, rel=1e-9)
