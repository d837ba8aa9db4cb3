"""What kernels for latent Gaussian models owe beyond the common contracts."""

import functools
import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tests.contracts import latent_model as model
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core import tfp_private

# The second-order sampler takes the priors of paths alone.
_LATENT = [case for case in registry.LATENT if case.name != 'second_order']
_MARGINAL = cases.named('marginal')
each_latent = pytest.mark.parametrize('case', registry.tiered(_LATENT))


@each_latent
def test_a_step_makes_two_products_with_the_basis(case):
  counts = dict(to_coordinates=0, from_coordinates=0, pull=0)
  prior = model.gaussian_prior()

  def counted(field):
    function = getattr(prior, field)

    def call(*args):
      counts[field] += 1
      return function(*args)

    return call

  prior = prior._replace(**{field: counted(field) for field in counts})
  kernel = model.build(case, prior=prior)
  state = tf.constant(model.LAW.draw(2))
  results = kernel.bootstrap_results(state)
  counts.update(to_coordinates=0, from_coordinates=0, pull=0)
  kernel.one_step(state, results, seed=(0, 1))
  pulls = int(case.uses_gradient)
  assert counts == dict(to_coordinates=0, from_coordinates=1, pull=pulls)
  cost = tfpa.cost_per_step(kernel, adapting=False)
  assert (cost.target, cost.gradient) == (1, pulls)
  assert cost.matrix_product == sum(counts.values())


def _assert_coordinates_are_of(accepted, state):
  prior = model.gaussian_prior()
  np.testing.assert_allclose(
    accepted.coordinates,
    prior.to_coordinates(prior.params, state),
    atol=1e-12,
  )
  np.testing.assert_allclose(
    accepted.target_log_prob, model.log_likelihood(state), rtol=1e-12
  )


@pytest.mark.parametrize(
  'case', registry.tiered([*_LATENT, cases.named('elliptical_slice')])
)
def test_coordinates_in_the_results_stay_those_of_the_state(case):
  if case.learns == 'nothing':
    kernel = case.build(model.log_likelihood, prior=model.gaussian_prior())
  else:
    kernel = model.build(case)
  state = tf.constant(model.LAW.draw(4))
  results = kernel.bootstrap_results(state)
  step = targets.stepper(kernel, 'graph')
  for seed in targets.seeds(50):
    state, results = step(state, results, seed)
  _assert_coordinates_are_of(
    tfp_private.get_innermost(results, 'accepted_results'), state
  )


@each_latent
def test_adaptation_ends_after_its_steps_and_frozen_keeps_delta(case):
  kernel = model.build(case, num_adaptation_steps=4)
  start = tf.constant(model.LAW.draw(3))
  step = targets.stepper(kernel, 'graph')
  _, results = targets.run_steps(
    step, start, kernel.bootstrap_results(start), 7
  )
  deltas = [float(tfp_private.get_innermost(r, 'step_size')) for r in results]
  # TFP reports the delta that a step used; the average is used from the fifth.
  assert len(set(deltas[:4])) == 4
  assert len(set(deltas[4:])) == 1
  fixed = tfpa.frozen(kernel, results[-1])
  assert (
    float(fixed.bootstrap_results(start).accepted_results.step_size)
    == (deltas[-1])
  )


@pytest.mark.full
@pytest.mark.parametrize('name', ['marginal', 'pcn'])
@pytest.mark.parametrize('start', [1e-5, 1e4])
def test_delta_is_found_from_far_away(name, start):
  case = cases.named(name)
  result = tfpa.sample(
    model.build(case, 400, delta=start),
    tf.constant(model.LAW.draw(10)),
    num_results=200,
    seed=1,
    progress=False,
    jit_compile=False,
  )
  # 2000 decisions: 0.02 is two standard errors of independent ones.
  accepted = np.mean(result.trace['is_accepted'])
  assert abs(accepted - case.accept_prob) < 0.12


@pytest.mark.full
def test_delta_is_traced_and_a_poor_one_warned_about():
  run = functools.partial(
    tfpa.sample,
    init_state=tf.constant(model.LAW.draw(20)),
    num_results=50,
    seed=7,
    progress=False,
    jit_compile=False,
  )
  with pytest.warns(UserWarning, match='adaptation aimed at 0.55'):
    result = run(
      tfpa.marginal_gradient(
        model.log_likelihood, 1, prior=model.gaussian_prior(), delta=1e-4
      )
    )
  assert result.trace['step_size'].shape == (50,)
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    run(
      tfpa.marginal_gradient(
        model.log_likelihood, 200, prior=model.gaussian_prior()
      )
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
      tfpa.second_order_gradient(log_likelihood, 500, prior=prior),
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
  kernel = wrap(model.build(_MARGINAL, 3))
  state = tf.zeros([4, model.D], tf.float64)
  results = kernel.bootstrap_results(state)
  step = targets.stepper(kernel, 'graph')
  moved, after = step(state, results, tf.constant([0, 1]))
  assert np.any(moved != state)
  tf.nest.assert_same_structure(results, after)


def test_a_bijector_around_the_kernel_is_refused_with_the_reason():
  with pytest.raises(ValueError, match='built on that prior'):
    tfp.mcmc.TransformedTransitionKernel(
      model.build(_MARGINAL), tfp.bijectors.Exp()
    )


def test_replica_exchange_is_refused_with_the_reason():
  kernel = tfp.mcmc.ReplicaExchangeMC(
    model.log_likelihood,
    tf.constant([1.0, 0.5], tf.float64),
    lambda function: tfpa.marginal_gradient(
      function, 0, prior=model.gaussian_prior()
    ),
  )
  state = tf.zeros([4, model.D], tf.float64)
  with pytest.raises(ValueError, match='built on that prior'):
    kernel.one_step(state, kernel.bootstrap_results(state), seed=(0, 1))


def _refused(builder, **options):
  """Returns a call of a builder with the field's likelihood, and one step."""
  return lambda: builder(model.log_likelihood, 1, **options)


def _starts(state, function=model.log_likelihood, **options):
  """Returns a call of the first results of a sampler."""
  kernel = model.build(_MARGINAL, function=function, **options)
  return lambda: kernel.bootstrap_results(state)


_PRIOR = model.gaussian_prior()
_ROUGH = tfpa.gaussian_priors.spectral(np.ones([model.D, model.D]))
_HYPER = dict(
  prior_fn=model.gaussian_prior, hyperprior=tfp.distributions.Normal(0.0, 1.0)
)
_hyper = tfpa.latent_gaussian_hyperparameters


@pytest.mark.parametrize(
  'call, error, message',
  [
    (
      _refused(tfpa.marginal_gradient, prior=model.C),
      TypeError,
      'gaussian_priors.spectral',
    ),
    (
      _starts(
        tf.zeros([2, 4], tf.float64),
        lambda x: -tf.reduce_sum(x**2, axis=-1),
      ),
      ValueError,
      'event shape',
    ),
    (_starts(tf.zeros([2, model.D])), TypeError, 'Cast one of them'),
    (
      _refused(tfpa.crank_nicolson, prior=_ROUGH, preconditioned=False),
      ValueError,
      'jitter',
    ),
    (
      _refused(tfpa.auxiliary_gradient, prior=_PRIOR, auxiliary='w'),
      ValueError,
      "'z' or 'u'",
    ),
    (
      _starts(tf.zeros([3, model.D], tf.float64), delta=np.ones([3, 1])),
      ValueError,
      'one variance',
    ),
    (
      _refused(_hyper, **_HYPER, hyper_target_accept_prob=1.0),
      ValueError,
      '`hyper_target_accept_prob` must lie strictly',
    ),
    (
      _refused(_hyper, **_HYPER, hyper_step_size=0.0),
      ValueError,
      '`hyper_step_size` must be positive',
    ),
  ],
)
def test_bad_input_is_refused_with_the_way_out(call, error, message):
  with pytest.raises(error, match=message):
    call()


@pytest.mark.parametrize(
  'build',
  [
    lambda f, **o: tfpa.marginal_gradient(f, 4, **o),
    lambda f, **o: tfpa.second_order_gradient(f, 4, **o),
    lambda f, **o: tfpa.elliptical_slice(f, **o),
  ],
  ids=['marginal_gradient', 'second_order_gradient', 'elliptical_slice'],
)
@pytest.mark.parametrize('num_chains', [1, 3])
def test_chains_of_a_path_may_be_of_an_unknown_number(build, num_chains):
  prior = tfpa.gaussian_priors.random_walk(np.float64(0.3), model.D, 1.0)
  kernel = build(model.log_likelihood, prior=prior)

  def step(start):
    results = kernel.bootstrap_results(start)
    return kernel.one_step(start, results, seed=tf.constant([1, 2]))[0]

  start = tf.zeros([num_chains, model.D], tf.float64)
  spec = tf.TensorSpec([None, model.D], tf.float64)
  unknown = tf.function(step, input_signature=[spec], autograph=False)
  np.testing.assert_allclose(unknown(start), step(start), rtol=1e-10)
