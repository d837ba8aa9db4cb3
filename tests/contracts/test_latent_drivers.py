"""Latent kernels in drivers and wrappers: draws, warnings, refusals."""

import functools
import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import latent_model as model
from tests.contracts import targets


@pytest.fixture(scope='module')
def draws():
  return tf.constant(model.exact_draws(50_000))


@pytest.mark.full
def test_elliptical_slice_leaves_the_posterior_invariant(draws):
  def run(function):
    kernel = tfpa.elliptical_slice(function, model.gaussian_prior())
    # It moves little in a step where the likelihood is informative.
    state, results = draws, kernel.bootstrap_results(draws)
    step = targets.stepper(kernel, 'graph')
    for seed in targets.seeds(3):
      state, results = step(state, results, seed)
    accepted = results.accepted_results
    np.testing.assert_allclose(
      accepted.target_log_prob, function(state), rtol=1e-10
    )
    prior = model.gaussian_prior()
    np.testing.assert_allclose(
      accepted.coordinates,
      prior.to_coordinates(prior.params, state),
      atol=1e-12,
    )
    return model.smallest_p_value(draws.numpy(), state.numpy())

  assert run(model.log_likelihood) > 1e-3
  assert run(functools.partial(model.log_likelihood, temper=1.3)) < 1e-6


@pytest.mark.full
def test_elliptical_slice_never_enters_a_region_without_a_number():
  def log_likelihood(x):
    inside = tf.reduce_all(x < 0.8, axis=-1)
    return tf.where(inside, model.log_likelihood(x), np.nan)

  kernel = tfpa.elliptical_slice(log_likelihood, model.gaussian_prior())
  state = tf.constant(np.minimum(model.exact_draws(50), 0.7))
  results = kernel.bootstrap_results(state)
  step = targets.stepper(kernel, 'xla')
  for seed in targets.seeds(5):
    state, results = step(state, results, seed)
  assert np.all(state < 0.8)


@pytest.mark.full
def test_delta_is_traced_and_a_poor_one_warned_about():
  run = functools.partial(
    tfpa.sample,
    init_state=tf.constant(model.exact_draws(20)),
    num_results=50,
    seed=7,
    progress=False,
    jit_compile=False,
  )
  with pytest.warns(UserWarning, match='adaptation aimed at 0.55'):
    result = run(
      tfpa.marginal_gradient(
        model.log_likelihood, model.gaussian_prior(), 1, step_size=1e-4
      )
    )
  assert result.trace['step_size'].shape == (50,)
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    run(
      tfpa.marginal_gradient(model.log_likelihood, model.gaussian_prior(), 200)
    )


@pytest.mark.full
@pytest.mark.parametrize('is_flat', [False, True], ids=['quadratic', 'flat'])
def test_a_delta_that_may_be_as_large_as_it_likes_stays_a_number(is_flat):
  # All is accepted at any delta: the search raised it until float32 ended.
  mean, precision = np.float32([1.0, -0.5]), np.float32([2.0, 4.0])
  if is_flat:
    precision = np.zeros(2, np.float32)

  def log_likelihood(x):
    return -0.5 * tf.reduce_sum(precision * (x - mean) ** 2, axis=-1)

  prior = tfpa.gaussian_priors.autoregression([0.5], np.float32(0.75**0.5), 2)
  with warnings.catch_warnings():
    warnings.simplefilter('error', UserWarning)
    result = tfpa.sample(
      tfpa.second_order_gradient(log_likelihood, prior, 500),
      tf.zeros([20, 2]),
      num_results=1000,
      progress=False,
      jit_compile=False,
    )
  assert result.trace['is_accepted'].mean() > 0.99
  assert not result.trace['diverging'].any()
  prior_precision = np.linalg.inv([[1.0, 0.5], [0.5, 1.0]])
  covariance = np.linalg.inv(prior_precision + np.diag(precision))
  draws = result.states.reshape(-1, 2)
  # Independent draws: five standard errors.
  np.testing.assert_allclose(
    draws.mean(axis=0),
    covariance @ (precision * mean),
    atol=5 * np.sqrt(covariance.max() / len(draws)),
  )
  np.testing.assert_allclose(np.cov(draws.T), covariance, rtol=0.1, atol=0.01)


@pytest.mark.full
def test_same_seed_same_draws_in_any_blocks():
  run = functools.partial(
    tfpa.sample,
    model.build('marginal', 5),
    tf.constant(model.exact_draws(3)),
    num_results=20,
    progress=False,
  )
  whole = run(seed=7)
  np.testing.assert_array_equal(run(seed=7, block_size=6).states, whole.states)
  assert np.any(run(seed=8).states != whole.states)


@pytest.mark.full
@pytest.mark.parametrize(
  'wrap',
  [
    lambda k: tfp.mcmc.SimpleStepSizeAdaptation(k.inner_kernel, 3),
    lambda k: tfp.experimental.mcmc.ThinningKernel(k, 1),
    lambda k: tfp.experimental.mcmc.WithReductions(
      k, tfp.experimental.mcmc.ExpectationsReducer()
    ),
  ],
  ids=['simple_step_size', 'thinning', 'reductions'],
)
def test_wrappers_of_tfp_step(wrap):
  kernel = wrap(model.build('marginal', 3))
  state = tf.zeros([4, model.D], tf.float64)
  results = kernel.bootstrap_results(state)
  step = targets.stepper(kernel, 'graph')
  moved, after = step(state, results, tf.constant([0, 1]))
  assert np.any(moved != state)
  tf.nest.assert_same_structure(results, after)


def test_a_bijector_around_the_kernel_is_refused_with_the_reason():
  with pytest.raises(ValueError, match='built on that prior'):
    tfp.mcmc.TransformedTransitionKernel(
      model.build('marginal'), tfp.bijectors.Exp()
    )


def test_replica_exchange_is_refused_with_the_reason():
  kernel = tfp.mcmc.ReplicaExchangeMC(
    model.log_likelihood,
    tf.constant([1.0, 0.5], tf.float64),
    lambda function: tfpa.marginal_gradient(
      function, model.gaussian_prior(), 0
    ),
  )
  state = tf.zeros([4, model.D], tf.float64)
  with pytest.raises(ValueError, match='built on that prior'):
    kernel.one_step(state, kernel.bootstrap_results(state), seed=(0, 1))


@pytest.mark.parametrize(
  'call, error, message',
  [
    (
      lambda: tfpa.marginal_gradient(3, model.gaussian_prior(), 1),
      TypeError,
      'callable',
    ),
    (
      lambda: tfpa.marginal_gradient(model.log_likelihood, model.C, 1),
      TypeError,
      'gaussian_priors.spectral',
    ),
    (
      lambda: model.build(
        'marginal', function=lambda x: -tf.reduce_sum(x**2, axis=-1)
      ).bootstrap_results(tf.zeros([2, 4], tf.float64)),
      ValueError,
      'event shape',
    ),
    (
      lambda: model.build('marginal').bootstrap_results(tf.zeros([2, model.D])),
      TypeError,
      'Cast one of them',
    ),
    (
      lambda: tfpa.crank_nicolson(
        model.log_likelihood,
        tfpa.gaussian_priors.spectral(np.ones([model.D, model.D])),
        1,
        preconditioned=False,
      ),
      ValueError,
      'jitter',
    ),
    (
      lambda: tfpa.auxiliary_gradient(
        model.log_likelihood, model.gaussian_prior(), 1, auxiliary='w'
      ),
      ValueError,
      "'z' or 'u'",
    ),
    (
      lambda: tfpa.marginal_gradient(
        model.log_likelihood,
        model.gaussian_prior(),
        0,
        step_size=np.ones([3, 1]),
      ).bootstrap_results(tf.zeros([3, model.D], tf.float64)),
      ValueError,
      'one variance',
    ),
    (
      lambda: tfpa.latent_gaussian_hyperparameters(
        model.log_likelihood,
        model.gaussian_prior,
        tfp.distributions.Normal(0.0, 1.0),
        1,
        hyper_target_accept_prob=1.0,
      ),
      ValueError,
      '`hyper_target_accept_prob` must lie strictly',
    ),
    (
      lambda: tfpa.latent_gaussian_hyperparameters(
        model.log_likelihood,
        model.gaussian_prior,
        tfp.distributions.Normal(0.0, 1.0),
        1,
        hyper_step_size=0.0,
      ),
      ValueError,
      '`hyper_step_size` must be positive',
    ),
  ],
)
def test_bad_input_is_refused_with_the_way_out(call, error, message):
  with pytest.raises(error, match=message):
    call()
