"""What is said of pairs where a part of the runs is not known."""

import numpy as np

from experiments.panel import page_tables
from experiments.panel import summary
from tests.experiments.panel.test_panel_page import _record


def test_bias_is_told_where_every_run_has_a_truth():
  all_known = [_record('AM', seed, 1.0) for seed in range(3)]
  # Judged because they pass, as a target whose truth came later.
  chosen = [*all_known[:2], {**all_known[2], 'squared_bias': None}]
  for records, is_told in ((all_known, True), (chosen, False)):
    (pair,) = summary.summarize(records).values()
    assert ('worst_bias' in pair.metrics) == is_told
    assert (pair.curves is not None) == is_told
    assert pair.metrics['rhat_max'].median == 1.003


def test_curves_of_runs_of_another_length_count_too():
  curve = dict(num_draws=[10, 100], mean=[0.1, 0.1])
  # b^2 = 100 / gradients, at other numbers of them.
  grids = ([100.0, 400.0, 900.0], [200.0, 500.0, 1000.0])
  records = [
    _record(
      'SNAPER-HMC',
      seed,
      1.0,
      squared_bias={
        **curve,
        'gradients': grid,
        'worst': [100.0 / g for g in grid],
        'mean': grid,
      },
    )
    for seed, grid in enumerate(grids)
  ]
  (pair,) = summary.summarize(records).values()
  gradients, worst, mean = pair.curves
  np.testing.assert_allclose(gradients[0], [200.0, 424.2641, 900.0])
  np.testing.assert_allclose(mean, gradients)
  # At the ends of the grid, between points of the other run.
  np.testing.assert_allclose(worst[:, 0], [0.25 + 0.75 * 2 / 3, 0.5])
  np.testing.assert_allclose(worst[:, -1], [1 / 9, 0.1 + 0.1 * 0.2])


def test_a_sampler_that_tells_no_divergence_is_not_steady():
  (pair,) = summary.summarize(
    [_record('AM', 0, 1.0, num_diverging=None)]
  ).values()
  assert pair.steady is None


def test_what_is_here_to_compare_with_is_of_the_others():
  records = [
    _record('FisherMALA', 0, 1.0, method_name='fisher_mala'),
    _record('gadMALAf', 0, 1.0),
  ]
  found = summary.summarize(records)
  assert found['Banana', 'FisherMALA'].is_peer
  assert not found['Banana', 'gadMALAf'].is_peer


def test_the_truth_of_a_part_of_the_runs_is_that_of_so_many():
  records = [_record('AM', seed, 1.0) for seed in range(4)]
  records[1]['truth'] = records[3]['truth'] = None
  records.append(_record('AM', 0, 1.0, target='Other', truth=None))
  rows = page_tables.truth_table(records).rows
  assert [row[3] for row in rows] == [
    'inference_gym (2 of 4)',
    'none: never judged',
  ]
  assert [row[5] for row in rows] == ['yes', '-']
