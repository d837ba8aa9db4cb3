"""Small steps while delta is tuned, and starts in steep places."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.core import step_sizes
from tfp_adaptive.core import tfp_private
from tfp_adaptive.latent import latent_proposal

_SIZE = 3
_NUM_ADAPTING = 400


def _log_likelihood(x):
  """Returns the log-likelihood of log variances x; data have variance e^8."""
  return -0.5 * tf.reduce_sum(x + tf.exp(8.0 - x), axis=-1)


def _prior(variance, dtype=tf.float64):
  return tfpa.gaussian_priors.spectral(
    tf.constant(variance * np.eye(_SIZE), dtype)
  )


def _last_draws(kernel):
  """Returns [200, 8, 3]: seven chains start well, the last one far off."""
  start = np.random.default_rng(0).normal(8.0, 0.5, size=(8, _SIZE))
  start[-1] = -3.0  # The gradient there is e^11 / 2.

  @tf.function(jit_compile=True, autograph=False)
  def run():
    return tfp.mcmc.sample_chain(
      200,
      tf.constant(start),
      kernel=kernel,
      num_burnin_steps=_NUM_ADAPTING,
      trace_fn=None,
      seed=tf.constant([4, 2]),
    )

  return run().numpy()


@pytest.mark.full
@pytest.mark.parametrize('share', [0.2, 0.0])
def test_a_chain_that_starts_where_the_target_is_steep_comes_home(share):
  draws = _last_draws(
    tfpa.marginal_gradient(
      _log_likelihood,
      _NUM_ADAPTING,
      prior=_prior(100.0),
      short_step_share=share,
    )
  )
  means = draws.mean(axis=(0, 2))
  assert np.all(np.abs(means[:-1] - 8.0) < 2.0), means
  if share == 0.0:  # The negative control: it stays there.
    assert np.all(draws[:, -1] == -3.0)
  else:
    assert abs(means[-1] - 8.0) < 2.0 and np.all(draws.std(axis=0) > 0.3)


@pytest.mark.parametrize('dtype', [tf.float32, tf.float64])
def test_a_share_is_short_while_adapting_and_none_after(dtype):
  kernel = tfpa.marginal_gradient(
    _log_likelihood, 60, prior=_prior(100.0, dtype)
  )
  state = tf.fill([4, _SIZE], tf.constant(8.0, dtype))
  results = kernel.bootstrap_results(state)
  one_step = tf.function(kernel.one_step, autograph=False)
  seen = collections.defaultdict(list)
  for step in range(90):
    state, results = one_step(state, results, seed=tf.constant([step, 5]))
    for name in ('is_short', 'step_size'):
      found = tfp_private.get_innermost(results, name)
      seen[name].append(found.numpy())
  assert 3 < np.sum(seen['is_short'][:60]) < 25
  assert not np.any(seen['is_short'][60:])
  # What is tuned and then kept is delta, never a short one.
  assert len(set(seen['step_size'][60:])) == 1
  assert np.min(seen['step_size'][30:]) > 0.1 * np.max(seen['step_size'][30:])


class _SeesItsStep(tfp.mcmc.TransitionKernel):
  """Moves nowhere; the state becomes the step size that it was given."""

  parameters = {}
  is_calibrated = True
  Results = collections.namedtuple('Results', ['step_size'])

  def bootstrap_results(self, init_state):
    return self.Results(tf.constant(1.0, init_state.dtype))

  def one_step(self, current_state, previous_kernel_results, seed=None):
    step_size = previous_kernel_results.step_size
    return 0.0 * current_state + step_size, previous_kernel_results


@pytest.mark.parametrize('step, can_be_short', [(4, True), (5, False)])
def test_no_step_is_short_from_the_first_frozen_one_on(step, can_be_short):
  kernel = latent_proposal.with_short_steps(_SeesItsStep(), 5, 0.5)
  state = tf.zeros([2])
  results = kernel.bootstrap_results(state)._replace(step=tf.constant(step))
  one_step = tf.function(kernel.one_step, autograph=False)
  seen = [one_step(state, results, seed=s)[0] for s in targets.seeds(30)]
  assert np.any(np.array(seen) < 1.0) == can_be_short


def test_a_short_step_counts_as_one_that_was_accepted_as_wanted():
  Results = collections.namedtuple('Results', ['log_accept_ratio', 'is_short'])
  kernel = step_sizes.tuned(_SeesItsStep(), 10, 0.25)
  get = kernel.parameters['log_accept_prob_getter_fn']
  ratio = tf.constant([-3.0, 2.0])
  np.testing.assert_allclose(get(Results(ratio, tf.constant(False))), [-3, 0])
  np.testing.assert_allclose(
    get(Results(ratio, tf.constant(True))), np.log([0.25, 0.25]), rtol=1e-6
  )


def test_chains_that_never_move_count_as_accepted_as_wanted():
  # No density below 0, and no gradient at 0.
  root = lambda x: tf.reduce_sum(tf.sqrt(x), axis=-1)
  x = tf.constant([[-1.0], [0.0], [1.0], [1.0]]) * tf.ones([4, _SIZE])
  kernel = tfpa.marginal_gradient(root, 10, prior=_prior(1.0, tf.float32))
  _check_wanted(kernel, x, 'log_accept_ratio', [True, True, False, False])


def test_hyperparameters_that_never_move_count_as_accepted_as_wanted():
  root = lambda x: tf.reduce_sum(tf.sqrt(x), axis=-1)
  kernel = tfpa.latent_gaussian_hyperparameters(
    root,
    10,
    prior_fn=lambda scale: tfpa.gaussian_priors.random_walk(scale, _SIZE, 1.0),
    hyperprior=lambda theta: tf.math.log(theta),
    bijector=tfp.bijectors.Softplus(),
    joint=False,
    latent='elliptical_slice',
  )
  x = tf.constant([[-1.0], [0.0], [1.0], [1.0]]) * tf.ones([4, _SIZE])
  state = x, tf.constant([1.0, 1.0, 0.0, 1.0])
  is_wanted = [True, False, True, False]
  _check_wanted(kernel, state, 'hyper_log_accept_ratio', is_wanted)


def _check_wanted(kernel, state, name, is_wanted):
  """Checks which chains count as accepted at the target rate."""
  results = kernel.bootstrap_results(state).inner_results
  results = tfp_private.replace_innermost(
    results, **{name: tf.constant([-np.inf, -3.0, -3.0, 2.0])}
  )
  get = kernel.parameters['log_accept_prob_getter_fn']
  wanted = np.log(kernel.parameters['target_accept_prob'])
  np.testing.assert_allclose(
    get(results), np.where(is_wanted, wanted, [-np.inf, -3, -3, 0]), rtol=1e-6
  )
