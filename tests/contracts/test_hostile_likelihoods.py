"""Likelihoods that are NaN, infinite or no function of the field."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from tests.contracts import latent_model as model
from tests.contracts import registry

_NUM_ADAPTING = 10


def _adapting(build, prior_fn=model.gaussian_prior, **options):
  return lambda function: build(function, prior_fn(), _NUM_ADAPTING, **options)


def _markov_prior():
  return tfpa.gaussian_priors.autoregression(
    tf.constant([0.5], tf.float64), 1.0, num_steps=5
  )


BUILDERS = {
  'marginal': _adapting(tfpa.marginal_gradient),
  'auxiliary_gradient': _adapting(tfpa.auxiliary_gradient),
  'auxiliary_gradient_u': _adapting(tfpa.auxiliary_gradient, auxiliary='u'),
  'crank_nicolson': _adapting(tfpa.crank_nicolson),
  'crank_nicolson_langevin': _adapting(tfpa.crank_nicolson, langevin=True),
  'prior_langevin': _adapting(baselines.prior_preconditioned_langevin),
  'second_order_gradient': _adapting(tfpa.second_order_gradient, _markov_prior),
  'elliptical_slice': lambda function: tfpa.elliptical_slice(
    function, model.gaussian_prior()
  ),
}
_each_builder = pytest.mark.parametrize(
  'name',
  registry.tiered(
    BUILDERS,
    registry.BASELINES + ('auxiliary_gradient_u', 'crank_nicolson_langevin'),
  ),
)
# Values where the first coordinate is above 0.5.
FAULTS = {'+inf': np.inf, 'NaN': np.nan, '-inf': -np.inf}
_IS_A_DENSITY = {'-inf'}


def _sample(kernel, **options):
  start = np.minimum(model.exact_draws(8), 0.4)
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
@_each_builder
def test_a_chain_never_enters_what_has_no_density_and_says_so(name, fault):
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    result = _sample(BUILDERS[name](_broken(fault)))
  assert np.all(np.isfinite(result.states))
  assert np.all(np.isfinite(result.trace['target_log_prob']))
  assert np.all(result.states[..., 0] <= 0.5)
  assert np.any(result.states[1:] != result.states[:-1])
  diverging = np.mean(result.trace['diverging'])
  if name == 'elliptical_slice' and fault in _IS_A_DENSITY:
    assert diverging == 0.0  # A slice ends where the support does.
  else:
    assert diverging > 0.0
    told = any('proposals diverged' in str(w.message) for w in caught)
    assert told == (diverging > 0.01)


@pytest.mark.full
@_each_builder
def test_a_density_without_faults_counts_none(name):
  result = _sample(BUILDERS[name](model.log_likelihood))
  assert not np.any(result.trace['diverging'])


@pytest.mark.full
@_each_builder
def test_a_likelihood_that_is_no_function_is_told_and_ends(name):
  generator = np.random.default_rng(0)

  def log_likelihood(x):
    # Higher at the first call than ever after: no slice reaches it again.
    lift = tf.numpy_function(
      lambda v: np.asarray(generator.normal(), v.dtype), [x], x.dtype
    )
    return model.log_likelihood(x) + 50.0 * tf.ensure_shape(lift, [])

  with pytest.warns(UserWarning, match='returned other values'):
    result = _sample(BUILDERS[name](log_likelihood), num_results=5)
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
  kernel = tfpa.elliptical_slice(log_likelihood, model.gaussian_prior())
  state = tf.constant(model.exact_draws(4))
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
