"""A field with its hyperparameters, against dense densities and a grid."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.latent import hyperparameter_model as model
from tfp_adaptive.core import tfp_private
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
