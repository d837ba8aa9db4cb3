"""The step size that a surrogate bears, known without the target."""

import numpy as np
import pytest
import tensorflow as tf

from tests.surrogate import surrogates
from tfp_adaptive import preconditioners
from tfp_adaptive.core import scale_factor
from tfp_adaptive.surrogate import surrogate_leapfrog

_SIZE, _LENGTH, _NUM = 3, 4.0, 50
_RNG = np.random.default_rng(0)
_POINTS = _RNG.normal(size=(_NUM, _SIZE))
_NOISE = _RNG.normal(size=(_NUM, _SIZE))


def _fit(scale, wanted=0.9, precision=1.0):
  """Returns h along the Gaussian of this precision, C = scale I."""
  surrogate = surrogates.gaussian()
  params = surrogate.init(_SIZE, tf.float64, (1, 2))._replace(
    precision=precision * tf.eye(_SIZE, dtype=tf.float64)
  )
  structure = preconditioners.diagonal()

  @tf.function(jit_compile=True, autograph=False)
  def fit(points, noise):
    factor = scale_factor.at(
      structure, structure.init(_SIZE, points.dtype, scale)
    )
    return surrogate_leapfrog.fit_step_size(
      surrogate, params, factor, points, noise, _LENGTH, wanted
    )

  return float(fit(tf.constant(_POINTS), tf.constant(_NOISE)))


def _acceptance(step_size, scale, precision):
  """Returns that of the leapfrog steps along the Gaussian, dense."""
  kick = scale * precision**0.5 * step_size
  one = np.array([[1 - kick**2 / 2, kick], [-kick + kick**3 / 4, 0.0]])
  one[1, 1] = one[0, 0]
  num_steps = int(np.clip(np.round(_LENGTH / step_size), 1, 64))
  turn = np.linalg.matrix_power(one, num_steps)
  x = precision**0.5 * _POINTS
  y, v = (
    turn[0, 0] * x + turn[0, 1] * _NOISE,
    turn[1, 0] * x + turn[1, 1] * _NOISE,
  )
  gain = 0.5 * np.sum(x**2 + _NOISE**2 - y**2 - v**2, axis=-1)
  return np.mean(np.exp(np.minimum(gain, 0.0)))


@pytest.mark.parametrize('scale, precision', [(1.0, 1.0), (0.5, 64.0)])
@pytest.mark.parametrize('wanted', [0.5, 0.9])
def test_it_is_the_largest_of_a_grid_that_keeps_the_energy(
  scale, precision, wanted
):
  grid = 1.2 * 0.7 ** np.arange(14)
  kept = [h for h in grid if _acceptance(h, scale, precision) >= wanted]
  np.testing.assert_allclose(_fit(scale, wanted, precision), max(kept))


def test_a_surrogate_that_knows_nothing_bears_any_and_one_of_nan_none():
  assert _fit(1.0, precision=0.0) == pytest.approx(1.2)
  assert _fit(1.0, precision=np.nan) == pytest.approx(1.2 * 0.7**13)


@pytest.mark.parametrize(
  'length, step_size, expected',
  [(4.0, 0.5, 8), (4.0, [[0.5], [1.5]], 4), (0.1, 1.0, 1), (4.0, 1e-9, 64)],
)
def test_a_length_takes_as_many_steps(length, step_size, expected):
  step_size = tf.constant(step_size, tf.float64)
  assert surrogate_leapfrog.steps_of_length(length, step_size) == expected
