"""The posterior in four parameterizations against inference_gym and SciPy."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from inference_gym.internal import data as gym_data

from experiments.targets import autoregression
from experiments.targets import stochastic_volatility as sv

FORMS = ('scaled', 'centered', 'zero_mean', 'non_centered')
NUM_DAYS = 100


def _returns(num_days=NUM_DAYS):
  returns = gym_data.sp500_returns(num_points=num_days)['centered_returns']
  return np.asarray(returns, np.float64)


def _points(target, num_points=5, seed=0):
  noise = np.random.default_rng(seed).normal(
    size=(num_points, target.event_size)
  )
  return target.suggested_start + 0.5 * noise


def _softplus(x):
  return np.logaddexp(0.0, x)


def _variables(form, x):
  """Returns (mean, persistence, shock scale, h, log |dh / dpath|) by a loop."""
  path, mean, raw, raw_scale = x[:-3], x[-3], x[-2], x[-1]
  persistence = np.tanh(raw / 2)
  scale = _softplus(raw_scale)
  if form == 'centered':
    return mean, persistence, scale, path, 0.0
  if form == 'zero_mean':
    return mean, persistence, scale, mean + path, 0.0
  log_det = len(path) * np.log(scale)
  a = np.array(path)
  if form == 'non_centered':
    a[0] /= np.sqrt(1 - persistence**2)
    for t in range(1, len(a)):
      a[t] = persistence * a[t - 1] + path[t]
    log_det -= 0.5 * np.log(1 - persistence**2)
  return mean, persistence, scale, mean + scale * a, log_det


def _scipy_log_prob(form, x, returns, prior):
  """Priors times Gaussian transitions times likelihood, and the Jacobian."""
  mean, persistence, scale, h, log_det = _variables(form, x)
  mean_scale, scale_scale = {'gym': (5, 2), 'paper': (2, 1)}[prior]
  norm = scipy.stats.norm.logpdf
  value = scipy.stats.cauchy.logpdf(mean, 0, mean_scale)
  value += scipy.stats.halfcauchy.logpdf(scale, 0, scale_scale)
  value += scipy.stats.beta.logpdf((1 + persistence) / 2, 20, 1.5) - np.log(2)
  value += norm(h[0], mean, scale / np.sqrt(1 - persistence**2))
  centers = mean + persistence * (h[:-1] - mean)
  value += norm(h[1:], centers, scale).sum()
  value += norm(returns, 0, np.exp(h / 2)).sum()
  # d tanh(p / 2) / dp and d softplus(s) / ds.
  value += np.log((1 - persistence**2) / 2) - _softplus(-x[-1])
  return value + log_det


@pytest.mark.parametrize('prior', ['gym', 'paper'])
@pytest.mark.parametrize('form', FORMS)
def test_log_density_is_the_model_up_to_one_constant(form, prior):
  returns = _returns()
  target = sv.stochastic_volatility_target(returns, form, prior, 'float64')
  x = _points(target)
  expected = [_scipy_log_prob(form, row, returns, prior) for row in x]
  actual = target.target_log_prob_fn(tf.constant(x)).numpy()
  np.testing.assert_allclose(
    actual - actual[0], np.subtract(expected, expected[0]), rtol=1e-9, atol=1e-9
  )


@pytest.mark.parametrize('form', FORMS)
def test_constrain_names_and_maps_as_inference_gym_does(form):
  target = sv.stochastic_volatility_target(_returns(), form, dtype='float64')
  x = _points(target, 3)
  values = target.constrain(x)
  expected = [_variables(form, row) for row in x]
  names = (
    'mean_log_volatility',
    'persistence_of_volatility',
    'white_noise_shock_scale',
    'log_volatility',
  )
  assert set(values) == set(names) == set(sv.ground_truth(NUM_DAYS))
  for i, name in enumerate(names):
    np.testing.assert_allclose(
      values[name], np.stack([row[i] for row in expected]), rtol=1e-9
    )


@pytest.mark.full
@pytest.mark.parametrize('form', ['scaled', 'centered'])
def test_second_derivatives_compile(form):
  target = sv.stochastic_volatility_target(_returns(), form, dtype='float64')
  x = tf.constant(_points(target, 2))
  v = tf.constant(np.random.default_rng(1).normal(size=x.shape))

  def gradient(x):
    return tfp.math.value_and_gradient(target.target_log_prob_fn, x)[1]

  @tf.function(jit_compile=True, autograph=False)
  def hessian_vector(x, v):
    return tfp.math.value_and_gradient(lambda x: gradient(x) * v, x)[1]

  compiled = tf.function(gradient, jit_compile=True, autograph=False)
  step = 1e-5
  difference = (compiled(x + step * v) - compiled(x - step * v)) / (2 * step)
  # Truncation is O(step^2), rounding O(1e-16 / step) of gradients near 1e2.
  np.testing.assert_allclose(
    hessian_vector(x, v), difference, rtol=1e-5, atol=1e-4
  )


@pytest.mark.full
@pytest.mark.parametrize('form', FORMS)
def test_other_forms_are_the_same_density_in_other_coordinates(form):
  target = sv.stochastic_volatility_target(_returns(9), form, dtype='float64')
  assert set(target.forms) == set(FORMS) - {form}
  points = tf.constant(_points(target, 4))
  for other in target.forms.values():
    with tf.GradientTape(persistent=True) as tape:
      tape.watch(points)
      mapped = other.to_form(points)
    jacobian = tape.batch_jacobian(mapped, points, experimental_use_pfor=False)
    np.testing.assert_allclose(other.from_form(mapped), points, rtol=1e-9)
    _, log_det = np.linalg.slogdet(jacobian)
    difference = (
      target.target_log_prob_fn(points) - other.target_log_prob_fn(mapped)
    ) - log_det
    # Each density is known up to a constant.
    np.testing.assert_allclose(difference, difference[0], atol=1e-9)


@pytest.mark.parametrize('mode', ['eager', 'graph', 'compiled'])
def test_autoregression_has_the_gradient_of_the_dense_inverse(mode):
  rng = np.random.default_rng(3)
  noise, cotangent = rng.normal(size=(2, 2, 23))
  persistence = np.array([[0.9], [-0.5]])

  def gradient(*inputs):
    return tfp.math.value_and_gradient(
      lambda *inputs: cotangent * autoregression.autoregress(*inputs), inputs
    )[1]

  if mode != 'eager':
    compile_it = mode == 'compiled'
    gradient = tf.function(gradient, jit_compile=compile_it, autograph=False)
  by_noise, by_persistence = gradient(
    tf.constant(noise), tf.constant(persistence)
  )
  for chain, rho in enumerate(persistence[:, 0]):
    shift = np.eye(23, k=-1)
    inverse = np.linalg.inv(np.eye(23) - rho * shift)
    adjoint = inverse.T @ cotangent[chain]
    expected = adjoint @ shift @ inverse @ noise[chain]
    np.testing.assert_allclose(by_noise[chain], adjoint, rtol=1e-10)
    np.testing.assert_allclose(by_persistence[chain, 0], expected, rtol=1e-10)
