"""Studies in small size: each measures what its pages show."""

import numpy as np
import pytest

from experiments.run.study import Work
from experiments.studies import front_door
from experiments.studies import right_answers


@pytest.mark.nightly
def test_the_front_door_is_judged_by_the_panel(tmp_path):
  settings = front_door.Choice()
  case = front_door.cases(settings)['IllConditionedGaussian']
  record = front_door.run(case, 0, Work(settings, tmp_path))
  assert record['converged'] and record['passes_gates']
  assert abs(record['z']) < 5.0
  assert record['num_gradients'] <= record['max_gradients']


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
