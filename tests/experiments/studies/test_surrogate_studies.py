"""Studies of surrogates that are no runs of a config, in small size."""

import numpy as np
import pytest

from experiments.studies import growing_history
from experiments.studies import orbits
from experiments.studies import surrogate_figures
from experiments.studies import trajectory_acceptance


@pytest.mark.nightly
def test_every_repeat_has_a_history_and_a_chain_of_its_own():
  protocol = growing_history.Protocol(
    event_size=2,
    sizes=(40,),
    num_repeats=2,
    num_burnin_steps=20,
    num_results=60,
    num_leapfrog_steps=3,
  )
  lines = []
  rows = growing_history.measure(protocol, report=lines.append)
  keys = [(row['method'], row['size'], row['repeat']) for row in rows]
  named = [('HMC', None), ('RW', None), ('KMC', 40), ('KAMH', 40)]
  assert keys == [(*name, repeat) for name in named for repeat in (0, 1)]
  assert len({row['mean_norm'] for row in rows}) == len(rows)
  assert all(0 < row['acceptance'] <= 1 for row in rows)
  table = growing_history.to_markdown(rows)
  assert len(lines) == 4 and len(table.splitlines()) == 6


def test_table_has_means_over_repeats_and_the_share_of_the_ceiling():
  row = {'acceptance': 0.5, 'mean_norm': 1.0, 'fit_seconds': 2.0}
  rows = [
    {**row, 'method': method, 'size': size, 'chain_seconds': 3, 'min_ess': ess}
    for method, size, ess in (
      ('HMC', None, 100.0),
      ('HMC', None, 300.0),
      ('KMC', 9, 50.0),
    )
  ]
  last = growing_history.to_markdown(rows).splitlines()[-1]
  assert last.startswith('| KMC | 9 | 0.50 (0.50, 0.50) |')
  assert '| 50.0 (50.0, 50.0) | 0.25 | 1 | 2.0, 3.0 |' in last


def test_leapfrog_turns_a_circle_and_keeps_its_energy():
  def energy(x, p):
    return 0.5 * np.sum(x**2 + p**2, axis=-1)

  # No circle: on it the error of second order is constant.
  x, p = np.array([[1.0, 0.0]]), np.array([[0.0, 0.4]])
  errors = [
    np.ptp(
      trajectory_acceptance.follow(
        lambda x: -x, energy, x, p, step_size, round(2.0 / step_size)
      )
    )
    for step_size in (0.2, 0.1)
  ]
  assert errors[1] < 2e-3
  # Of second order.
  assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.1)


@pytest.mark.nightly
def test_wrong_forces_and_divergence_cost_acceptance():
  grid = trajectory_acceptance.Grid(
    event_sizes=(2,), sizes=(30,), num_trials=2, num_leapfrog_steps=5
  )
  rows = trajectory_acceptance.measure(grid, report=lambda line: None)
  assert len(rows) == 3 * 2
  rates = {
    name: np.mean([r['along'] for r in rows if r['surrogate'] == name])
    for name in grid.surrogates
  }
  assert rates['HMC'] > 0.95
  assert 0 < rates['KMC, plain features'] < rates['HMC']
  assert '| KMC | 2 | ' in trajectory_acceptance.to_markdown(rows)
  far = trajectory_acceptance.follow(
    lambda x: 1e200 * x**3,
    lambda x, p: np.sum(x**2 + p**2, axis=-1),
    np.ones([1, 2]),
    np.ones([1, 2]),
    1.0,
    4,
  )
  assert np.exp(np.minimum(far[0] - far[-1], 0.0)) == 0.0


@pytest.mark.full
def test_circle_and_its_surrogates_are_followed_from_one_start():
  found = orbits.measure(num_draws=60)
  starts = {tuple(path[0]) for path, _ in found.values()}
  assert starts == {(1.5, 0.0)}
  path, rates = found['HMC']
  radius = np.sum(path**2, axis=-1).max()
  assert rates.min() > 0.99 and radius < 1.01 * 1.5**2
  assert 0.3 < found['KMC lite'][1].mean() < 1.0


@pytest.mark.full
def test_figures_have_a_panel_for_each_number(tmp_path):
  rows = [
    {
      'surrogate': name,
      'event_size': d,
      'size': n,
      'along': 0.1 * d,
      'trial': 0,
    }
    for name in ('HMC', 'KMC')
    for d in (2, 4)
    for n in (10, 20)
  ]
  figure = surrogate_figures.draw_acceptance(rows)
  images = [axis for axis in figure.axes if axis.images]
  assert [axis.get_title() for axis in images] == ['HMC', 'KMC']
  np.testing.assert_allclose(images[0].images[0].get_array()[:, 0], [0.2, 0.4])
  figure.savefig(tmp_path / 'figure.png')
  row = {'acceptance': 0.5, 'mean_norm': 1.0, 'min_ess': 9.0}
  figure = surrogate_figures.draw_history(
    [
      {**row, 'method': 'HMC', 'size': None},
      {**row, 'method': 'KMC', 'size': 10},
      {**row, 'method': 'KMC', 'size': 20},
    ]
  )
  # The ceiling is drawn over all sizes.
  lines = figure.axes[0].get_lines()
  np.testing.assert_array_equal(lines[0].get_xdata(), [10, 20])
