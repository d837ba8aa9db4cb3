"""Log densities against dense numpy formulas; moments against draws."""

import inference_gym.using_tensorflow as gym
import numpy as np
import pydantic
import pytest
import scipy.linalg
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.data import datasets
from experiments.papers import config as configs
from experiments.targets import banana
from experiments.targets import cox_process
from experiments.targets import gaussians
from experiments.targets import gp_hierarchy
from experiments.targets import log_gaussian_cox
from experiments.targets import logistic_regression
from experiments.targets import multi_class_gp
from experiments.targets import stochastic_volatility
from experiments.targets.base import BuildContext
from experiments.targets.random_draws import standard_normals
from experiments.targets.registry import TARGETS


def _build(dtype='float64', **target):
  values = {
    'name': 'x',
    'target': target,
    'methods': [{'name': 'mala'}],
    'num_adaptation_steps': 0,
    'num_results': 4,
  }
  config = configs.parse_config(values)
  return config.target.build(BuildContext(dtype))


def _dense_covariance(target):
  if target.covariance.ndim == 1:
    return np.diag(target.covariance)
  return target.covariance


@pytest.mark.parametrize(
  'target',
  [
    dict(name='gaussian_2d', rho=-0.9),
    dict(name='kernel_gaussian', num_points=12),
    dict(name='neals_gaussian', event_size=7),
    dict(name='spectrum_gaussian', variances=[1.0, 4.0, 9.0], rotation_seed=3),
    dict(name='spectrum_gaussian', variances=[1.0, 4.0, 9.0]),
    dict(name='anisotropic_gaussian', event_size=5, exponent=6.0),
  ],
  ids=lambda target: '-'.join(map(str, target.values())),
)
def test_gaussian_log_density_is_the_dense_formula(target):
  built = _build(**target)
  x = np.random.default_rng(0).normal(size=(3, built.event_size))
  expected = -0.5 * np.einsum(
    'bi,ij,bj->b', x, np.linalg.inv(_dense_covariance(built)), x
  )
  actual = built.target_log_prob_fn(tf.constant(x))
  np.testing.assert_allclose(actual, expected, rtol=1e-9)
  single = built.target_log_prob_fn(tf.constant(x[0]))
  np.testing.assert_allclose(single, expected[0], rtol=1e-9)


def test_kernel_gaussian_has_the_spectrum_of_the_paper():
  eigenvalues = np.linalg.eigvalsh(_build(name='kernel_gaussian').covariance)
  # Section 4.1: "eigenvalues ranging from 0.01 to 12.07".
  np.testing.assert_allclose(eigenvalues[0], 0.01, rtol=1e-3)
  np.testing.assert_allclose(eigenvalues[-1], 12.07, atol=5e-3)


def test_rotation_keeps_the_spectrum_and_mixes_coordinates():
  variances = np.array([1.0, 0.1, 1e-4])
  covariance = gaussians.rotated_covariance(variances, seed=1)
  np.testing.assert_allclose(
    np.sort(np.linalg.eigvalsh(covariance)), np.sort(variances), rtol=1e-8
  )
  assert np.abs(covariance[0, 1]) > 1e-3


def test_logistic_regression_log_density_is_the_formula():
  rng = np.random.default_rng(1)
  inputs = datasets.design_matrix(rng.normal(2, 3, size=(20, 3)))
  labels = rng.integers(0, 2, size=20)
  weights = rng.normal(size=(5, 4))
  target = logistic_regression.logistic_regression_target(
    'x', inputs, labels, 'float64'
  )
  probability = 1 / (1 + np.exp(-weights @ inputs.T))
  likelihood = np.where(labels, probability, 1 - probability)
  expected = np.log(likelihood).sum(-1) - 0.5 * (weights**2).sum(-1)
  np.testing.assert_allclose(
    target.target_log_prob_fn(tf.constant(weights)), expected, rtol=1e-10
  )


@pytest.mark.full
def test_gym_target_is_the_density_of_the_unconstrained_vector():
  built = _build('float32', name='VectorizedStochasticVolatilitySP500Small')
  assert built.event_size == 103
  states = tf.random.stateless_normal([2, 103], [3, 0], stddev=0.1)
  assert np.all(np.isfinite(built.target_log_prob_fn(states)))
  values = built.constrain(states)
  assert values['log_volatility'].shape == (2, 100)
  assert np.all(np.abs(values['persistence_of_volatility']) < 1)
  assert np.all(values['white_noise_shock_scale'] > 0)


@pytest.mark.full
def test_the_prior_of_a_gym_vector_is_its_density_without_the_likelihood():
  name = 'BrownianMotionUnknownScalesMissingMiddleObservations'
  built = _build('float32', name=name, use_markov_chain=True)
  u = tf.constant(built.sample_prior(5, 0))
  vector = gym.targets.VectorModel(getattr(gym.targets, name)(True))
  x = vector.default_event_space_bijector.forward(u)
  likelihood = vector.model.log_likelihood(vector.vector_event_to_structured(x))
  np.testing.assert_allclose(
    built.prior.log_prob(u) + likelihood, built.target_log_prob_fn(u), rtol=1e-4
  )


def test_brownian_motion_is_a_likelihood_times_a_gaussian_prior():
  name = 'BrownianMotionMissingMiddleObservations'
  built = _build('float32', name=name, use_markov_chain=True)
  x = tf.constant(built.sample_prior(5, 0))
  gap = built.target_log_prob_fn(x) - built.latent.log_likelihood_fn(x)
  gap -= tfpa.gaussian_priors.log_prob(built.latent.prior, x)
  np.testing.assert_allclose(gap, gap[0], atol=1e-3)


@pytest.mark.full
def test_coordinates_of_a_path_are_those_of_its_known_moments():
  built = _build('float32', name='ConvectionLorenzBridge')
  mean = built.ground_truth['x'][0]
  # In time order, three coordinates each: the path that the gym knows.
  states = np.float32(mean.reshape(1, 90))
  np.testing.assert_array_equal(
    built.constrain(states)['x'], np.float32([mean])
  )
  # A typical state; one with two times exchanged is none.
  typical, other = states.copy(), states.copy()
  other[:, 3:6], other[:, 30:33] = states[:, 30:33], states[:, 3:6]
  found = built.target_log_prob_fn(
    tf.constant(np.concatenate([typical, other]))
  )
  assert found[0] > 200.0 > found[1] + 1000.0


@pytest.mark.full
@pytest.mark.parametrize(
  'name',
  [
    'IllConditionedGaussian',
    'SyntheticPlasmaSpectroscopy',
    'SyntheticPlasmaSpectroscopyWithBump',
  ],
)
def test_a_density_that_takes_less_time_is_the_gym_s(name):
  built = _build('float32', name=name)
  model = gym.targets.VectorModel(getattr(gym.targets, name)())
  states = np.random.default_rng(5).normal(size=(6, built.event_size))
  states = tf.constant(states, tf.float32)
  value, gradient = tfp.math.value_and_gradient(
    built.target_log_prob_fn, states
  )
  expected, expected_gradient = tfp.math.value_and_gradient(
    model.unnormalized_log_prob, states
  )
  np.testing.assert_allclose(value, expected, rtol=1e-5)
  error = np.abs(gradient - expected_gradient).max(axis=0)
  assert np.all(error < 1e-4 * np.abs(expected_gradient).max(axis=0))


def test_banana_is_a_bent_gaussian_of_known_moments():
  target = banana.banana_target(3, bend=0.1, dtype='float64')
  rng = np.random.default_rng(4)
  z = rng.normal(size=(200000, 3)) * [10, 1, 1]
  x = z.copy()
  x[:, 1] += 0.1 * (z[:, 0] ** 2 - 100)
  expected = scipy.stats.norm.logpdf(z[:4], scale=[10, 1, 1]).sum(-1)
  actual = target.target_log_prob_fn(tf.constant(x[:4])).numpy()
  np.testing.assert_allclose(
    actual - actual[0], expected - expected[0], rtol=1e-9
  )
  # Five standard errors of means and variances of exact draws.
  mean_error = 5 * np.sqrt(target.variances() / len(x))
  assert np.all(np.abs(x.mean(0) - target.mean) < mean_error)
  squares = x**2
  variance_error = 5 * squares.std(0) / np.sqrt(len(x))
  assert np.all(np.abs(squares.mean(0) - target.variances()) < variance_error)


def test_exact_draws_have_the_moments_of_the_target():
  num_draws = 50000
  for target in (
    _build(name='banana', event_size=8, bend=0.03),
    _build(name='spectrum_gaussian', variances=4 * [1.0, 9.0], rotation_seed=1),
    _build(name='neals_gaussian', event_size=8),
  ):
    draws = target.exact_draws_fn(num_draws, 1)
    np.testing.assert_array_equal(draws, target.exact_draws_fn(num_draws, 1))
    assert draws.shape == (num_draws, 8)
    covariance = _dense_covariance(target)
    # With the right covariance, squares in its basis deviate by standard
    # errors; the banana's fourth moments make them wider than a Gaussian's.
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), draws.T).T
    products = np.einsum('ni,nj->nij', whitened, whitened)
    error = products.std(axis=0) / np.sqrt(num_draws)
    assert np.all(np.abs(products.mean(axis=0) - np.eye(8)) < 5 * error)
    assert np.all(np.abs(whitened.mean(axis=0)) < 5 / np.sqrt(num_draws))


def test_exact_draws_of_the_banana_are_straight_under_the_density():
  target = banana.banana_target(3, bend=0.03, dtype='float64')
  draws = target.exact_draws_fn(20000, 2)
  # -2 log pi is chi squared of three degrees at its own draws.
  radii = -2 * target.target_log_prob_fn(tf.constant(draws)).numpy()
  assert scipy.stats.kstest(radii, 'chi2', args=(3,)).pvalue > 1e-3
  # Control: draws of a banana that is bent a tenth less.
  other = banana.banana_target(3, bend=0.027, dtype='float64')
  radii = -2 * other.target_log_prob_fn(tf.constant(draws)).numpy()
  assert scipy.stats.kstest(radii, 'chi2', args=(3,)).pvalue < 1e-3


def test_cox_process_log_density_is_the_formula():
  covariance = log_gaussian_cox.cell_covariance(3, 'cells')
  counts = log_gaussian_cox.simulate_counts(3, 'cells', 1).ravel()
  target = cox_process.cox_process_target(counts, covariance, 'float64')
  x = np.random.default_rng(5).normal(3.0, 1.0, size=(3, 9))
  mean = np.log(126) - 1.91 / 2
  expected = scipy.stats.multivariate_normal.logpdf(x, [mean] * 9, covariance)
  expected += scipy.stats.poisson.logpmf(counts, np.exp(x) / 9).sum(-1)
  actual = target.target_log_prob_fn(tf.constant(x)).numpy()
  np.testing.assert_allclose(
    actual - actual[0], expected - expected[0], rtol=1e-9, atol=1e-9
  )


def test_cox_process_metrics_are_fisher_information_plus_prior_precision():
  covariance = log_gaussian_cox.cell_covariance(4, 'cells')
  rng = np.random.default_rng(6)
  mean = np.log(126) - 1.91 / 2
  fields = mean + np.sqrt(1.91) * rng.normal(size=10**6)
  intensity = np.exp(fields) / 16
  for name, factor in cox_process.metric_factors(covariance).items():
    np.testing.assert_allclose(factor, np.tril(factor))
    metric = np.linalg.inv(factor @ factor.T)
    diagonal = metric - np.linalg.inv(covariance)
    np.testing.assert_allclose(diagonal, np.diag(np.diag(diagonal)), atol=1e-8)
    error = abs(diagonal[0, 0] - intensity.mean())
    is_fisher = error < 5 * intensity.std() / 1e3
    assert is_fisher == (name == 'expected_fisher')


# Normals of a seed: their law, and one value however they are run.


def test_draws_are_standard_normal():
  draws = standard_normals([50000], tf.constant([1, 2])).numpy()
  assert scipy.stats.kstest(draws, 'norm').pvalue > 1e-3
  # Power: a scale that is off by five per cent.
  assert scipy.stats.kstest(1.05 * draws, 'norm').pvalue < 1e-3


# Latent Gaussian models with hyperparameters: their pieces fit together.


def _log_joint(hierarchy, states):
  """Returns f(x) + log N(x | theta) + log p(theta) of states, [n]."""
  x, theta = hierarchy.split(tf.constant(states))
  prior = hierarchy.prior_fn(theta)
  density = prior.covariance(prior.params).log_prob(
    prior.to_coordinates(prior.params, x)
  )
  return (
    hierarchy.log_likelihood_fn(x)
    + density
    + hierarchy.hyper_log_prob_fn(theta)
  ).numpy()


def _check_pieces(target, states, atol):
  """Checks that pieces add up to the density, but for a constant."""
  whole = target.target_log_prob_fn(tf.constant(states)).numpy()
  gap = _log_joint(target.hierarchy, states) - whole
  np.testing.assert_allclose(gap, gap[0], atol=atol)
  # The densities themselves differ between these states.
  assert np.ptp(whole) > 1.0


def test_pieces_of_stochastic_volatility_add_up_to_its_density():
  rng = np.random.default_rng(0)
  target = stochastic_volatility.stochastic_volatility_target(
    rng.normal(size=30), 'centered', dtype='float64'
  )
  states = target.suggested_start + 0.3 * rng.normal(size=(5, 33))
  _check_pieces(target, states, 1e-9)


def test_pieces_of_the_gyms_cox_process_add_up_to_its_density():
  target = (
    pydantic.TypeAdapter(TARGETS.union())
    .validate_python({'name': 'SyntheticLogGaussianCoxProcess'})
    .build(BuildContext('float64'))
  )
  states = target.sample_prior(4, 0)
  _check_pieces(target, states, 1e-6)
  split = [part.numpy() for part in target.hierarchy.split(tf.constant(states))]
  np.testing.assert_array_equal(target.hierarchy.join(*split), states)


def test_gp_hierarchy_has_the_dense_density():
  rng = np.random.default_rng(1)
  inputs, labels = rng.normal(size=(6, 2)), np.array([0, 1, 1, 0, 1, 0])
  target = gp_hierarchy.gp_hierarchy_target(
    'tiny', inputs, labels, jitter=0.01, hyper_deviation=3.0
  )
  states = rng.normal(size=(2, 8))
  for state, got in zip(states, _log_joint(target.hierarchy, states)):
    x, theta = state[:6], state[6:]
    squares = np.sum((inputs[:, None] - inputs) ** 2, axis=-1)
    shape = np.exp(-0.5 * squares / np.exp(2.0 * theta[1]))
    matrix = np.exp(2.0 * theta[0]) * (shape + 0.01 * np.eye(6))
    expected = -0.5 * x @ np.linalg.solve(matrix, x)
    expected -= 0.5 * np.linalg.slogdet(2.0 * np.pi * matrix)[1]
    expected -= np.sum(np.log1p(np.exp(np.where(labels, -x, x))))
    expected -= 0.5 * np.sum((theta / 3.0) ** 2)
    assert got == pytest.approx(expected, abs=1e-9)


def test_every_class_of_a_multi_class_field_has_its_own_scales():
  rng, log_prob = np.random.default_rng(2), tfpa.gaussian_priors.log_prob
  inputs, digits = rng.normal(size=(3, 2)), np.array([3, 0, 9])
  one = gp_hierarchy.gp_hierarchy_target('x', inputs, digits > 0).hierarchy
  ten = multi_class_gp.multi_class_hierarchy_target(inputs, digits).hierarchy
  x, theta = rng.normal(size=(2, 30)), rng.normal(size=(2, 20))
  blocks = zip(np.split(theta, 10, axis=1), np.split(x, 10, axis=1))
  expected = sum(log_prob(one.prior_fn(t), block) for t, block in blocks)
  np.testing.assert_allclose(log_prob(ten.prior_fn(theta), x), expected)
