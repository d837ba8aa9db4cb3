"""Data whose support depends on an unknown: the density ends where they do.

Expected values come from quadrature over the closed form of each posterior.
"""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from tfp_adaptive.posterior.model import bounds
from tfp_adaptive.posterior.model import data
from tfp_adaptive.posterior.model import exact
from tfp_adaptive.posterior.model import problem as problem_lib

tfb = tfp.bijectors
tfd = tfp.distributions

_Y = (3 + np.random.default_rng(4).exponential(2.0, 25)).astype(np.float32)
_U = (7 * np.random.default_rng(5).uniform(size=25)).astype(np.float32)
_WIDE = stats.norm(0.0, 10.0)


def _auto(prior, law):
  """A vectorized model of an unknown x and its data y."""

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    x = yield tfd.TransformedDistribution(prior, tfb.Identity(), name='x')
    yield tfd.Independent(law(x), name='y', reinterpreted_batch_ndims=0)

  return model


def _named(prior, law):
  return tfd.JointDistributionNamed(dict(x=prior, y=law))


def _shifted(base):
  return lambda x: tfd.Sample(tfb.Shift(x)(base), 25)


def _independent_pareto(x):
  loc = x * tf.ones(25)
  return tfd.Independent(tfd.GeneralizedPareto(loc, 2.0, 0.1), 1)


def _inside(x):
  return tfd.JointDistributionNamedAutoBatched(
    dict(a=tfd.Sample(tfb.Shift(x)(tfd.Exponential(0.5)), 25))
  )


def _exponential(x):
  return np.where(x < _Y.min(), 0.5 * 25 * x, -np.inf)


def _inflated(x):
  inner = tfb.Shift(x)(tfd.Exponential(0.5))
  return tfd.Sample(
    tfd.Inflated(inner, inflated_loc_probs=0.3, inflated_loc=0.0), 27
  )


_NORMAL = tfd.Normal(0.0, 10.0)
# Model, data, log prior and log likelihood, and whether x is bounded.
_MODELS = dict(
  start=(_auto(_NORMAL, _shifted(tfd.Exponential(0.5))), _Y, _exponential),
  gamma=(_auto(_NORMAL, _shifted(tfd.Gamma(1.0, 0.5))), _Y, _exponential),
  chi2=(_auto(_NORMAL, _shifted(tfd.Chi2(2.0))), _Y, _exponential),
  weibull=(_auto(_NORMAL, _shifted(tfd.Weibull(1.0, 2.0))), _Y, _exponential),
  plain=(_named(_NORMAL, _shifted(tfd.Exponential(0.5))), _Y, _exponential),
  inside=(_named(_NORMAL, _inside), dict(a=_Y), _exponential),
  pareto=(
    _auto(_NORMAL, _independent_pareto), _Y,
    lambda x: stats.genpareto(0.1, x[:, None], 2.0).logpdf(_Y).sum(-1),
  ),
  inflated=(
    _auto(_NORMAL, _inflated), np.concatenate([_Y, np.zeros(2, np.float32)]),
    _exponential,
  ),
  half_cauchy=(
    _auto(_NORMAL, lambda x: tfd.Sample(tfd.HalfCauchy(x, 2.0), 25)), _Y,
    lambda x: stats.halfcauchy(x[:, None], 2.0).logpdf(_Y).sum(-1),
  ),
)  # fmt: skip
_SCALES = dict(
  beta=lambda x: tfd.Sample(tfb.Scale(x)(tfd.Beta(1.0, 1.0)), 25),
  kumaraswamy=lambda x: tfd.Sample(tfb.Scale(x)(tfd.Kumaraswamy(1.0, 1.0)), 25),
  uniform=lambda x: tfd.Sample(tfd.Uniform(0.0, x), 25),
)


def _mean_of(problem, name='x'):
  """Returns the posterior mean of the one unknown, by quadrature."""
  w = np.linspace(-25.0, 12.0, 20_001, dtype=np.float32)[:, np.newaxis]
  value = np.asarray(problem.target_log_prob_fn(tf.constant(w)), np.float64)
  state = problem.constrain(tf.constant(w))
  state = state if isinstance(state, dict) else state._asdict()
  x = np.asarray(state[name], np.float64)
  weight = np.exp(value - np.nanmax(value))
  weight = np.where(np.isfinite(weight * x), weight, 0)
  x = np.where(np.isfinite(x), x, np.sign(x) * 1e30)
  return np.sum(weight * x) / np.sum(weight), x


@pytest.mark.parametrize('name', _MODELS)
def test_an_unknown_is_never_where_its_data_cannot_be(name):
  model, y, log_likelihood = _MODELS[name]
  part = data.parts_and_events(model)[0][-1]
  problem = problem_lib.of_joint(model, {part: y})
  mean, x = _mean_of(problem)
  grid = np.linspace(-10, _Y.min(), 400_001)
  log_p = np.concatenate(
    [log_likelihood(row) for row in np.array_split(grid, 40)]
  )
  log_p = log_p + _WIDE.logpdf(grid)
  weight = np.exp(log_p - log_p[np.isfinite(log_p)].max())
  weight = np.where(np.isfinite(weight), weight, 0)
  assert mean == pytest.approx(np.sum(weight * grid) / np.sum(weight), abs=2e-3)
  assert np.all(x <= _Y.min())


@pytest.mark.parametrize('name', _SCALES)
def test_a_scale_is_never_below_its_data(name):
  model = _auto(tfd.LogNormal(1.0, 2.0), _SCALES[name])
  part = data.parts_and_events(model)[0][-1]
  problem = problem_lib.of_joint(model, {part: _U})
  mean, x = _mean_of(problem)
  grid = np.exp(np.linspace(np.log(_U.max()), 6, 200_001))
  # By log x: a normal prior of it, and x^-25.
  weight = stats.norm(1.0, 2.0).pdf(np.log(grid)) * (grid / grid[0]) ** -25
  assert mean == pytest.approx(np.sum(weight * grid) / np.sum(weight), rel=2e-3)
  assert np.all(x >= _U.max() * (1 - 1e-6))


def test_the_density_of_tfp_goes_on_where_the_data_cannot_be():
  model, y, _ = _MODELS['start']
  pinned = model.experimental_pin(y=y)
  x = tf.constant([2.0, 50.0])
  assert np.all(np.isfinite(pinned.unnormalized_log_prob(x)))
  found = exact.density(pinned, frozenset({'y'}), ('x', 'y'))
  value, gradient = tfp.math.value_and_gradient(
    lambda x: found(type(pinned.event_shape)(x)), x
  )
  assert np.isfinite(value[0]) and value[1] == -np.inf
  np.testing.assert_allclose(
    value[0], pinned.unnormalized_log_prob(x)[0], rtol=1e-5
  )
  np.testing.assert_allclose(gradient, [0.5 * 25 - 0.02, -0.5], rtol=1e-5)


def test_data_without_such_a_support_leave_the_model_alone():
  for law in (
    lambda x: tfd.Sample(tfd.Exponential(tf.exp(x)), 25),
    lambda x: tfd.Sample(tfb.Shift(x)(tfd.Normal(0.0, 1.0)), 25),
    lambda x: tfd.Sample(tfd.LogNormal(x, 1.0), 25),
    lambda x: tfd.Sample(tfd.Poisson(log_rate=x), 25),
  ):
    model = _auto(_NORMAL, law)
    part = data.parts_and_events(model)[0][-1]
    found = data.checked(model, {part: np.ceil(_Y)})
    assert not found.inexact and not found.bounding


def test_components_have_no_density_outside_of_their_support():
  def law(x):
    locs = tf.stack([0.0, x])
    parts = tfb.Shift(locs)(tfd.Exponential([0.5, 2.0]))
    weights = tfd.Categorical(probs=[0.25, 0.75])
    return tfd.Sample(tfd.MixtureSameFamily(weights, parts), 25)

  model = _auto(_NORMAL, law)
  part = data.parts_and_events(model)[0][-1]
  problem = problem_lib.of_joint(model, {part: _Y})
  x = np.linspace(-3, 12, 31, dtype=np.float32)
  found = problem.target_log_prob_fn(tf.constant(x[:, np.newaxis]))
  one = stats.expon(0, 2).pdf(_Y)
  two = stats.expon(x[:, np.newaxis], 0.5).pdf(_Y)
  expected = np.log(0.25 * one + 0.75 * two).sum(-1) + _WIDE.logpdf(x)
  np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_component_that_fixed_data_are_out_of_has_no_density_either():
  def law(x):
    weights = tfd.Categorical(probs=[0.5, 0.5])
    parts = [tfd.Exponential(tf.exp(x)), tfd.Normal(0.0, 1.0)]
    return tfd.Mixture(weights, parts)

  problem = problem_lib.of_joint(_auto(_NORMAL, law), dict(y=-2.0))
  found = problem.target_log_prob_fn(tf.constant([[0.0], [1.0]]))
  expected = np.log(0.5) + stats.norm.logpdf(-2.0) + _WIDE.logpdf([0.0, 1.0])
  np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_labels_that_a_component_does_not_have_have_no_density_in_it():
  def law(x):
    weights = tfd.Categorical(probs=[0.5, 0.5])
    parts = [tfd.Bernoulli(x), tfd.Categorical(probs=[0.2, 0.3, 0.5])]
    return tfd.Mixture(weights, parts)

  problem = problem_lib.of_joint(_auto(_NORMAL, law), dict(y=2))
  found = problem.target_log_prob_fn(tf.constant([[0.0], [1.0]]))
  expected = np.log(0.5 * 0.5) + _WIDE.logpdf([0.0, 1.0])
  np.testing.assert_allclose(found, expected, rtol=1e-5)


def _window():
  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    start = yield tfd.Normal(0.0, 10.0, name='start')
    length = yield tfd.LogNormal(1.0, 2.0, name='length')
    inside = tfb.Shift(start)(tfb.Scale(length)(tfd.Beta(1.0, 1.0)))
    yield tfd.Sample(inside, 25, name='y')

  return model


def test_bounds_that_depend_on_each_other_are_walls():
  problem = problem_lib.of_joint(_window(), dict(y=_U))
  # The window [-1, -1 + exp(z)] holds the data, which end at 7, or does not.
  z = np.float32([[-1.0, 3.0], [-1.0, 1.0], [1.0, 3.0]])
  found = np.asarray(problem.target_log_prob_fn(tf.constant(z)))
  assert np.isfinite(found[0]) and np.all(found[1:] == -np.inf)
  expected = -25 * 3.0 + _WIDE.logpdf(-1) + stats.norm(1, 2).logpdf(3.0)
  assert found[0] == pytest.approx(expected, rel=1e-5)


def test_an_unknown_above_another_one_has_a_map_that_moves_with_it():
  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    a = yield tfd.Normal(0.0, 1.0, name='a')
    b = yield tfb.Shift(a)(tfd.Exponential(1.0, name='b'))
    yield tfd.Normal(b, 1.0, name='y')

  problem = problem_lib.of_joint(model, dict(y=1.0))
  z = np.float32([[0.0, 0.0], [3.0, -2.0], [-2.0, 1.0]])
  state = problem.constrain(tf.constant(z))
  np.testing.assert_allclose(state[1], z[:, 0] + np.exp(z[:, 1]), rtol=1e-6)
  expected = stats.norm.logpdf(z[:, 0]) - np.exp(z[:, 1]) + z[:, 1]
  expected += stats.norm.logpdf(1.0, z[:, 0] + np.exp(z[:, 1]))
  found = problem.target_log_prob_fn(tf.constant(z))
  np.testing.assert_allclose(found, expected, rtol=1e-5)


def _intervals(is_possible, rows):
  is_finite = lambda z: np.all(np.isfinite(z), axis=-1)
  which = np.arange(rows.shape[-1])
  return bounds.intervals(is_possible, is_finite, rows, which)


@pytest.mark.parametrize('size', [2, 30])
def test_a_box_is_no_map_if_the_data_are_possible_outside_of_it(size):
  rows = np.random.default_rng(0).normal(size=[64, size])
  # A union of half-spaces, and two pieces.
  one_of_two = lambda z: np.any(z[:, :2] >= 0.5, axis=-1)
  assert _intervals(one_of_two, rows) is None
  apart = lambda z: np.abs(z[:, 0]) >= 0.5
  assert _intervals(apart, rows) is None
  # The same if all candidates are in one piece.
  assert _intervals(apart, np.abs(rows)) is None
  # Overflow, where everything counts as possible, is not outside.
  half = lambda z: (z[:, 0] >= 0.5) | (z[:, 0] < -20)
  bounded = bounds.intervals(
    half, lambda z: z[:, 0] > -20, rows, np.arange(size)
  )
  assert bounded is not None


def test_unknowns_reach_all_pieces_where_the_data_are_possible():
  law = lambda x: tfd.Sample(tfd.Uniform(0.0, tf.abs(x)), 25)
  model = _auto(_NORMAL, law)
  for init in (None, dict(x=np.float32([8.0, 9.0]))):
    problem = problem_lib.of_joint(model, dict(y=_U), init, 2)
    mean, x = _mean_of(problem)
    assert mean == pytest.approx(0, abs=0.01) and np.min(x) < -10


def test_intervals_are_found_where_a_box_is_possible():
  low, high = np.float64([-np.inf, 1.0, -3.0]), np.float64([5.0, np.inf, 40.0])
  rows = np.random.default_rng(0).normal(size=[64, 3]) * 3

  def in_box(z):
    return np.all((z >= low) & (z <= high), axis=-1)

  found = _intervals(in_box, rows)
  ends = found.forward(np.float64([[-30.0] * 3, [30.0] * 3]))
  np.testing.assert_allclose(ends[0, 1:], low[1:], atol=1e-9)
  np.testing.assert_allclose(ends[0, 0], 5 - np.exp(-30), atol=1e-9)
  np.testing.assert_allclose(ends[1, 2], high[2], atol=1e-9)
  # A triangle is no box, and a plane has no ends.
  triangle = lambda z: np.sum(z, axis=-1) <= 1
  assert _intervals(triangle, rows) is None
  plane = lambda z: np.ones(len(z), bool)
  assert _intervals(plane, rows) is None


def test_starts_that_are_given_must_be_where_the_data_are_possible():
  model, y, _ = _MODELS['start']
  starts = np.float32([2.0, 1.0, -5.0, 3.0])
  problem = problem_lib.of_joint(model, dict(y=y), dict(x=starts), 4)
  found = problem.constrain(problem.draw_starts(4, None))
  np.testing.assert_allclose(found.x, starts, rtol=1e-6)
  starts[1] = 4.0
  with pytest.raises(ValueError, match='`init` of chain 1 .*impossible'):
    problem_lib.of_joint(model, dict(y=y), dict(x=starts), 4)
