"""A field with its hyperparameters, against dense densities and a grid."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tfp_adaptive.internal import hyperparameter_moves
from tfp_adaptive.internal import tfp_private

tfd = tfp.distributions

_D = 5
_POINTS = np.linspace(0.0, 2.0, _D)
_NOISE = 0.3
_DATA = np.array([1.1, 0.4, -0.6, -1.4, -0.9])
_MEAN = 0.2
_JITTER = 0.05
_DISTANCE = np.abs(_POINTS[:, np.newaxis] - _POINTS)


def _log_likelihood(x):
  miss = tf.constant(_DATA) - x
  return -0.5 * tf.reduce_sum(miss**2, axis=-1) / _NOISE


def _kernel_matrix(amplitude, length_scale, lib):
  """Returns C for scalars, or [chains..., d, d] for Tensors."""
  distance = _DISTANCE / length_scale[..., np.newaxis, np.newaxis]
  matrix = amplitude[..., np.newaxis, np.newaxis] ** 2 * lib.exp(-distance)
  return matrix + _JITTER * np.eye(_D)


def _prior_fn(amplitude, length_scale):
  return tfpa.gaussian_priors.spectral(
    _kernel_matrix(amplitude, length_scale, tf), mean=_MEAN
  )


_LOG_NORMAL = dict(amplitude=(0.0, 0.6), length_scale=(0.0, 0.4))


def _hyperprior():
  return tfd.JointDistributionNamed(
    {
      name: tfd.LogNormal(np.float64(loc), np.float64(scale))
      for name, (loc, scale) in _LOG_NORMAL.items()
    }
  )


def _kernel(num_adaptation_steps=0, **options):
  return tfpa.latent_gaussian_hyperparameters(
    _log_likelihood, _prior_fn, _hyperprior(), num_adaptation_steps, **options
  )


def _start(num_chains, seed=0):
  rng = np.random.default_rng(seed)
  theta = {
    name: tf.constant(rng.normal(loc, 0.3, size=num_chains))
    for name, (loc, _) in _LOG_NORMAL.items()
  }
  return tf.constant(rng.normal(size=(num_chains, _D))), theta


def _log_normal(x, mean, covariance):
  miss = x - mean
  _, log_det = np.linalg.slogdet(2.0 * np.pi * covariance)
  return -0.5 * (miss @ np.linalg.solve(covariance, miss) + log_det)


def _dense_log_joint(x, amplitude, length_scale):
  """log pi(x, theta) of theta itself, in the unconstrained (log) measure."""
  log_prob = -0.5 * np.sum((_DATA - x) ** 2) / _NOISE
  matrix = _kernel_matrix(np.float64(amplitude), np.float64(length_scale), np)
  log_prob += _log_normal(x, _MEAN, matrix)
  theta = dict(amplitude=amplitude, length_scale=length_scale)
  for name, (loc, scale) in _LOG_NORMAL.items():
    log_prob -= 0.5 * ((np.log(theta[name]) - loc) / scale) ** 2
  return log_prob


def _gradient(x):
  return (_DATA - x) / _NOISE


@pytest.mark.parametrize('joint', [True, False])
def test_ratio_is_that_of_dense_densities(joint):
  delta = 0.4
  amplitudes = tf.constant([0.8, 1.3], tf.float64)
  lengths = tf.constant([1.1, 0.6], tf.float64)
  prior = _prior_fn(amplitudes, lengths)
  proposed = _prior_fn(amplitudes * 1.2, lengths * 0.9)
  x, _ = _start(2)
  proposal = tfpa.proposals.UncalibratedAuxiliaryGradient(
    _log_likelihood, prior, step_size=delta
  )
  latent = proposal.bootstrap_results(x)
  seen = {}

  def evaluate(prior, coordinates):
    there = tfpa.proposals.UncalibratedAuxiliaryGradient(_log_likelihood, prior)
    return there.evaluate_at(coordinates, x)

  def remember(params, z):
    seen['z'] = z
    return proposed.to_coordinates(params, z)

  move = (
    hyperparameter_moves.joint_move
    if joint
    else hyperparameter_moves.gibbs_move
  )
  log_ratio, landing = move(
    prior,
    proposed._replace(to_coordinates=remember),
    evaluate,
    x,
    latent,
    tf.constant([1, 2]),
  )
  for i in range(2):
    theta = amplitudes[i].numpy(), lengths[i].numpy()
    new_theta = theta[0] * 1.2, theta[1] * 0.9
    here, there = x[i].numpy(), landing.state[i].numpy()
    ratio = _dense_log_joint(there, *new_theta) - _dense_log_joint(here, *theta)
    # The hyperprior is not part of the moves.
    for old, new, (loc, scale) in zip(theta, new_theta, _LOG_NORMAL.values()):
      ratio += 0.5 * ((np.log(new) - loc) / scale) ** 2
      ratio -= 0.5 * ((np.log(old) - loc) / scale) ** 2
    if joint:
      z = seen['z'][i].numpy()
      noise = 0.5 * delta * np.eye(_D)
      for sign, point, target, law in (
        (1.0, there, here, theta),
        (-1.0, here, there, new_theta),
      ):
        ratio += sign * _log_normal(
          z, point + 0.5 * delta * _gradient(point), noise
        )
        matrix = _kernel_matrix(*np.float64(law), np)
        gain = matrix @ np.linalg.inv(matrix + noise)
        ratio += sign * _log_normal(
          target, _MEAN + gain @ (z - _MEAN), 0.5 * delta * gain
        )
    assert log_ratio[i].numpy() == pytest.approx(ratio, abs=1e-10)
    np.testing.assert_allclose(
      landing.coordinates[i],
      proposed.to_coordinates(proposed.params, landing.state)[i],
      atol=1e-10,
    )
    np.testing.assert_allclose(
      landing.grads_coordinates[i],
      proposed.pull(proposed.params, tf.constant(_gradient(landing.state)))[i],
      atol=1e-10,
    )


def _grid_posterior():
  """Returns a grid of log theta and its exact posterior weights."""
  axis = np.linspace(-2.5, 2.5, 81)
  weights = np.empty([axis.size, axis.size])
  for i, log_amplitude in enumerate(axis):
    for j, log_length in enumerate(axis):
      matrix = _kernel_matrix(
        np.exp(np.float64(log_amplitude)), np.exp(np.float64(log_length)), np
      )
      log_prob = _log_normal(_DATA, _MEAN, matrix + _NOISE * np.eye(_D))
      for value, (loc, scale) in zip(
        (log_amplitude, log_length), _LOG_NORMAL.values()
      ):
        log_prob -= 0.5 * ((value - loc) / scale) ** 2
      weights[i, j] = log_prob
  weights = np.exp(weights - weights.max())
  return axis, weights / weights.sum()


@pytest.mark.slow
@pytest.mark.parametrize(
  'joint, latent',
  [(True, 'auxiliary_gradient'), (False, 'marginal_gradient')]
  + [(False, 'crank_nicolson_langevin'), (False, 'elliptical_slice')],
)
def test_hyperparameters_follow_the_exact_posterior(joint, latent):
  num_chains, num_steps = 400, 300
  kernel = _kernel(150, joint=joint, latent=latent, num_latent_updates=2)
  result = tfpa.sample(
    kernel,
    _start(num_chains),
    num_results=num_steps,
    num_burnin_steps=300,
    seed=5,
    progress=False,
  )
  _, theta = result.states
  axis, weights = _grid_posterior()
  would_be_seen = []
  for name, margin in (
    ('amplitude', weights.sum(axis=1)),
    ('length_scale', weights.sum(axis=0)),
  ):
    mean = np.sum(margin * axis)
    deviation = np.sqrt(np.sum(margin * (axis - mean) ** 2))
    by_chain = theta[name].mean(axis=0)
    error = by_chain.std() / np.sqrt(num_chains)
    assert abs(by_chain.mean() - mean) < 4.0 * error
    squares = ((theta[name] - mean) ** 2).mean(axis=0)
    spread_error = squares.std() / np.sqrt(num_chains)
    assert abs(squares.mean() - deviation**2) < 4.0 * spread_error
    loc, scale = _LOG_NORMAL[name]
    would_be_seen.append(
      abs(loc - mean) > 8.0 * error
      or abs(scale**2 - deviation**2) > 8.0 * spread_error
    )
  # Sampling the prior of theta instead.
  assert any(would_be_seen)
  accepted = np.mean(
    tfp_private.get_innermost(result.final_kernel_results, 'hyper_is_accepted')
  )
  assert 0.05 < accepted < 0.6


def test_both_step_sizes_are_tuned_and_then_fixed():
  kernel = _kernel(30, step_size=1e-3, hyper_step_size=50.0)
  steps = collections.defaultdict(list)
  state = _start(20)
  results = kernel.bootstrap_results(state)
  step = tf.function(kernel.one_step, autograph=False)
  for i in range(40):
    state, results = step(state, results, seed=tf.constant([i, 0]))
    for name in ('step_size', 'hyper_step_size'):
      steps[name].append(float(tfp_private.get_innermost(results, name)))
  assert steps['step_size'][-1] > 0.02
  assert steps['hyper_step_size'][-1] < 10.0
  for name in steps:
    assert len(set(steps[name][30:])) == 1
    assert len(set(steps[name][:30])) > 25


def test_the_prior_is_decomposed_once_in_a_step():
  calls = []

  def counted(amplitude, length_scale):
    calls.append(1)
    return _prior_fn(amplitude, length_scale)

  kernel = tfpa.latent_gaussian_hyperparameters(
    _log_likelihood, counted, _hyperprior(), 0, num_latent_updates=3
  )
  state = _start(2)
  results = kernel.bootstrap_results(state)
  calls.clear()
  kernel.one_step(state, results, seed=(0, 1))
  assert len(calls) == 1


def test_a_function_may_stand_for_the_hyperprior():
  start = _start(3)
  other = tfpa.latent_gaussian_hyperparameters(
    _log_likelihood,
    lambda amplitude, length_scale: _prior_fn(
      tf.exp(amplitude), tf.exp(length_scale)
    ),
    lambda amplitude, length_scale: tf.add_n(
      [
        tfd.Normal(np.float64(loc), np.float64(scale)).log_prob(value)
        for value, (loc, scale) in zip(
          (amplitude, length_scale), _LOG_NORMAL.values()
        )
      ]
    ),
    0,
  )
  expected, _ = _kernel().one_step(
    start, _kernel().bootstrap_results(start), seed=(1, 2)
  )
  got, _ = other.one_step(start, other.bootstrap_results(start), seed=(1, 2))
  for a, b in zip(tf.nest.flatten(expected), tf.nest.flatten(got)):
    np.testing.assert_allclose(a, b, rtol=1e-10)


def test_joint_move_needs_the_auxiliary_kernel():
  with pytest.raises(ValueError, match="'auxiliary_gradient'"):
    _kernel(latent='marginal_gradient')


def test_a_step_out_of_the_numbers_is_rejected_and_not_an_error():
  kernel = _kernel(hyper_step_size=1e4)
  start = _start(6)
  results = kernel.bootstrap_results(start)
  step = tf.function(kernel.one_step, autograph=False)
  for i in range(5):
    _, results = step(start, results, seed=tf.constant([i, 0]))
    for name in ('prior_params', 'hyper_log_prob', 'hyper_factor'):
      for leaf in tf.nest.flatten(tfp_private.get_innermost(results, name)):
        assert np.all(np.isfinite(leaf))
  assert np.any(
    np.isneginf(tfp_private.get_innermost(results, 'hyper_log_accept_ratio'))
  )


_FACTOR = np.array([[1.6, 0.0], [1.2, 0.4]])


def _bare(hyperprior=_hyperprior, log_likelihood=_log_likelihood, **options):
  """Returns the kernel without wrappers, theta's steps of shape _FACTOR."""
  return tfpa.proposals.LatentGaussianHyperparameters(
    log_likelihood,
    _prior_fn,
    hyperprior(),
    lambda *args: tfpa.MetropolisHastings(
      tfpa.proposals.UncalibratedAuxiliaryGradient(*args)
    ),
    hyper_factor=_FACTOR,
    **options,
  )


def test_steps_of_theta_have_the_covariance_of_the_factor():
  kappa, num_chains = 1e-4, 4000
  kernel = _bare(hyper_step_size=kappa)
  start = _start(num_chains)
  (_, theta), results = kernel.one_step(
    start, kernel.bootstrap_results(start), seed=(3, 4)
  )
  moved = np.asarray(results.hyper_is_accepted)
  steps = np.stack(
    [(theta[name] - start[1][name]).numpy()[moved] for name in sorted(theta)]
  )
  assert moved.sum() > 1000
  whitened = np.linalg.solve(kappa * _FACTOR, steps)
  error = np.sqrt(2.0 / whitened.shape[-1])
  covariance = whitened @ whitened.T / whitened.shape[-1]
  np.testing.assert_allclose(covariance, np.eye(2), atol=4.0 * error)


def test_ratio_with_a_factor_is_that_of_dense_densities():
  kernel = _bare(joint=False, hyper_step_size=0.3)
  start = _start(40)
  (x, theta), results = kernel.one_step(
    start, kernel.bootstrap_results(start), seed=(3, 4)
  )
  accepted = np.flatnonzero(results.hyper_is_accepted)
  assert 5 < len(accepted) < 38
  for i in accepted:
    old, new = (
      {name: np.exp(parts[name][i]) for name in parts}
      for parts in (start[1], theta)
    )
    step = [np.log(new[name] / old[name]) for name in sorted(old)]
    forth, back = (
      _log_normal(sign * np.array(step), 0.0, 0.09 * _FACTOR @ _FACTOR.T)
      for sign in (1.0, -1.0)
    )
    ratio = (
      _dense_log_joint(x[i].numpy(), **new)
      - _dense_log_joint(x[i].numpy(), **old)
      + back
      - forth
    )
    assert results.hyper_log_accept_ratio[i].numpy() == pytest.approx(
      ratio, abs=1e-9
    )


def _largest_shift(joint, temper):
  """Returns how far a step moves statistics of exact draws, in errors.

  Every chain has data of its own, drawn from theta and x drawn before: its
  state is a draw from its posterior.
  """
  num_chains = 20_000
  rng = np.random.default_rng(11)
  theta = {
    name: rng.normal(loc, scale, size=num_chains)
    for name, (loc, scale) in _LOG_NORMAL.items()
  }
  matrices = _kernel_matrix(
    np.exp(theta['amplitude']), np.exp(theta['length_scale']), np
  )
  noise = rng.normal(size=(2, num_chains, _D))
  x = _MEAN + np.einsum('nij,nj->ni', np.linalg.cholesky(matrices), noise[0])
  data = x + np.sqrt(_NOISE) * noise[1]

  def log_likelihood(x):
    miss = tf.constant(data) - x
    return -0.5 * temper * tf.reduce_sum(miss**2, axis=-1) / _NOISE

  kernel = _bare(
    log_likelihood=log_likelihood,
    joint=joint,
    step_size=0.6,
    hyper_step_size=0.4,
  )
  start = tf.constant(x), tf.nest.map_structure(tf.constant, theta)
  (after, theta_after), results = kernel.one_step(
    start, kernel.bootstrap_results(start), seed=(5, 6)
  )
  assert np.mean(results.hyper_is_accepted) > 0.05

  def statistics(x, theta):
    a, b = (np.asarray(theta[name]) for name in sorted(theta))
    size = np.log(np.sum((x - _MEAN) ** 2, axis=-1))
    miss = np.sum((x - data) ** 2, axis=-1)
    return np.stack([a, b, a * a, b * b, a * b, a * size, b * size, size, miss])

  shift = statistics(after.numpy(), theta_after) - statistics(x, theta)
  error = shift.std(axis=-1) / np.sqrt(num_chains)
  return np.max(np.abs(shift.mean(axis=-1) / error))


@pytest.mark.parametrize('joint', [True, False])
def test_a_step_with_a_factor_leaves_the_posterior_invariant(joint):
  # Nine statistics: beyond 3.9 errors once in a thousand seeds.
  assert _largest_shift(joint, temper=1.0) < 3.9


@pytest.mark.parametrize('joint', [True, False])
def test_a_tempered_likelihood_is_detected(joint):
  assert _largest_shift(joint, temper=1.2) > 8.0


def test_a_factor_of_another_size_is_refused():
  kernel = tfpa.proposals.LatentGaussianHyperparameters(
    **{**_bare().parameters, 'hyper_factor': np.eye(3)}
  )
  with pytest.raises(ValueError, match=r'\[2, 2\] matrix, as theta has 2'):
    kernel.bootstrap_results(_start(2))


def test_frozen_keeps_both_step_sizes_and_the_factor():
  kernel = _kernel(10)
  state = _start(2)
  results = kernel.bootstrap_results(state)
  for i in range(3):
    state, results = kernel.one_step(state, results, seed=(i, 0))
  fixed = tfpa.frozen(kernel, results)
  start = fixed.bootstrap_results(state)
  for name in ('step_size', 'hyper_step_size'):
    assert float(tfp_private.get_innermost(start, name)) == float(
      tfp_private.get_innermost(results, name)
    )
  factor = tfp_private.get_innermost(results, 'hyper_factor')
  assert np.any(factor.numpy() != np.eye(2))
  np.testing.assert_array_equal(
    tfp_private.get_innermost(start, 'hyper_factor'), factor
  )
