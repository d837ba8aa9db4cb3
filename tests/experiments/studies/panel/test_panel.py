"""Parts of the panel, by hand and by chance: errors, truths, what is left."""

import json

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from experiments.run.errors import ConfigError
from experiments.samplers.base import Cost
from experiments.studies import panel_references as reference
from experiments.studies.panel import accuracy
from experiments.studies.panel import brownian
from experiments.studies.panel import budget
from experiments.studies.panel import config as configs
from experiments.studies.panel import truth as truths
from experiments.studies.panel import volatility
from experiments.targets.base import BuildContext
from experiments.targets.base import Target
from experiments.targets.gym import TARGETS


def _truth(mean, deviation, standard_error=0.0):
  mean, deviation = np.asarray(mean, float), np.asarray(deviation, float)
  return truths.Truth(
    mean,
    deviation,
    np.full_like(mean, standard_error),
    mean**2 + deviation**2,
    truths.gaussian_variance_of_square(mean, deviation),
    'by hand',
    'by hand',
  )


def test_squared_bias_is_that_by_hand():
  # Two draws of two chains; E[x^2] = 1, Var[x^2] = 2.
  draws = np.array([[[1.0], [3.0]], [[1.0], [1.0]]])
  truth = _truth([0.0], [1.0])
  curve = accuracy.squared_bias_curve(draws, truth)
  assert curve.num_draws == [1, 2]
  # After one draw (1 + 9) / 2 = 5: (5 - 1)^2 / 2. After two, the mean of
  # squares is (1 + 9 + 1 + 1) / 4 = 3: (3 - 1)^2 / 2.
  np.testing.assert_allclose(curve.worst, [8.0, 2.0])


def test_the_curve_takes_the_worst_and_the_mean_of_coordinates():
  draws = np.random.default_rng(0).normal(size=(50, 3, 4)) * [1, 2, 3, 4]
  truth = _truth(np.zeros(4), np.ones(4))
  curve = accuracy.squared_bias_curve(draws, truth)
  for size, worst, mean in zip(*curve, strict=True):
    squares = np.square(draws[:size]).mean(axis=(0, 1))
    values = (squares - 1.0) ** 2 / 2.0
    np.testing.assert_allclose([worst, mean], [values.max(), values.mean()])


def test_one_over_squared_bias_counts_independent_draws():
  rng = np.random.default_rng(1)
  draws = 2.0 + 3.0 * rng.normal(size=(50, 4, 4000))
  truth = _truth(np.full(4000, 2.0), np.full(4000, 3.0))
  bias = accuracy.squared_bias_curve(draws, truth).mean[-1]
  # n b^2 is chi-squared with one degree: its mean has error sqrt(2 / 4000).
  assert abs(200 * bias - 1) < 5 * np.sqrt(2 / 4000)


def test_a_biased_chain_is_flagged_and_an_unbiased_one_is_not():
  rng = np.random.default_rng(2)
  draws = rng.normal(size=(2000, 4, 10))
  truth = _truth(np.zeros(10), np.ones(10))
  right = accuracy.worst_z(draws, truth)
  assert right.num_comparisons == 20
  assert abs(right.worst) < 4
  assert 0.4 < right.root_mean_square < 1.6
  draws[..., 3] += 0.2
  shifted = accuracy.worst_z(draws, truth)
  assert (shifted.moment, shifted.coordinate) == ('mean', 3)
  assert shifted.worst > 10
  draws[..., 3] = 1.3 * (draws[..., 3] - 0.2)
  widened = accuracy.worst_z(draws, truth)
  assert (widened.moment, widened.coordinate) == ('deviation', 3)
  assert widened.worst > 10


def test_only_moments_that_count_are_compared():
  draws = np.random.default_rng(3).normal(size=(500, 4, 3)) * [1.0, 2.0, 1.0]
  draws[..., 2] += 1.0
  truth = _truth(np.zeros(3), np.ones(3))
  found = accuracy.worst_z(draws, truth)
  assert (found.moment, found.coordinate) == ('mean', 2)
  counts = np.array([[True, True, False], [True, True, True]])
  found = accuracy.worst_z(draws, truth, counts)
  assert (found.moment, found.coordinate) == ('deviation', 1)
  assert found.num_comparisons == 5
  counts[1, 1] = False
  found = accuracy.worst_z(draws, truth, counts)
  assert found.num_comparisons == 4
  assert abs(found.worst) < 4 and found.root_mean_square < 2.0


def test_what_is_no_number_is_as_far_off_as_can_be_written():
  draws = np.full([8, 2, 1], np.nan)
  truth = _truth([0.0], [1.0])
  json.dumps(accuracy.worst_z(draws, truth)._asdict(), allow_nan=False)
  json.dumps(accuracy.squared_bias_curve(draws, truth), allow_nan=False)
  assert abs(accuracy.worst_z(draws, truth).worst) >= 1e6


@pytest.mark.parametrize(
  'name', ['Banana', 'NealsFunnel', 'IllConditionedGaussian']
)
def test_closed_forms_are_those_of_independent_draws(name):
  target = TARGETS._entries[name](name=name).build(BuildContext('float32'))
  truth = truths.load_truth(target, name, None)
  assert truth.square_source == 'closed form'
  rng = np.random.default_rng(3)
  size = 400_000
  if name == 'Banana':
    z = 10 * rng.normal(size=size)
    other = rng.normal(size=size) + 0.03 * (z**2 - 100)
    draws = np.stack([z, other], axis=-1)
    tolerance = 0.05
  elif name == 'NealsFunnel':
    # The others have no fourth moment that a run could find.
    draws = 3 * rng.normal(size=(size, 1))
    tolerance = 0.02
  else:
    draws = truth.deviation[:2] * rng.normal(size=(size, 2))
    tolerance = 0.02
  num = draws.shape[-1]
  np.testing.assert_allclose(
    np.square(draws).mean(0), truth.mean_of_square[:num], rtol=tolerance
  )
  np.testing.assert_allclose(
    np.square(draws).var(0), truth.variance_of_square[:num], rtol=tolerance
  )


def test_the_funnel_is_as_its_closed_form_has_it():
  # E[x^2] = E[e^z] = e^(9/2) by the gym, E[x^4] = 3 E[e^(2z)] = 3 e^18.
  target = TARGETS._entries['NealsFunnel'](name='NealsFunnel').build(
    BuildContext('float32')
  )
  truth = truths.load_truth(target, 'NealsFunnel', None)
  np.testing.assert_allclose(truth.mean_of_square[1:], np.exp(4.5), rtol=1e-5)
  np.testing.assert_allclose(
    truth.variance_of_square[1:], 3 * np.exp(18.0) - np.exp(9.0)
  )


def test_quadrature_finds_the_moments_of_a_gaussian_and_refuses_an_edge():
  mean, deviation = np.array([0.5, -1.0]), np.array([0.7, 1.1])

  def target(scale):
    def target_log_prob_fn(x):
      z = (x - mean) / (scale * deviation)
      return -0.5 * tf.reduce_sum(z**2, axis=-1)

    return Target('gaussian', target_log_prob_fn, 2, 'float64')

  found = reference.by_quadrature(target(1.0), size=401)
  np.testing.assert_allclose(found['mean'], mean, atol=1e-9)
  np.testing.assert_allclose(found['deviation'], deviation, atol=1e-9)
  np.testing.assert_allclose(
    found['variance_of_square'],
    truths.gaussian_variance_of_square(mean, deviation),
    atol=1e-8,
  )
  with pytest.raises(ConfigError, match='edge'):
    reference.by_quadrature(target(10.0), size=401)


def _reference(source, is_converged):
  return dict(
    source=source,
    is_converged=is_converged,
    mean=[3.0],
    deviation=[4.0],
    standard_error=[0.0],
    variance_of_square=[7.0],
    worst_mean_z_against_gym=20.0,
  )


def test_a_reference_that_did_not_converge_says_so():
  target = Target('x', None, 1, 'float32')
  truth = truths.load_truth(target, 'x', _reference('reference run', False))
  assert not truth.is_converged
  assert truth.mean_of_square == [25.0]
  assert truth.variance_of_square == [7.0]
  assert truths.load_truth(target, 'y', None) is None


@pytest.mark.parametrize(
  'source, mean, square',
  [('reference run', 1.0, 5.0), ('quadrature', 3.0, 25.0)],
)
def test_exact_moments_come_before_those_of_the_gym_and_a_run_after(
  source, mean, square
):
  known = {'x': tuple(np.array([v]) for v in (1.0, 2.0, 0.1))}
  target = Target('x', None, 1, 'float32', ground_truth=known)
  truth = truths.load_truth(target, 'x', _reference(source, True))
  assert (truth.mean, truth.mean_of_square) == ([mean], [square])
  assert (truth.variance_of_square, truth.gym_z) == ([7.0], 20.0)


def test_brownian_moments_are_those_of_dense_algebra():
  observed = np.array([0.3, np.nan, -0.5, 0.1])
  seen = ~np.isnan(observed)
  line = np.linspace(brownian._LOWEST, brownian._HIGHEST, 23)
  days = np.arange(1, 5)
  unit = np.minimum.outer(days, days)
  nodes, node_weights = np.polynomial.hermite_e.hermegauss(5)
  node_weights /= node_weights.sum()
  total, sums = 0.0, np.zeros([3, 6])
  for log_a in line:
    for log_s in line:
      a, s = np.exp([log_a, log_s])
      prior = a**2 * unit
      gain = np.linalg.solve(
        prior[np.ix_(seen, seen)] + s**2 * np.eye(3), prior[seen]
      ).T
      normal = stats.multivariate_normal(
        np.zeros(3), prior[np.ix_(seen, seen)] + s**2 * np.eye(3)
      )
      weight = normal.pdf(observed[seen])
      weight *= stats.norm.pdf(log_a, scale=2) * stats.norm.pdf(log_s, scale=2)
      mean = gain @ observed[seen]
      spread = np.sqrt(np.diag(prior - gain @ prior[seen]))
      fourth = (mean[:, None] + spread[:, None] * nodes) ** 4 @ node_weights
      total += weight
      sums += weight * np.stack(
        [
          [a, *mean, s],
          [a**2, *(mean**2 + spread**2), s**2],
          [a**4, *fourth, s**4],
        ]
      )
  np.testing.assert_allclose(
    brownian.moments_of(observed, 23), sums / total, rtol=1e-7
  )


def test_moments_of_volatility_are_those_of_sums_over_paths():
  points = volatility.Points(
    persistence=np.array([0.5, 0.8, 0.9, 0.8]),
    scale=np.array([0.4, 0.7, 0.5, 0.7]),
    mean=np.array([8.0, 8.5, 9.5, 9.0]),
    log_prior=np.array([0.0, -1.0, -0.5, 0.3]),
    is_coarse=np.array([True, False, True, True]),
  )
  squares = np.array([2e3, 3e4])
  line = np.linspace(0.0, 20.0, 401)
  first, second = np.meshgrid(line, line, indexing='ij')
  values, weights = [], []
  for phi, sigma, mu, log_prior, _ in zip(*points, strict=True):
    density = np.exp(log_prior)
    density *= stats.norm.pdf(first, mu, sigma / np.sqrt(1 - phi**2))
    density *= stats.norm.pdf(second, mu + phi * (first - mu), sigma)
    for path, square in ((first, squares[0]), (second, squares[1])):
      density *= stats.norm.pdf(np.sqrt(square), scale=np.exp(path / 2))
    weights.append(density.sum())
    paths = [
      [(density * path**power).sum() for path in (first, second)]
      for power in (1, 2, 4)
    ]
    rest = [np.array([mu, phi, sigma]) ** power for power in (1, 2, 4)]
    values.append(np.hstack([paths, density.sum() * np.stack(rest)]))
  found, _ = volatility.moments_of(squares, points, 4, 5000)
  for half, chosen in enumerate((slice(None), points.is_coarse)):
    total = np.sum(np.array(weights)[chosen])
    exact = np.sum(np.array(values)[chosen], axis=0) / total
    np.testing.assert_allclose(found[:, half].mean(axis=0), exact, rtol=5e-3)


def test_every_method_spends_the_same():
  config = configs.load_panel(configs.DEFAULT).config
  total = config.gradients_per_chain
  for adapting, frozen in (
    (Cost(1, 1, 0), Cost(1, 1, 0)),
    (Cost(1, 1, 1), Cost(1, 1, 0)),
    (Cost(5, 5, 7), Cost(5, 5, 0)),
    (Cost(1, 0, 0), Cost(1, 0, 0)),
  ):
    costs = budget.units(adapting), budget.units(frozen)
    steps, results = budget.step_counts(config, *costs)
    assert total - sum(costs) < steps * costs[0] + results * costs[1] <= total
