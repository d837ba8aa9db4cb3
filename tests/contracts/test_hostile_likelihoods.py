"""Likelihoods that are NaN, infinite or no function of the field."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tests.contracts import latent_model as model
from tests.contracts import registry

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
