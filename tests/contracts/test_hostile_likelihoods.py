"""Likelihoods that are NaN, infinite or no function of the field."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tests.contracts import latent_model as model
from tests.contracts import registry

_NUM_ADAPTING = 10
_PRIOR = model.gaussian_prior()


_CASES = [*registry.LATENT, cases.named('elliptical_slice')]
each_case = pytest.mark.parametrize('case', registry.tiered(_CASES))


def _build(case, function):
  # The second-order sampler has a prior of its own.
  prior = {} if case.name == 'second_order' else dict(prior=_PRIOR)
  return case.build(function, _NUM_ADAPTING, size=model.D, **prior)


# Values where the first coordinate is above 0.5.
FAULTS = {'+inf': np.inf, 'NaN': np.nan, '-inf': -np.inf}
_IS_A_DENSITY = {'-inf'}


def _sample(kernel, **options):
  start = np.minimum(model.LAW.draw(8), 0.4)
  arguments = dict(
    num_results=60, seed=3, progress=False, jit_compile=False, block_size=70
  )
  arguments.update(options)
  return tfpa.sample(kernel, tf.constant(start), **arguments)


def _broken(fault):
  def log_likelihood(x):
    value = model.log_likelihood(x)
    return tf.where(x[..., 0] > 0.5, tf.constant(FAULTS[fault], x.dtype), value)

  return log_likelihood


@pytest.mark.full
@pytest.mark.parametrize('fault', FAULTS)
@each_case
def test_a_chain_never_enters_what_has_no_density_and_says_so(case, fault):
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    result = _sample(_build(case, _broken(fault)))
  assert np.all(np.isfinite(result.states))
  assert np.all(np.isfinite(result.trace['target_log_prob']))
  assert np.all(result.states[..., 0] <= 0.5)
  assert np.any(result.states[1:] != result.states[:-1])
  diverging = np.mean(result.trace['diverging'])
  if case.name == 'elliptical_slice' and fault in _IS_A_DENSITY:
    assert diverging == 0.0  # A slice ends where the support does.
  else:
    assert diverging > 0.0
    told = any('proposals diverged' in str(w.message) for w in caught)
    assert told == (diverging > 0.01)


@pytest.mark.full
@each_case
def test_a_density_without_faults_counts_none(case):
  result = _sample(_build(case, model.log_likelihood))
  assert not np.any(result.trace['diverging'])


@pytest.mark.full
@each_case
def test_a_likelihood_that_is_no_function_is_told_and_ends(case):
  generator = np.random.default_rng(0)

  def log_likelihood(x):
    # Higher at the first call than ever after: no slice reaches it again.
    lift = tf.numpy_function(
      lambda v: np.asarray(generator.normal(), v.dtype), [x], x.dtype
    )
    return model.log_likelihood(x) + 50.0 * tf.ensure_shape(lift, [])

  with pytest.warns(UserWarning, match='returned other values'):
    result = _sample(_build(case, log_likelihood), num_results=5)
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
