"""Fits in NumPy: against compiled maps, dense algebra, and derivatives."""

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import targets
from tests.transport.maps import hierarchies
from tfp_adaptive.fits import conditional
from tfp_adaptive.fits import factors
from tfp_adaptive.fits import matrix
from tfp_adaptive.fits import natural
from tfp_adaptive.fits import natural as natural_lib
from tfp_adaptive.fits import pairs as pairs_lib
from tfp_adaptive.fits import search
from tfp_adaptive.fits import search as search_lib
from tfp_adaptive.linear import fisher_fit
from tfp_adaptive.preconditioners import cholesky
from tfp_adaptive.transport import maps

_SIZE = 6


def _pairs(target, states):
  """Returns states and gradients, float64."""
  pairs = hierarchies.pairs(target, states)[:2]
  return tuple(np.asarray(rows, np.float64) for rows in pairs)


def _drawn(draw, seed, count=hierarchies.NUM_PAIRS):
  return draw(np.random.default_rng(seed), count)


def _walk(seed=0):
  """Returns pairs of two log scales and a walk whose steps differ."""
  return _pairs(hierarchies.walk, _drawn(hierarchies.draw_walk, seed, 2000))


@pytest.fixture(scope='module')
def pairs():
  states = _drawn(hierarchies.draw_hierarchy, 0, 2000)
  return _pairs(hierarchies.hierarchy, states)


_FORMS = {
  'straight': {},
  'bent': dict(is_bent=True),
  'path': dict(is_path=True),
  'bent path': dict(is_bent=True, is_path=True),
}


@pytest.fixture(scope='module', params=_FORMS)
def fitted(request, pairs):
  form = _FORMS[request.param]
  pairs = _walk() if 'is_path' in form else pairs
  found = search.find(*pairs, [-1] * 3, **form)
  return form, pairs, conditional.fit(*pairs, *found, **form)


def test_a_map_is_that_of_compiled_kernels(fitted):
  form, pairs, found = fitted
  transport = maps.conditional_gaussian(
    num_drivers=3,
    bent=form.get('is_bent', False),
    structure='tridiagonal' if 'is_path' in form else 'diagonal',
  )
  assert set(found.natural.drivers) > ({0, 1} if 'is_path' in form else {1})
  params = transport.fit(None, *pairs)
  for ours, theirs in zip((*found.natural, found.factor), params, strict=True):
    np.testing.assert_array_equal(ours, theirs)
  bijector = transport.bijector(tf.nest.map_structure(tf.constant, params))
  rows = np.random.default_rng(1).normal(size=(5, _SIZE))
  states, log_det, _ = found.forward(rows)
  np.testing.assert_allclose(states, bijector.forward(rows), rtol=1e-8)
  expected = bijector.forward_log_det_jacobian(tf.constant(rows), 1)
  np.testing.assert_allclose(log_det, expected, rtol=1e-8)


def test_a_map_and_its_gradient_are_right_by_finite_differences(fitted):
  *_, params = fitted
  rng = np.random.default_rng(2)
  rows, scores = rng.normal(size=(2, 4, _SIZE))
  states, log_det, pull = params.forward(rows)
  np.testing.assert_allclose(params.inverse(states), rows, atol=1e-9)
  gradient, size = pull(scores), 1e-6
  jacobian = np.zeros([4, _SIZE, _SIZE])
  for i in range(_SIZE):
    moved = [params.forward(rows + s * np.eye(_SIZE)[i]) for s in (size, -size)]
    jacobian[:, :, i] = (moved[0][0] - moved[1][0]) / (2.0 * size)
    of_values = np.sum(scores * jacobian[:, :, i], axis=1)
    of_log_det = (moved[0][1] - moved[1][1]) / (2.0 * size)
    np.testing.assert_allclose(
      gradient[:, i], of_values + of_log_det, atol=1e-5
    )
  expected = np.linalg.slogdet(jacobian)[1]
  np.testing.assert_allclose(log_det, expected, atol=1e-6)


@pytest.mark.parametrize('signs', [1.0, -1.0, [1.0, -1.0]])
def test_the_factor_of_a_path_is_that_of_the_dense_precision(signs):
  rng = np.random.default_rng(5)
  slack, edge = rng.uniform(size=(2, 2, _SIZE))
  edge = np.transpose(np.transpose(edge) * signs)
  edge[:, -1] = 0.0
  terms = rng.uniform(size=(3, 2))
  natural = natural_lib.of_scale(_SIZE, [], is_path=True)
  lower = factors.of_terms(natural._replace(slack=slack, edge=edge), terms)
  rows = rng.normal(size=(3, _SIZE))
  for row in range(3):
    precision = np.zeros([_SIZE, _SIZE])
    for term, r, w in zip(terms[row], slack, edge):
      precision += term * np.diag(r)
      for t in range(_SIZE - 1):
        end = np.eye(_SIZE)[t] - np.sign(w[t]) * np.eye(_SIZE)[t + 1]
        precision += term * abs(w[t]) * np.outer(end, end)
    dense = np.linalg.cholesky(precision)
    np.testing.assert_allclose(lower.diagonal[row], np.diag(dense), rtol=1e-10)
    for found, matrix_of in (
      (lower.multiply_adjoint(rows), dense.T),
      (lower.solve(rows), np.linalg.inv(dense)),
      (lower.solve_adjoint(rows), np.linalg.inv(dense).T),
    ):
      np.testing.assert_allclose(found[row], matrix_of @ rows[row], rtol=1e-9)


def test_the_scores_of_a_walk_are_exact_behind_its_path():
  params = conditional.fit(
    *_walk(), np.array([0, 1]), np.array([-2.0, -2.0]), is_path=True
  )
  rows, scores = params.whitened(*_walk(seed=1))
  assert hierarchies.spread((rows + scores)[:, 2:]) < 1e-2


@pytest.mark.parametrize('count', [2, 10, 500])
def test_a_matrix_is_that_of_the_compiled_fit(count):
  rng = np.random.default_rng(3)
  mix = rng.normal(size=(_SIZE, _SIZE))
  states = rng.normal(size=(count, _SIZE)) @ mix.T
  scores = -states @ np.linalg.inv(mix @ mix.T) + 0.1 * rng.normal(
    size=(count, _SIZE)
  )
  part = cholesky()
  start = part.init(_SIZE, tf.float64, tf.ones([], tf.float64))
  equal = tf.fill([count], tf.constant(1.0 / count, tf.float64))
  expected = fisher_fit.fit(part, start, states, scores, equal)
  found = matrix.fit(states, scores)
  np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_a_matrix_of_rows_that_do_not_move_is_none():
  still = np.zeros([100, _SIZE])
  assert not np.all(np.isfinite(matrix.fit(still, still)))


def test_a_diagonal_is_that_of_spreads():
  rng = np.random.default_rng(4)
  scales = 10.0 ** np.arange(_SIZE)
  states = 5.0 + scales * rng.normal(size=(4000, _SIZE))
  scores = -(states - 5.0) / scales**2
  np.testing.assert_allclose(
    matrix.fit_diagonal(states, scores), scales, rtol=1e-9
  )


# Places of rows: of those that drivers explain, and of those they do not.


_SIZE_CONDITIONAL, _CONDITION = 25, 1e5


def _fitted(pairs, drivers, exponents):
  """Returns the `Natural` of drivers that are given."""
  found = conditional.fit(*pairs, np.array(drivers), np.array(exponents))
  return found.natural


def _far_normal(num_pairs, seed):
  """Returns C and the mean of a Gaussian, and exact pairs of it."""
  rng = np.random.default_rng(seed)
  factor = targets.correlated_factor(_SIZE_CONDITIONAL, _CONDITION, seed)
  mean = (
    30.0 * np.linalg.norm(factor, axis=1) * rng.normal(size=_SIZE_CONDITIONAL)
  )
  noise = rng.normal(size=(num_pairs, _SIZE_CONDITIONAL))
  scores = -np.linalg.solve(factor.T, noise.T).T
  return factor, mean, (mean + noise @ factor.T, scores)


def test_the_center_is_the_mean_of_a_correlated_normal():
  num_pairs = 400
  factor, mean, pairs = _far_normal(num_pairs, seed=1)
  for driver in (-1, 3):
    found = _fitted(pairs, [driver], [0.0])
    center, _ = natural.forward(found, np.zeros([1, _SIZE_CONDITIONAL]))
    error = np.linalg.solve(factor, center[0] - mean)
    # The mean of the states alone has the error sqrt(d / n).
    assert np.linalg.norm(error) < 20.0 * (_SIZE_CONDITIONAL / num_pairs) ** 0.5


def test_rows_that_drivers_explain_are_placed_by_scores_alone():
  # Chains that have not come to rest: states beside their conditional means.
  states = _drawn(hierarchies.draw_hierarchy, 3)
  states[:, 2:] += 2.0
  pairs = _pairs(hierarchies.hierarchy, states)
  found = _fitted(pairs, [0, 1], [0.0, -2.0])
  mean, prior = states[:, :1], np.exp(-2.0 * states[:, 1:2])
  observed = np.arange(1.0, hierarchies.SIZE - 1.0)
  expected = (prior * mean + observed) / (prior + 1.0)
  is_driver = np.arange(hierarchies.SIZE) < 2
  at_zero = natural.inverse(found, pairs[0]) * is_driver
  centers = natural.forward(found, at_zero)[0][:, 2:]
  np.testing.assert_allclose(centers, expected, atol=2e-3)


@pytest.mark.parametrize('noise', [0.3, 1.0, 3.0])
def test_states_and_scores_count_by_what_they_tell(noise):
  # For x ~ N(0, 1) and g = -x + N(0, noise^2), the best place has the variance
  # 1 / n (1 + 1 / noise^2).
  num_pairs, size = 200, 400
  rng = np.random.default_rng(4)
  x = rng.normal(size=(num_pairs, size))
  g = noise * rng.normal(size=x.shape) - x
  found = _fitted([x, g], [-1], [0.0])
  place = found.mean + np.exp(found.log_scale) * (
    found.offset[0] / found.slack[0]
  )
  best = 1.0 / (num_pairs * (1.0 + noise**-2))
  # Pairs that are odd count for less: some are lost.
  assert 0.8 < np.mean(place**2) / best < 1.3


@pytest.mark.parametrize('is_path', [False, True])
def test_normal_equations_are_those_of_every_row_by_itself(is_path):
  rng = np.random.default_rng(5)
  states, scores = rng.normal(size=(2, 60, 5))
  pairs = pairs_lib.standardize(states, scores, is_path=is_path)
  drivers, exponents = np.array([1]), np.array([0.5])
  matrix = conditional.in_units(pairs, drivers, exponents)
  first = conditional.start(pairs, drivers, matrix, True, is_path)
  problem = conditional._Regression(
    pairs, np.full([60], 1.0 / 60.0), drivers, matrix, first
  )
  share = rng.uniform(size=states.shape)
  system = problem._system(share)
  x, g = pairs.states, pairs.scores
  u = x[:, 1]
  growth = np.exp(matrix[1, 0] * u)
  others = np.where(np.arange(5) == 1, 0.0, x)
  beside = np.pad(others, [[0, 0], [1, 1]])
  for j in (0, 2, 4):
    own = [-x[:, j], beside[:, j], beside[:, j + 2]][: 3 if is_path else 1]
    columns = [u**0, u, u**2, growth, growth * u]
    columns += [part * term for part in own for term in (u**0, growth)]
    features = np.stack(columns, axis=1)
    normal = features.T @ (share[:, j, np.newaxis] * features)
    right = features.T @ (share[:, j] * g[:, j])
    # But for the ridge; what no pair has is zero.
    normal += np.diag(np.diag(normal) == 0.0)
    np.testing.assert_allclose(system[j, :, :-1], normal, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(system[j, :, -1], right, rtol=1e-9, atol=1e-12)


def test_precisions_that_come_out_negative_are_left_out():
  gram = np.array([[1.0, 0.9], [0.9, 1.0]])
  right = np.array([1.0, 0.2])
  assert np.linalg.solve(gram, right)[1] < 0.0
  system = np.concatenate([gram, right[:, np.newaxis]], axis=1)[np.newaxis]
  found = conditional._positive(system, 2)
  np.testing.assert_allclose(found[0, :, 0], [1.0, 0.0], atol=1e-12)
  assert conditional._positive(np.array([[[1.0, -1.0]]]), 1) == 0.0


def _scales_beside_a_neck(rng, log_scale, count, dtype):
  """Returns the first log scale without and with a chain that is stuck."""

  def draw(log_scale, mean):
    noise = np.exp(log_scale) * rng.normal(size=(len(mean), 8))
    return np.concatenate([mean, log_scale, mean + noise], axis=1)

  log_scales, means = rng.normal(size=(2, 400, 1))
  wide = draw(1.0 + 0.5 * log_scales, 4.0 + 3.0 * means)
  # All of a chain that is stuck are one.
  stuck = draw(np.full((1, 1), log_scale), np.full((1, 1), 7.0))
  both = np.concatenate([wide, np.repeat(stuck, count, axis=0)])
  return [
    _fitted(
      _pairs(hierarchies.schools, states.astype(dtype)), [1, 0], [-2.0, 0.0]
    ).log_scale[0]
    for states in (wide, both)
  ]


@pytest.mark.full
@pytest.mark.parametrize(
  'log_scale, count, dtype, summary, bound',
  [
    (-6.0, 20, np.float64, np.max, 0.005),
    (-9.0, 3, np.float64, np.max, 0.005),
    (-6.0, 20, np.float32, np.max, 0.1),
    # Densities in float32 round precisions of e^12 and more there, and effects
    # of 1e-4; how differs by processor: single runs are off by 0 to 0.2.
    (-9.0, 3, np.float32, np.median, 0.1),
  ],
)
def test_pairs_far_down_a_neck_do_not_spoil_the_rest(
  log_scale, count, dtype, summary, bound
):
  off = [
    np.subtract(
      *_scales_beside_a_neck(
        np.random.default_rng(seed), log_scale, count, dtype
      )
    )
    for seed in range(7, 12)
  ]
  assert summary(np.abs(off)) < bound


# Drivers and exponents of conditional Gaussians are found, and the rest.


_NUM_DRIVERS = 2


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
  states = _drawn(hierarchies.draw_hierarchy, 2)
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
  fitted = search.fit(*none, search.start(*none))
  alone, together = (
    search.best(*none, fitted, is_two)[1] for is_two in (False, True)
  )
  assert alone < 0.0 < together


@pytest.mark.parametrize('slope', [0.0, 0.2])
def test_an_effect_instead_of_the_common_mean_is_replaced(slope):
  states = _drawn(hierarchies.draw_hierarchy, 3)
  states, scores = map(np.copy, _pairs(hierarchies.hierarchy, states))
  # Coordinate 0 is the mean, 1 the log scale, and 4 an effect. C represents
  # linear dependence, so the slope is no reason to keep the effect.
  others = np.isin(np.arange(states.shape[1]), [0, 1, 4], invert=True)
  states[:, others] += slope * states[:, 4:5]
  scores[:, 4] -= slope * np.sum(scores[:, others], axis=1)
  pairs = pairs_lib.standardize(states, scores)
  search = search_lib._Search(pairs, True, False, False)
  effect, mean = (
    (np.array([1, driver]), np.array([-2.0, 0.0])) for driver in (4, 0)
  )
  fitted = search.fit(*effect, search.fit(*effect, search.start(*effect)))
  change, worth = search.best(*effect, fitted, is_two=False)
  np.testing.assert_array_equal(change.of(*effect), mean)
  assert worth > 0.0
  fitted = search.fit(*mean, search.start(*mean))
  assert search.best(*mean, fitted, is_two=False)[1] < 0.0
  # A driver is not replaced by itself.
  tried = search._tried(fitted, *mean, is_two=False)
  assert search_lib._Change(1, 4, 0.0) in tried
  assert search_lib._Change(1, 0, 0.0) not in tried


@pytest.mark.parametrize('seed', range(4, 8))
def test_a_scale_is_seen_with_its_sign_beside_one_that_is_known(seed):
  # Residuals are least where the mean precision is right: of both signs.
  states = _drawn(hierarchies.draw_walk, seed)
  pairs = pairs_lib.standardize(*_pairs(hierarchies.walk, states), is_path=True)
  search = search_lib._Search(pairs, True, False, True)
  known = np.array([1, -1]), np.array([-2.0, 0.0])
  fitted = search.fit(*known, search.start(*known))
  explained, sign = search._dependence(fitted)
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
  states = _drawn(hierarchies.draw_hierarchy, 3)
  drivers, exponents, _, residuals = _fit(
    hierarchies.hierarchy, states, drivers=[0, 1]
  )
  np.testing.assert_array_equal(drivers, [0, 1])
  np.testing.assert_array_equal(exponents, [0.0, -2.0])
  assert hierarchies.spread(residuals[:, 2:]) < 1e-2


@pytest.mark.full
def test_a_random_walk_of_unknown_scales_is_exact_as_a_path():
  states = _drawn(hierarchies.draw_walk, 4)
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
