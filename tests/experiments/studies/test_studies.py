"""Studies in small size: each measures what its pages show."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from experiments.run import store
from experiments.run.study import Work
from experiments.studies import quickstart
from experiments.studies import right_answers
from experiments.studies import rivals


@pytest.mark.nightly
def test_an_answer_about_unscaled_data_is_right(tmp_path):
  settings = right_answers.Sizes()
  found = right_answers.cases(settings)
  work = Work(settings, tmp_path)
  record = right_answers.run(found['units | 0 | float32'], 0, work)
  assert record['converged'] and record['largest_error'] < 0.2
  record = right_answers.run(
    found['rounding | normal | 1000 | 0.1 | float64'], 0, work
  )
  assert abs(record['deviation_over_exact'] - 1.0) < 0.1


@pytest.mark.parametrize('mean', [0.1, 0.5, 3.0])
def test_moments_of_known_posteriors_are_those_of_the_quadrature(mean):
  count = 50
  total = mean * count
  # A normal mean, and a log gamma variable: the log rate of Poisson counts.
  center, deviation = right_answers.exact_moments('normal', total, count)
  np.testing.assert_allclose([center, deviation], [mean, count**-0.5], 1e-6)
  rate = np.random.default_rng(0).gamma(total, 1.0 / count, 400_000)
  found = right_answers.exact_moments('poisson', total, count)
  log_rate = np.log(rate)
  assert abs(found[0] - log_rate.mean()) < 5 * found[1] / np.sqrt(4e5)
  assert abs(found[1] / log_rate.std() - 1.0) < 0.01


@pytest.mark.parametrize('family', ['logistic', 'gamma', 'negative_binomial'])
def test_deviations_of_many_rows_are_those_of_the_information(family):
  count, mean = 10**6, 0.3
  information = dict(
    logistic=mean * (1.0 - mean),
    gamma=2.0,
    negative_binomial=mean * 2.0 / (2.0 + mean),
  )[family]
  _, deviation = right_answers.exact_moments(family, mean * count, count)
  np.testing.assert_allclose(deviation, (information * count) ** -0.5, 1e-3)


def test_regressions_have_scales_of_nine_decades_and_least_squares_weights():
  sizes = []
  for number in range(40):
    x, y, weights = right_answers.regression(number)
    residual = y - y.mean() - (x - x.mean(axis=0)) @ weights
    scale = x.std(axis=0)
    np.testing.assert_allclose(residual @ (x / scale), 0.0, atol=1e-3)
    sizes += scale.tolist()
  assert max(sizes) / min(sizes) > 1e8


# Runs of the study of rivals, and of posteriordb, on models and draws.


_SETTINGS = rivals.STUDY.settings()


@pytest.mark.full
def test_a_run_of_ours_is_judged(tmp_path):
  work = Work(_SETTINGS, tmp_path)
  record = rivals.STUDY.run(('student_t', 'sample_posterior'), 0, work)
  assert len(record['means']) == 50
  assert 0.0 < record['num_warmup_gradients'] < record['num_gradients']
  assert record['cpu_seconds'] > 1.0


# The quickstart: its table, its figures, and the whole command.


_ROOT = pathlib.Path(__file__).resolve().parents[3]
# For the largest of 100 weights: 4 is exceeded once in 160 tries, 5 in 17,000.
_MOST_ERRORS_OF_WEIGHTS = 5.0


# The whole command, five minutes: XLA compiles all that a user waits for.
@pytest.mark.nightly
def test_the_command_finds_the_means_and_says_nothing_else(tmp_path):
  variables = {**os.environ, 'PYTHONPATH': str(_ROOT)}
  variables.pop('TF_CPP_MIN_LOG_LEVEL', None)
  command = [sys.executable, '-m', 'experiments', 'run', 'quickstart']
  result = subprocess.run(
    [*command, '--output', tmp_path],
    env=variables,
    capture_output=True,
    text=True,
    check=True,
  )
  records = store.read(tmp_path)
  assert result.stderr == ''
  text = quickstart.STUDY.render(records)[len('```text\n') : -len('```\n')]
  assert text in result.stdout
  rows = {r.case: r.record for r in records}
  own = rows['regression | sample_posterior']
  nuts = rows['regression | NUTS, windowed']
  assert own['converged'] and nuts['converged']
  assert _gap(own, nuts) < _MOST_ERRORS_OF_WEIGHTS
  schools = rows['eight schools | sample_posterior']
  assert schools['converged'] and abs(schools['worst_error'][0]) < 4.0


def _gap(row, other):
  """Returns the largest difference of means in combined standard errors."""
  gaps = [
    (row['means'][name][0] - mean) / np.hypot(row['means'][name][1], error)
    for name, (mean, error) in other['means'].items()
  ]
  return np.max(np.abs(gaps))
