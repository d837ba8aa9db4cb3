"""What kernels for latent Gaussian models owe beyond the common contracts."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tests.contracts import latent_model as model
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core import tfp_private

# The second-order sampler takes the priors of paths alone.
_LATENT = [case for case in registry.LATENT if case.name != 'second_order']
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
    accepted.coordinates, prior.to_coordinates(prior.params, state), atol=1e-12
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


# Likelihoods that are NaN, infinite or no function of the field.


_CASES = [*registry.LATENT, cases.named('elliptical_slice')]


def _sample(case, function, num_results=60):
  # The second-order sampler has a prior of its own.
  prior = {} if case.name == 'second_order' else dict(prior=_PRIOR)
  kernel = case.build(function, 10, size=model.D, **prior)
  start = tf.constant(np.minimum(model.LAW.draw(8), 0.4))
  run = dict(seed=3, progress=False, jit_compile=False, block_size=70)
  return tfpa.sample(kernel, start, num_results, **run)


_PRIOR = model.gaussian_prior()


@pytest.mark.full
@pytest.mark.parametrize('fault', [np.inf, np.nan, -np.inf, None])
@pytest.mark.parametrize('name', ['marginal', 'elliptical_slice'])
def test_a_chain_never_enters_what_has_no_density_and_says_so(name, fault):
  def log_likelihood(x):
    value = model.log_likelihood(x)
    if fault is None:  # The negative control.
      return value
    return tf.where(x[..., 0] > 0.5, tf.constant(fault, x.dtype), value)

  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    result = _sample(cases.named(name), log_likelihood)
  assert np.all(np.isfinite(result.trace['target_log_prob']))
  assert np.any(result.states[1:] != result.states[:-1])
  assert fault is None or np.all(result.states[..., 0] <= 0.5)
  diverging = np.mean(result.trace['diverging'])
  # A slice ends where the support does.
  is_slice_of_a_density = name == 'elliptical_slice' and fault == -np.inf
  assert (diverging == 0.0) == (fault is None or is_slice_of_a_density)
  told = any('proposals diverged' in str(w.message) for w in caught)
  assert told == (diverging > 0.01)


@pytest.mark.full
@pytest.mark.parametrize('case', registry.tiered(_CASES))
def test_a_likelihood_that_is_no_function_is_told_and_ends(case):
  generator = np.random.default_rng(0)

  def log_likelihood(x):
    # Higher at the first call than ever after: no slice reaches it again.
    lift = tf.numpy_function(
      lambda v: np.asarray(generator.normal(), v.dtype), [x], x.dtype
    )
    return model.log_likelihood(x) + 50.0 * tf.ensure_shape(lift, [])

  with pytest.warns(UserWarning, match='returned other values'):
    result = _sample(case, log_likelihood, num_results=5)
  assert np.all(np.isfinite(result.states))


@pytest.mark.full
def test_a_slice_without_end_keeps_the_state_and_counts():
  def log_likelihood(x):
    # Falls at every call: not even the state itself is high enough again.
    calls.append(None)
    fall = tf.numpy_function(
      lambda v: np.asarray(1000.0 * next(count), v.dtype), [x], x.dtype
    )
    return model.log_likelihood(x) - tf.ensure_shape(fall, [])

  calls, count = [], iter(range(10**6))
  kernel = tfpa.elliptical_slice(log_likelihood, prior=model.gaussian_prior())
  state = tf.constant(model.LAW.draw(4))
  results = kernel.bootstrap_results(state)
  step = tf.function(kernel.one_step, autograph=False)
  moved, after = step(state, results, seed=tf.constant([1, 2]))
  assert 90 < next(count) < 110
  np.testing.assert_allclose(moved, state, atol=1e-12)
  assert np.all(after.has_divergence)
  np.testing.assert_array_equal(after.angle, np.zeros(4))
  np.testing.assert_array_equal(
    after.accepted_results.target_log_prob,
    results.accepted_results.target_log_prob,
  )
