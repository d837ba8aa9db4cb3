"""Drivers and exponents of conditional Gaussians are found, and the rest."""

import numpy as np
import pytest

from tests.contracts import targets
from tests.transport.maps import hierarchies
from tfp_adaptive.fits import conditional
from tfp_adaptive.fits import natural
from tfp_adaptive.fits import pairs as pairs_lib
from tfp_adaptive.fits import search as search_lib

_NUM_DRIVERS = 2


def _pairs(target, states):
  """Returns states and gradients, NumPy."""
  return tuple(x.numpy() for x in hierarchies.pairs(target, states)[:2])


def _fit(target, states, drivers=None, **form):
  """Returns drivers, exponents, the `Natural` and y + s."""
  return _fit_pairs(_pairs(target, states), drivers, **form)


def _fit_pairs(pairs, drivers=None, **form):
  first = [-1] * _NUM_DRIVERS if drivers is None else drivers
  drivers, exponents = search_lib.find(*pairs, first, **form)
  found = conditional.fit(*pairs, drivers, exponents, **form).natural
  return drivers, exponents, found, sum(natural.whitened(found, *pairs))


@pytest.mark.full
def test_a_hierarchy_is_exact_and_its_drivers_are_found():
  states = hierarchies.draw_hierarchy(
    np.random.default_rng(2), hierarchies.NUM_PAIRS
  )
  drivers, exponents, _, residuals = _fit(hierarchies.hierarchy, states)
  found = dict(zip(drivers, exponents))
  assert found == {1: -2.0, 0: 0.0}
  assert hierarchies.spread(residuals[:, 2:]) < 1e-2
  # Power: with the log scale alone the common mean is missed.
  *_, residuals = _fit(hierarchies.hierarchy, states, drivers=[1, -1])
  assert hierarchies.spread(residuals[:, 2:]) > 0.1


@pytest.mark.full
def test_two_drivers_that_help_only_together_are_found():
  # Where chains of a matrix go: the mouth, of effects about their mean.
  rng = np.random.default_rng(5)
  log_scale = 1.2 + 0.3 * rng.normal(size=(hierarchies.NUM_PAIRS, 1))
  mean = 4.0 + 3.0 * rng.normal(size=log_scale.shape)
  noise = rng.normal(size=(hierarchies.NUM_PAIRS, 8))
  states = np.concatenate(
    [mean, log_scale, mean + np.exp(log_scale) * noise], axis=1
  )
  drivers, exponents, _, residuals = _fit(hierarchies.schools, states)
  np.testing.assert_array_equal(drivers, [1, 0])
  np.testing.assert_array_equal(exponents, [-2.0, 0.0])
  assert hierarchies.spread(residuals[:, 2:]) < 1e-2
  # Power: neither alone is worth its place.
  pairs = pairs_lib.standardize(*_pairs(hierarchies.schools, states))
  search = search_lib._Search(pairs, True, False, False)
  none = np.array([-1, -1]), np.zeros(2)
  alone, together = (search.best(*none, is_two)[1] for is_two in (False, True))
  assert alone < 0.0 < together


@pytest.mark.parametrize('seed', range(4, 8))
def test_a_scale_is_seen_with_its_sign_beside_one_that_is_known(seed):
  # Residuals are least where the mean precision is right: of both signs.
  states = hierarchies.draw_walk(
    np.random.default_rng(seed), hierarchies.NUM_PAIRS
  )
  pairs = pairs_lib.standardize(*_pairs(hierarchies.walk, states), is_path=True)
  search = search_lib._Search(pairs, True, False, True)
  known = np.array([1, -1]), np.array([-2.0, 0.0])
  matrix = conditional.in_units(pairs, *known)
  first = conditional.start(pairs, known[0], matrix, is_path=True)
  explained, sign = search._dependence(search._fit(*known, first))
  assert explained[0] > 5.0 * np.max(explained[1:])
  assert sign[0] == -1.0


@pytest.mark.full
def test_a_funnel_is_exact_from_few_states_of_its_mouth_alone():
  rng = np.random.default_rng(2)
  states = hierarchies.draw_funnel(
    rng, 2.0 + rng.exponential(size=hierarchies.NUM_PAIRS)
  )
  drivers, exponents, found, residuals = _fit(hierarchies.funnel, states)
  np.testing.assert_array_equal(drivers, [0, -1])
  assert exponents[0] == -1.0
  assert hierarchies.spread(residuals) < 1e-2
  # The map is in units of the state: exact in the neck, where no state was.
  neck = _pairs(
    hierarchies.funnel,
    hierarchies.draw_funnel(rng, -3.0 - rng.exponential(size=50)),
  )
  assert hierarchies.spread(sum(natural.whitened(found, *neck))) < 1e-2
  # Power: with another driver much is left.
  *_, residuals = _fit(hierarchies.funnel, states, drivers=[1, -1])
  assert hierarchies.spread(residuals) > 0.3


def test_few_pairs_tell_what_they_hold():
  rng = np.random.default_rng(3)
  states = hierarchies.draw_funnel(
    rng, 3.0 * rng.normal(size=hierarchies.NUM_PAIRS)
  )
  pairs = _pairs(hierarchies.funnel, states)
  drivers, exponents, _, _ = _fit_pairs([rows[:150] for rows in pairs])
  np.testing.assert_array_equal(drivers, [0, -1])
  assert exponents[0] == -1.0
  # Too few to tell: none is looked for.
  drivers, *_ = _fit_pairs([rows[:50] for rows in pairs])
  np.testing.assert_array_equal(drivers, [-1, -1])


def test_a_parabola_is_exact_where_means_may_bend():
  rng = np.random.default_rng(8)
  first = 3.0 * rng.normal(size=(hierarchies.NUM_PAIRS, 1))
  rest = rng.normal(size=(hierarchies.NUM_PAIRS, hierarchies.SIZE - 1))
  rest[:, :1] += 0.3 * first**2
  states = np.concatenate([first, rest], axis=1)
  drivers, *_, residuals = _fit(hierarchies.parabola, states, is_bent=True)
  assert 0 in drivers and hierarchies.spread(residuals) < 1e-2
  # Power: along a line it stays bent.
  *_, residuals = _fit(hierarchies.parabola, states, drivers=[0, -1])
  assert hierarchies.spread(residuals) > 0.1


def test_exponents_of_given_drivers_are_found():
  states = hierarchies.draw_hierarchy(
    np.random.default_rng(3), hierarchies.NUM_PAIRS
  )
  drivers, exponents, _, residuals = _fit(
    hierarchies.hierarchy, states, drivers=[0, 1]
  )
  np.testing.assert_array_equal(drivers, [0, 1])
  np.testing.assert_array_equal(exponents, [0.0, -2.0])
  assert hierarchies.spread(residuals[:, 2:]) < 1e-2


@pytest.mark.full
def test_a_random_walk_of_unknown_scales_is_exact_as_a_path():
  states = hierarchies.draw_walk(
    np.random.default_rng(4), hierarchies.NUM_PAIRS
  )
  drivers, exponents, found, residuals = _fit(
    hierarchies.walk, states, is_path=True
  )
  assert sorted(drivers) == [0, 1]
  np.testing.assert_array_equal(exponents, [-2.0, -2.0])
  assert hierarchies.spread(residuals[:, 2:]) < 1e-2
  # Without edges between neighbours it is not.
  *_, residuals = _fit(hierarchies.walk, states, drivers=[0, 1])
  assert hierarchies.spread(residuals[:, 2:]) > 0.3


@pytest.mark.parametrize('condition', [1.0, 100.0])
def test_a_normal_target_has_no_driver(condition):
  factor = targets.correlated_factor(hierarchies.SIZE, condition, seed=6)
  states = (
    np.random.default_rng(7).normal(
      size=(hierarchies.NUM_PAIRS, hierarchies.SIZE)
    )
    @ factor.T
  )
  inverse = np.linalg.inv(factor)
  drivers, *_ = _fit_pairs((states, -states @ inverse.T @ inverse))
  np.testing.assert_array_equal(drivers, [-1, -1])


@pytest.mark.full
def test_a_normal_target_has_no_driver_in_any_of_ten_samples():
  rng = np.random.default_rng(11)
  for num_pairs in (110, 150, 200, 300, 400) * 2:
    states = rng.normal(size=(num_pairs, hierarchies.SIZE))
    drivers, *_ = _fit(targets.standard_normal, states)
    np.testing.assert_array_equal(drivers, [-1, -1])
