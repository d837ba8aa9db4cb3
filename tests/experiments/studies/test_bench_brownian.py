"""The table of the Brownian motion, and the truth it is judged by."""

import numpy as np
import pytest

from experiments.framework import config as configs
from experiments.studies import bench_brownian


def _row(label, gradients, min_ess, repeat=0):
  return {
    'label': label,
    'repeat': repeat,
    'gradients': gradients,
    'adaptation_gradients': 50_000,
    'min_ess': min_ess,
    'median_ess': 4 * min_ess,
    'rhat_max': 1.0 + 0.01 * repeat,
    'worst_mean_z': 2.0 + repeat,
    'seconds': {'compile': 3.0 - repeat, 'adaptation': 1.0, 'sampling': 2.0},
  }


def test_table_has_a_line_for_each_method_with_median_and_range():
  rows = [_row('a', 1000, size, i) for i, size in enumerate((10, 5, 20))]
  lines = bench_brownian.table([*rows, _row('b', 300, 100)])
  assert len(lines) == 4
  cells = [cell.strip() for cell in lines[2].split('|')[1:-1]]
  assert cells[:5] == ['a', '100 (50–200)', '25', '50,000', '10']
  assert cells[5:] == ['1.020', '3.0', '3.0', '1.0', '2.0']
  assert lines[3].split('|')[2].strip() == '3 (3–3)'


def test_every_method_of_the_bench_is_named_once():
  config = configs.parse_config(bench_brownian.config_values())
  assert len(set(config.labels())) == len(config.methods) == 25


@pytest.mark.full
def test_truth_is_of_the_targets_own_quantities():
  config = configs.parse_config(bench_brownian.config_values())
  target = bench_brownian.build_target(config)
  values = target.constrain(np.zeros([1, 32], np.float32))
  for name, moments in target.ground_truth.items():
    assert np.shape(values[name])[1:] == np.shape(moments[0])
    assert np.all(moments[1] > 0)
  assert set(target.ground_truth) == set(values)
