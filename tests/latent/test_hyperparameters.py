"""A field with its hyperparameters, against dense densities and a grid."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tests.latent import hyperparameter_model as model
from tfp_adaptive.core import tfp_private
from tfp_adaptive.latent import hyperparameter_adaptation
from tfp_adaptive.latent import hyperparameter_moves


@pytest.mark.parametrize('joint', [True, False])
def test_ratio_is_that_of_dense_densities(joint):
  delta = 0.4
  amplitudes = tf.constant([0.8, 1.3], tf.float64)
  lengths = tf.constant([1.1, 0.6], tf.float64)
  prior = model.prior_fn(amplitudes, lengths)
  proposed = model.prior_fn(amplitudes * 1.2, lengths * 0.9)
  x, _ = model.start(2)
  proposal = tfpa.proposals.UncalibratedAuxiliaryGradient(
    model.log_likelihood, prior, delta=delta
  )
  latent = proposal.bootstrap_results(x)
  seen = {}

  def evaluate(prior, coordinates):
    there = tfpa.proposals.UncalibratedAuxiliaryGradient(
      model.log_likelihood, prior
    )
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
    ratio = model.dense_log_joint(there, *new_theta) - model.dense_log_joint(
      here, *theta
    )
    # The hyperprior is not part of the moves.
    for old, new, (loc, scale) in zip(
      theta, new_theta, model.LOG_NORMAL.values()
    ):
      ratio += 0.5 * ((np.log(new) - loc) / scale) ** 2
      ratio -= 0.5 * ((np.log(old) - loc) / scale) ** 2
    if joint:
      z = seen['z'][i].numpy()
      noise = 0.5 * delta * np.eye(model.D)
      for sign, point, target, law in (
        (1.0, there, here, theta),
        (-1.0, here, there, new_theta),
      ):
        ratio += sign * model.log_normal(
          z, point + 0.5 * delta * model.gradient(point), noise
        )
        matrix = model.kernel_matrix(*np.float64(law), np)
        gain = matrix @ np.linalg.inv(matrix + noise)
        ratio += sign * model.log_normal(
          target, model.MEAN + gain @ (z - model.MEAN), 0.5 * delta * gain
        )
    assert log_ratio[i].numpy() == pytest.approx(ratio, abs=1e-10)
    np.testing.assert_allclose(
      landing.coordinates[i],
      proposed.to_coordinates(proposed.params, landing.state)[i],
      atol=1e-10,
    )
    np.testing.assert_allclose(
      landing.grads_coordinates[i],
      proposed.pull(
        proposed.params, tf.constant(model.gradient(landing.state))
      )[i],
      atol=1e-10,
    )


def _grid_posterior():
  """Returns a grid of log theta and its exact posterior weights."""
  axis = np.linspace(-2.5, 2.5, 81)
  weights = np.empty([axis.size, axis.size])
  for i, log_amplitude in enumerate(axis):
    for j, log_length in enumerate(axis):
      matrix = model.kernel_matrix(
        np.exp(np.float64(log_amplitude)), np.exp(np.float64(log_length)), np
      )
      log_prob = model.log_normal(
        model.DATA, model.MEAN, matrix + model.NOISE * np.eye(model.D)
      )
      for value, (loc, scale) in zip(
        (log_amplitude, log_length), model.LOG_NORMAL.values()
      ):
        log_prob -= 0.5 * ((value - loc) / scale) ** 2
      weights[i, j] = log_prob
  weights = np.exp(weights - weights.max())
  return axis, weights / weights.sum()


@pytest.mark.full
@pytest.mark.parametrize(
  'joint, latent',
  [
    pytest.param(True, 'auxiliary_gradient', marks=pytest.mark.nightly),
    (False, 'marginal_gradient'),
    pytest.param(False, 'crank_nicolson_langevin', marks=pytest.mark.nightly),
    pytest.param(False, 'elliptical_slice', marks=pytest.mark.nightly),
  ],
)
def test_hyperparameters_follow_the_exact_posterior(joint, latent):
  num_chains, num_steps = 400, 300
  kernel = model.kernel(150, joint=joint, latent=latent, num_latent_updates=2)
  result = tfpa.sample(
    kernel,
    model.start(num_chains),
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
    loc, scale = model.LOG_NORMAL[name]
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


@pytest.mark.full
def test_both_step_sizes_are_tuned_and_then_fixed():
  kernel = model.kernel(30, delta=1e-3, hyper_step_size=50.0)
  steps = collections.defaultdict(list)
  state = model.start(20)
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


@pytest.mark.parametrize('latent', ['auxiliary_gradient', 'elliptical_slice'])
def test_hyperparameters_that_overflow_are_rejected_by_the_prior_alone(latent):
  def prior_fn(amplitude, length_scale):
    return model.prior_fn(tf.exp(amplitude), tf.exp(length_scale))

  kernel = tfpa.latent_gaussian_hyperparameters(
    model.log_likelihood,
    0,
    prior_fn=prior_fn,
    # It refuses nothing.
    hyperprior=lambda amplitude, length_scale: 0.0 * amplitude,
    joint=False,
    latent=latent,
    hyper_step_size=1e4,
  )
  state = model.start(6)
  results = kernel.bootstrap_results(state)
  step = tf.function(kernel.one_step, autograph=False)
  for i in range(3):
    state, results = step(state, results, seed=tf.constant([i, 2]))
    for leaf in tf.nest.flatten((state, results.inner_results)):
      assert not leaf.dtype.is_floating or not np.any(np.isnan(leaf))
    params = tfp_private.get_innermost(results, 'prior_params')
    assert all(np.all(np.isfinite(leaf)) for leaf in tf.nest.flatten(params))


@pytest.mark.parametrize('latent', ['elliptical_slice', 'marginal_gradient'])
def test_gibbs_steps_cost_what_their_field_does(latent):
  kernel = model.kernel(joint=False, latent=latent, num_latent_updates=3)
  cost = tfpa.cost_per_step(kernel, adapting=False)
  num_gradients = 0 if latent == 'elliptical_slice' else 3
  assert (cost.target, cost.gradient) == (3, num_gradients)


@pytest.mark.full
def test_frozen_keeps_both_step_sizes_and_the_factor():
  kernel = model.kernel(10)
  state = model.start(2)
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


# Steps of theta shaped by a factor: their covariance and their ratio.


_FACTOR = np.array([[1.6, 0.0], [1.2, 0.4]])


def _bare(**options):
  """Returns the kernel without wrappers, theta's steps of shape _FACTOR."""
  return tfpa.proposals.LatentGaussianHyperparameters(
    model.log_likelihood,
    model.prior_fn,
    model.hyperprior(),
    lambda *args: tfpa.MetropolisHastings(
      tfpa.proposals.UncalibratedAuxiliaryGradient(*args)
    ),
    hyper_factor=_FACTOR,
    **options,
  )


def test_steps_of_theta_have_the_covariance_of_the_factor():
  kappa, num_chains = 1e-4, 4000
  kernel = _bare(hyper_step_size=kappa)
  start = model.start(num_chains)
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
  start = model.start(40)
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
      model.log_normal(sign * np.array(step), 0.0, 0.09 * _FACTOR @ _FACTOR.T)
      for sign in (1.0, -1.0)
    )
    ratio = (
      model.dense_log_joint(x[i].numpy(), **new)
      - model.dense_log_joint(x[i].numpy(), **old)
      + back
      - forth
    )
    assert results.hyper_log_accept_ratio[i].numpy() == pytest.approx(
      ratio, abs=1e-9
    )


# Draws of a step of field and hyperparameters do not depend on each other.


_NUM_CHAINS = 20_000


def test_the_noise_of_the_joint_move_knows_nothing_of_the_field_s_decision():
  # Fields of one number, so that chain by chain one draw would do for both.
  drawn = []

  def prior_fn(amplitude):
    prior = tfpa.gaussian_priors.spectral(
      tf.exp(amplitude)[..., tf.newaxis, tf.newaxis]
    )

    def smoother(params, variance):
      functions = prior.smoother(params, variance)

      def draw(rows, noise):
        drawn.append(noise)
        return functions.draw(rows, noise)

      return functions._replace(draw=draw)

    return prior._replace(smoother=smoother)

  kernel = tfpa.proposals.LatentGaussianHyperparameters(
    lambda x: tf.reduce_sum(tf.cos(3.0 * x), axis=-1),
    prior_fn,
    lambda amplitude: -0.5 * amplitude**2,
    lambda *args: tfpa.MetropolisHastings(
      tfpa.proposals.UncalibratedAuxiliaryGradient(*args)
    ),
    delta=1.0,
  )
  state = (
    tf.constant(np.random.default_rng(0).normal(size=(_NUM_CHAINS, 1))),
    tf.zeros([_NUM_CHAINS], tf.float64),
  )
  _, results = kernel.one_step(
    state, kernel.bootstrap_results(state), seed=(1, 2)
  )
  of_field, of_move = drawn
  is_accepted = results.inner_results.is_accepted.numpy()
  assert 0.2 < np.mean(is_accepted) < 0.8
  squares = of_move[:, 0].numpy() ** 2
  correlations = [
    np.corrcoef(squares, is_accepted)[0, 1],
    np.corrcoef(of_move[:, 0], of_field[:, 0])[0, 1],
    np.corrcoef(squares, of_field[:, 0] ** 2)[0, 1],
  ]
  # Standard errors.
  assert np.max(np.abs(correlations)) < 5.0 / _NUM_CHAINS**0.5


# Steps of hyperparameters, learned from those visited, against numpy.


# Without data theta follows its prior N(_LOC, _COVARIANCE): known exactly.
_LOC = np.array([0.3, -0.2, 0.5])
_SHAPE = np.array([[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [-0.5, 0.1, 0.3]])


def _no_data(x):
  return 0.0 * tf.reduce_sum(x, axis=-1)


def _hyper_log_prob(theta):
  whitened = tf.linalg.matvec(
    tf.constant(np.linalg.inv(0.5 * _SHAPE), theta.dtype),
    theta - tf.constant(_LOC, theta.dtype),
  )
  return -0.5 * tf.reduce_sum(whitened**2, axis=-1)


def _prior_fn(theta):
  variance = tf.exp(0.4 * tf.reduce_sum(theta, axis=-1))
  return tfpa.gaussian_priors.spectral(
    variance[..., tf.newaxis, tf.newaxis]
    * tf.constant([[1.0, 0.5], [0.5, 1.0]], theta.dtype)
  )


def _kernel(num_adaptation_steps, **options):
  return tfpa.adaptation.HyperparameterAdaptation(
    tfpa.proposals.LatentGaussianHyperparameters(
      _no_data,
      _prior_fn,
      _hyper_log_prob,
      lambda *args: tfpa.MetropolisHastings(
        tfpa.proposals.UncalibratedAuxiliaryGradient(*args)
      ),
      **{'delta': 2.0, 'hyper_step_size': 0.4, **options},
    ),
    num_adaptation_steps,
  )


def _start(chains, dtype=np.float64):
  rng = np.random.default_rng(2)
  return (
    tf.constant(rng.normal(size=(*chains, 2)), dtype),
    tf.constant(_LOC + 0.1 * rng.normal(size=(*chains, 3)), dtype),
  )


def _learned(results, name):
  return tfp_private.get_innermost(results, name).numpy()


@pytest.mark.parametrize('chains', [(), (2, 2)])
def test_mean_covariance_and_factor_follow_their_recursions(chains):
  kernel = _kernel(6)
  start = _start(chains)
  before = kernel.bootstrap_results(start)
  states, all_results = targets.run(kernel, start, 6, results=before)
  num_chains = int(np.prod(chains))
  mean = start[1].numpy().reshape(-1, 3).mean(axis=0)
  covariance = np.zeros([3, 3])
  np.testing.assert_array_equal(_learned(before, 'hyper_factor'), np.eye(3))
  for step, (state, results) in enumerate(zip(states, all_results), start=1):
    weight = 2.0 / (step + 2.0)
    centered = state[1].numpy().reshape(-1, 3) - mean
    covariance = (1.0 - weight) * covariance + weight * (
      centered.T @ centered / num_chains
    )
    mean = mean + weight * centered.mean(axis=0)
    variance = np.trace(covariance) / 3.0
    shrunk = covariance + variance * 15.0 / (step * num_chains) * np.eye(3)
    if variance == 0.0:
      shrunk = np.eye(3)
    shrunk /= np.linalg.det(shrunk) ** (1.0 / 3.0)
    np.testing.assert_allclose(results.hyper_mean, mean, rtol=1e-9)
    np.testing.assert_allclose(
      results.hyper_covariance, covariance, rtol=1e-9, atol=1e-15
    )
    np.testing.assert_allclose(
      _learned(results, 'hyper_factor'),
      np.linalg.cholesky(shrunk),
      rtol=1e-9,
      atol=1e-12,
    )


def test_nothing_accepted_leaves_the_identity():
  kernel = _kernel(5, hyper_step_size=30.0)
  start = _start(())
  _, all_results = targets.run(kernel, start, 3)
  for results in all_results:
    assert not _learned(results, 'hyper_is_accepted')
    np.testing.assert_array_equal(_learned(results, 'hyper_factor'), np.eye(3))


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
@pytest.mark.parametrize('step', [1, 10**6, 2 * 10**9])
def test_the_factor_is_regular_if_chains_have_moved_along_a_line_or_not_at_all(
  step, dtype
):
  line = np.linspace(-1.0, 1.0, 64)[:, np.newaxis] * np.ones(3)
  covariance = tf.ones([3, 3], dtype)
  mean, step = tf.zeros([3], dtype), tf.constant(step)
  *_, factor = hyperparameter_adaptation._adapted(
    mean, covariance, tf.constant(line, dtype), step
  )
  assert np.all(np.isfinite(factor)) and np.all(np.diag(factor) > 0.0)
  np.testing.assert_allclose(np.prod(np.diag(factor)), 1.0, rtol=1e-3)
  longest = np.linalg.svd(factor)[0][:, 0]
  np.testing.assert_allclose(np.abs(longest), np.full(3, 3**-0.5), rtol=1e-2)
  # The mean of equal numbers is not that number, but nothing has moved. A
  # ridge of squares that underflow would be zero.
  equal = np.tile([0.1, 0.3, 0.7], [64, 1])
  tiny = line * np.sqrt(np.finfo(dtype).tiny)
  for rows in (equal, tiny):
    rows = tf.constant(rows, dtype)
    *_, factor = hyperparameter_adaptation._adapted(
      tf.reduce_mean(rows, axis=0), tf.zeros([3, 3], dtype), rows, step
    )
    np.testing.assert_array_equal(factor, np.eye(3))


# Priors that fail at some hyperparameters.


def _correlated(build):
  """Returns theta -> the prior of two points with correlation theta."""
  one = np.array([[0.0, 1.0], [1.0, 0.0]])
  return lambda theta: build(
    np.eye(2) + theta[..., np.newaxis, np.newaxis] * one
  )


def _of_correlation(build, joint):
  return tfpa.latent_gaussian_hyperparameters(
    lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1),
    0,
    prior_fn=_correlated(build),
    hyperprior=lambda theta: -0.5 * theta**2,
    joint=joint,
    hyper_step_size=1.0,
  )


@pytest.mark.parametrize(
  'build, joint',
  [
    (tfpa.gaussian_priors.cholesky, True),
    (tfpa.gaussian_priors.cholesky, False),
    (tfpa.gaussian_priors.spectral, False),
  ],
)
def test_moves_whose_prior_fails_are_rejected_counted_and_told(build, joint):
  start = tf.zeros([8, 2], tf.float64), tf.zeros([8], tf.float64)
  with pytest.warns(UserWarning, match='no finite density in float64'):
    result = tfpa.sample(
      _of_correlation(build, joint),
      start,
      num_results=100,
      seed=3,
      progress=False,
      jit_compile=False,
    )
  _, theta = result.states
  assert np.max(np.abs(theta)) < 1.0
  failed = result.trace['prior_has_failed']
  # theta' is theta + N(0, 1), so that it leaves (-1, 1) in 0.32 or more.
  assert np.mean(failed) > 0.25
  assert not np.any(failed & result.trace['hyper_is_accepted'])


def test_gibbs_moves_nothing_in_a_graph_if_the_prior_is_always_singular():
  kernel = _of_correlation(
    lambda c: tfpa.gaussian_priors.spectral(c * 0 + 1), 0
  )
  start = tf.zeros([4, 2], tf.float64), tf.zeros([4], tf.float64)
  with pytest.raises(ValueError, match='singular to working precision'):
    kernel.bootstrap_results(start)

  @tf.function(autograph=False)
  def moves():
    results = kernel.bootstrap_results(start)
    return kernel.one_step(start, results, seed=(1, 2))

  _, results = moves()
  assert not np.any(_learned(results, 'hyper_is_accepted'))
  assert np.all(_learned(results, 'prior_has_failed'))
