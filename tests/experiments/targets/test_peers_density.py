"""Every density that is written in JAX too is TensorFlow's, to 1e-5."""

import numpy as np
import pytest
import tensorflow as tf

from experiments.data import datasets
from experiments.papers import config as configs
from experiments.targets import jax_density
from experiments.targets.base import BuildContext
from experiments.targets.logistic_regression import logistic_regression_target
from experiments.targets.registry import TARGETS

jax = pytest.importorskip(
  'jax', reason="JAX is not installed: write pip install '.[peers]'"
)

# One Python object for each of 2516 days: minutes to build. Its vectorized form
# is here, and its small form.
_TOO_SLOW = {'StochasticVolatilitySP500'}
_FLOAT64 = {'SyntheticLogGaussianCoxProcess'}
_NUM_POINTS = 4

_GYM = [name for name in TARGETS.names() if name[0].isupper()]
_GAUSSIANS = {
  'gaussian_2d': {},
  'neals_gaussian': {'event_size': 5},
  'spectrum_gaussian': {'variances': [1.0, 4.0, 9.0], 'rotation_seed': 3},
}


def _build(name, **parameters):
  config = configs.parse_config(
    {
      'name': 'density',
      'target': {'name': name, **parameters},
      'methods': [{'name': 'mala'}],
      'num_adaptation_steps': 1,
      'num_results': 4,
    }
  )
  dtype = 'float64' if name in _FLOAT64 else 'float32'
  return config.target.build(BuildContext(dtype))


def _check(target):
  """Compares both densities at random points, relative to their size."""
  rng = np.random.default_rng(0)
  points = 0.5 * rng.normal(size=[_NUM_POINTS, target.event_size])
  points = points.astype(target.dtype)
  expected = target.target_log_prob_fn(tf.constant(points)).numpy()
  with jax_density.precision(target.dtype):
    values = np.asarray(jax.vmap(target.jax_log_prob_fn())(points))
  assert values.dtype == target.dtype
  assert np.ptp(expected) > 1e-3 * np.abs(expected).max()
  np.testing.assert_allclose(values, expected, rtol=1e-5)


@pytest.mark.parametrize('name', sorted(set(_GYM) - _TOO_SLOW))
def test_density_of_the_gym_is_the_same_in_jax(name):
  _check(_build(name))


@pytest.mark.parametrize('name', sorted(_GAUSSIANS))
def test_gaussian_density_is_the_same_in_jax(name):
  _check(_build(name, **_GAUSSIANS[name]))


@pytest.mark.parametrize('dtype', ['float32', 'float64'])
def test_logistic_regression_is_the_same_in_jax(dtype):
  rng = np.random.default_rng(1)
  inputs, labels = rng.normal(size=[60, 4]), rng.integers(2, size=60)
  _check(
    logistic_regression_target(
      'random', datasets.design_matrix(inputs), labels, dtype
    )
  )


@pytest.mark.parametrize('prior', ['gym', 'paper'])
def test_volatility_of_the_library_is_the_same_in_jax(prior):
  parameters = {'parameterization': 'centered', 'prior': prior}
  _check(_build('stochastic_volatility', num_days=30, **parameters))
