"""Parts of the panel, by hand and by chance: errors, truths, what is left."""

import json

import numpy as np
import pytest

from experiments.run.errors import ConfigError
from experiments.samplers.base import Cost
from experiments.studies.panel import accuracy
from experiments.studies.panel import budget
from experiments.studies.panel import config as configs
from experiments.studies.panel import truth as truths
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


# A panel's config is refused before any computing, by key and value.


PANEL = configs.DEFAULT


@pytest.mark.parametrize(
  ('override', 'words'),
  [
    ('targets.0.name=Bananna', ['targets.0.name', "did you mean 'Banana'"]),
    ('methods.0.num_results=9', ['methods.0.num_results', 'one budget']),
    ('float64_targets=[banana]', ['float64_targets', "did you mean 'Banana'"]),
    ('gradients_of_target.Banana=9', ['gradients_of_target', '100']),
    ('targets.1.name=Banana', ["'Banana' is there 2 times"]),
  ],
)
def test_mistakes_are_named(override, words):
  with pytest.raises(ConfigError) as caught:
    configs.load_panel(PANEL, [override])
  for word in words:
    assert word in str(caught.value)
