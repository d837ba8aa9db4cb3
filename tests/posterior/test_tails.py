"""Pareto k of draws: of laws whose tails are known, heavy ones and light."""

import numpy as np
import pytest

from tfp_adaptive.posterior.judge import tails

_SHAPE = (1000, 4, 100)
_NUM_DRAWS = 4000.0


def _rng():
  return np.random.default_rng(0)


def _pareto(k, shape):
  """Generalized Pareto draws: above every threshold their k is the same."""
  return np.expm1(-k * np.log(_rng().uniform(size=shape))) / k


def _of(draws, size=_NUM_DRAWS):
  return tails.of_draws(draws, np.full(draws.shape[-1], size))


def _far(values, expected):
  """Returns how many standard errors the mean of estimates is away."""
  error = np.std(values) / np.sqrt(len(values))
  return np.abs(np.mean(values) - expected) / error


@pytest.mark.parametrize('k', [-0.3, 0.1, 0.5, 1.0])
def test_the_shape_of_exact_draws_is_found(k):
  m, prior = 400, 10.0
  found = tails.shape(np.sort(_pareto(k, [300, m]), axis=1))
  plain = found + (found - 0.5) * prior / m  # Without the prior's ten draws.
  # The bias of the estimate is of order 1 / m.
  assert np.abs(plain.mean() - k) < 0.02 + 4.0 * plain.std() / np.sqrt(300)
  assert plain.std() == pytest.approx(abs(1.0 + k) / np.sqrt(m), rel=0.35)
  assert _far(plain, k + 0.1) > 10.0


@pytest.mark.parametrize('sign', [-1.0, 1.0])
def test_the_heavier_of_both_tails_counts(sign):
  draws = sign * _pareto(0.4, _SHAPE) + 3.0
  found = _of(draws)
  assert abs(found.value.mean() - 0.4) < 0.04
  assert not found.is_heavy[0].any()


@pytest.mark.parametrize('degrees', [1, 2, 4])
def test_of_student_draws_k_is_one_in_the_degrees(degrees):
  found = _of(_rng().standard_t(degrees, size=_SHAPE))
  assert found.value.mean() == pytest.approx(1.0 / degrees, abs=0.06)
  mean, variance = found.is_heavy.mean(axis=1)
  assert mean > 0.98 if degrees == 1 else mean < 0.1
  assert variance < 0.1 if degrees == 4 else variance > 0.95


@pytest.mark.parametrize('kind', ['normal', 'uniform', 'exponential'])
def test_light_tails_are_not_heavy(kind):
  found = _of(getattr(_rng(), kind)(size=_SHAPE))
  assert found.value.max() < 0.3 and found.square.max() < 0.6
  assert not found.is_heavy.any()


def test_squares_of_the_neck_of_a_funnel_are_heavy_and_values_less():
  rng = _rng()
  scale = np.exp(1.5 * rng.normal(size=_SHAPE))
  found = _of(scale * rng.normal(size=_SHAPE))
  mean, variance = found.is_heavy.mean(axis=1)
  assert variance > 0.95 and mean < 0.2


def test_correlated_draws_have_longer_tails_and_do_not_look_heavy():
  # The same 400 normal draws ten times: few tail draws are none of its own.
  few = _rng().normal(size=[400, 1, 300])
  found = _of(np.tile(few, [10, 1, 1]), 400.0)
  assert not found.is_heavy.any()
  alone = _of(few, 400.0)
  assert found.square.std() < 1.3 * alone.square.std()


def test_coordinates_of_all_sizes_are_those_of_one_at_a_time():
  draws = _rng().standard_t(3, size=[300, 2, 7])
  sizes = np.array([600.0, 50.0, 400.0, np.nan, 1e9, 30.0, 400.0])
  together = tails.of_draws(draws, sizes)
  for i in range(7):
    alone = tails.of_draws(draws[..., i : i + 1], sizes[i : i + 1])
    np.testing.assert_allclose(np.ravel(alone), np.stack(together)[:, i])


def test_places_and_scales_do_not_matter_however_large():
  draws = _rng().standard_t(3, size=[500, 2, 3])
  first, other = _of(draws), _of(1e200 * draws + 7e199)
  np.testing.assert_allclose(first.square, other.square, rtol=1e-6)
  np.testing.assert_allclose(first.value, other.value, rtol=1e-6)


@pytest.mark.parametrize(
  'draws',
  [np.ones([100, 4, 1]), np.zeros([5, 2, 1]), _rng().normal(size=[5, 2, 1])],
  ids=['still', 'short and still', 'short'],
)
def test_what_is_not_known_is_not_heavy(draws):
  found = _of(draws)
  assert np.isnan([found.value, found.square]).all()
  assert not found.is_heavy.any()


def test_the_bound_is_that_of_the_number_of_draws():
  # Equation 13: so many draws for a k, 10^(1 / (1 - k)), at most 0.7.
  np.testing.assert_allclose(
    tails.highest_k(np.array([100.0, 1000.0, 1e4])), [0.5, 2.0 / 3.0, 0.7]
  )
