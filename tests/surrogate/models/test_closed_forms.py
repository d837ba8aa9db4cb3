"""Both closed forms minimise the objective that they are said to minimise.

Derivatives of the objective come from automatic differentiation of `log_prob`,
formulas from METHODS in loops over draws and dimensions.
"""

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.surrogate.models import (
  kernel_exponential_family_finite as _finite,
)
from tfp_adaptive.surrogate.models import (
  kernel_exponential_family_lite as _lite,
)
from tfp_adaptive.surrogate.models import kernel_surrogate
from tfp_adaptive.surrogate.models import score_matching
from tfp_adaptive.surrogate.models import surrogate_frame
from tfp_adaptive.surrogate.models.kernel_exponential_family_finite import (
  _basis as finite_basis,
)
from tfp_adaptive.surrogate.models.kernel_exponential_family_lite import (
  _basis as lite_basis,
)

_NUM_POINTS, _SIZE, _NUM_FEATURES = 25, 2, 12
_SIGMA = 1.7
_FORMS = {
  'lite': (lite_basis(_NUM_POINTS), _lite(_NUM_POINTS)),
  'few_centers': (lite_basis(8), _lite(_NUM_POINTS, 8)),
  'finite': (finite_basis(_NUM_FEATURES), _finite(_NUM_POINTS, _NUM_FEATURES)),
}


def _draws(weighted=True, seed=0):
  rng = np.random.default_rng(seed)
  points = rng.normal(size=(_NUM_POINTS, _SIZE)) * [1.0, 0.6]
  weights = rng.uniform(0.5, 1.5, size=_NUM_POINTS)
  if not weighted:
    weights[:] = 1.0
  return score_matching.Draws(
    tf.constant(points), tf.constant(weights / weights.sum())
  )


def _choice(regularization, base_weight=0.0):
  return score_matching.Choice(
    tf.constant(1.0, tf.float64),
    tf.cast(regularization, tf.float64),
    tf.constant(base_weight, tf.float64),
    tf.constant(0.0, tf.float64),
  )


def _ridge(basis, data, maps, draws, regularization=1.0):
  """Returns r of `solve`, from the trace of G."""
  gram, _ = basis.moments(
    basis.at(data, maps), maps, draws, tf.zeros_like(draws.points)
  )
  effective_size = 1.0 / np.sum(draws.weights.numpy() ** 2)
  return regularization * np.trace(gram.numpy()) / effective_size


def _isotropic(basis, draws, ridge):
  """Returns data and coefficients of kernel exp(-|x - y|^2 / sigma)."""
  maps = tf.eye(_SIZE, dtype=tf.float64) / _SIGMA**0.5
  data = basis.refresh(basis.init(_SIZE, tf.float64, (3, 4)), draws)
  factor = ridge / _ridge(basis, data, maps, draws)
  return data, score_matching.solve(
    basis, maps, basis.at(data, maps), _choice(factor), draws, maps
  )[0]


@pytest.mark.parametrize('base_weight', [0.0, 1.0])
@pytest.mark.parametrize('name', _FORMS)
def test_the_gradient_of_the_regularised_objective_is_zero(name, base_weight):
  basis, surrogate = _FORMS[name]
  draws = _draws()
  maps = tf.constant([[0.9, 0.0], [0.4, 1.3]], tf.float64)
  base = tf.constant([[1.2, 0.3], [0.3, 2.0]], tf.float64)
  data = basis.refresh(basis.init(_SIZE, tf.float64, (3, 4)), draws)
  choice = _choice(1e-2, base_weight)
  coefficients, _ = score_matching.solve(
    basis, maps, basis.at(data, maps), choice, draws, base
  )
  params = kernel_surrogate.Params(
    frame=surrogate_frame.start(_SIZE, tf.float64),
    map=maps,
    precision=base_weight * base,
    coefficients=coefficients,
    data=basis.at(data, maps),
    choice=choice,
  )
  x = tf.identity(draws.points)  # The kernels' centers are constants.
  with tf.GradientTape() as tape:
    tape.watch(coefficients)
    learned = params._replace(coefficients=coefficients)
    with tf.GradientTape(persistent=True) as outer:
      outer.watch(x)
      with tf.GradientTape() as inner:
        inner.watch(x)
        values = surrogate.log_prob(learned, x)
      score = inner.gradient(values, x)
      columns = tf.unstack(score, axis=-1)
    laplacian = sum(
      outer.gradient(column, x)[:, i] for i, column in enumerate(columns)
    )
    squares = tf.reduce_sum(score**2, axis=-1)
    objective = tf.reduce_sum(draws.weights * (laplacian + 0.5 * squares))
  gradient = tape.gradient(objective, coefficients)
  ridge = _ridge(basis, data, maps, draws, 1e-2)
  assert np.max(np.abs(ridge * coefficients)) > 1e-3  # It takes part.
  np.testing.assert_allclose(gradient + ridge * coefficients, 0.0, atol=1e-6)
  np.testing.assert_allclose(surrogate.score(params, x), score, atol=1e-9)


def test_lite_is_proposition_1_with_its_exact_regulariser():
  # alpha = -(sigma / 2) (C + lambda I)^-1 b minimises J + 2 lambda |alpha|^2 /
  # (n sigma^2), so that r = 4 lambda / (n sigma^2).
  draws = _draws(weighted=False)
  x = draws.points.numpy()
  kernel = np.exp(-np.sum((x[:, None] - x) ** 2, axis=-1) / _SIGMA)
  ones = np.ones(_NUM_POINTS)
  matrix, vector = 0.0, 0.0
  for column in x.T:
    square, diagonal = column**2, np.diag(column)
    vector = vector + (2.0 / _SIGMA) * (
      kernel @ square
      + square * (kernel @ ones)
      - 2.0 * column * (kernel @ column)
    )
    vector = vector - kernel @ ones
    matrix = matrix + (diagonal @ kernel - kernel @ diagonal) @ (
      kernel @ diagonal - diagonal @ kernel
    )
  penalty = 0.3
  expected = (
    -0.5
    * _SIGMA
    * np.linalg.solve(matrix + penalty * np.eye(_NUM_POINTS), vector)
  )
  ridge = 4.0 * penalty / (_NUM_POINTS * _SIGMA**2)
  _, coefficients = _isotropic(lite_basis(_NUM_POINTS), draws, ridge)
  np.testing.assert_allclose(coefficients, expected, rtol=1e-7, atol=1e-9)


def test_finite_is_proposition_2_with_lambda_over_n():
  draws = _draws(weighted=False)
  basis = finite_basis(_NUM_FEATURES)
  penalty = 0.4
  data, coefficients = _isotropic(basis, draws, penalty / _NUM_POINTS)
  frequencies = data.frequencies.numpy() / _SIGMA**0.5
  amplitude = np.sqrt(2.0 / _NUM_FEATURES)
  matrix = np.zeros([_NUM_FEATURES] * 2)
  vector = np.zeros([_NUM_FEATURES])
  for row in draws.points.numpy():
    phase = row @ frequencies + data.phases.numpy()
    for frequency in frequencies:
      first = -amplitude * frequency * np.sin(phase)
      second = -amplitude * frequency**2 * np.cos(phase)
      matrix += np.outer(first, first) / _NUM_POINTS
      vector -= second / _NUM_POINTS
  regular = matrix + penalty / _NUM_POINTS * np.eye(_NUM_FEATURES)
  np.testing.assert_allclose(
    coefficients, np.linalg.solve(regular, vector), rtol=1e-7, atol=1e-9
  )


@pytest.mark.parametrize(
  'kernel, shape, expected',
  [
    ('gaussian', 1, lambda square: np.exp(-square)),
    ('rational_quadratic', 1, lambda square: 1.0 / (1.0 + square)),
    ('rational_quadratic', 3, lambda square: (1.0 + square / 3.0) ** -3),
  ],
  ids=['gaussian', 'most_mixed', 'less_mixed'],
)
def test_products_of_random_features_have_the_mean_of_the_kernel(
  kernel, shape, expected
):
  num_features = 100_000
  surrogate = _finite(_NUM_POINTS, num_features, kernel, shape)
  data = surrogate.init(_SIZE, tf.float64, (3, 4)).data
  start, direction = np.array([0.3, -0.8]), np.array([0.6, 0.8])
  distances = np.array([0.0, 0.5, 1.0, 2.0, 4.0])
  points = start + distances[:, np.newaxis] * direction
  phases = points @ data.frequencies.numpy() + data.phases.numpy()
  features = 2.0**0.5 * np.cos(phases)
  # Products are within [-2, 2]: standard errors below 2 / sqrt(m).
  np.testing.assert_allclose(
    np.mean(features[0] * features, axis=-1),
    expected(distances**2),
    atol=4.0 * 2.0 / num_features**0.5,
  )
