"""Small steps while delta is tuned: starts in steep places, and their law."""

import collections
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from tests.contracts import targets
from tfp_adaptive.core import step_sizes
from tfp_adaptive.core import tfp_private
from tfp_adaptive.latent import latent_proposal

_SIZE = 3
_NUM_ADAPTING = 400


def _log_likelihood(x):
  """Of log variances x for data of variance e^8."""
  return -0.5 * tf.reduce_sum(x + tf.exp(8.0 - x), axis=-1)


def _prior(variance, dtype=tf.float64):
  return tfpa.gaussian_priors.spectral(
    tf.constant(variance * np.eye(_SIZE), dtype)
  )


def _kernel(log_likelihood, prior, num_adaptation_steps, share, **options):
  proposal = tfpa.proposals.UncalibratedMarginalGradient(
    log_likelihood, prior, **options
  )
  return latent_proposal.with_short_steps(
    tfpa.MetropolisHastings(proposal), num_adaptation_steps, share
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
def test_a_chain_that_starts_where_the_target_is_steep_comes_home():
  draws = _last_draws(
    tfpa.marginal_gradient(_log_likelihood, _NUM_ADAPTING, prior=_prior(100.0))
  )
  means = draws.mean(axis=(0, 2))
  assert np.all(np.abs(means - 8.0) < 2.0), means
  assert np.all(draws.std(axis=0) > 0.3)


@pytest.mark.full
def test_without_small_steps_it_would_stay_there():
  # The negative control of the test above.
  draws = _last_draws(
    tfpa.marginal_gradient(
      _log_likelihood, _NUM_ADAPTING, prior=_prior(100.0), short_step_share=0.0
    )
  )
  assert np.all(draws[:, -1] == -3.0)
  assert np.all(np.abs(draws[:, :-1].mean(axis=(0, 2)) - 8.0) < 2.0)


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


def test_the_length_of_a_step_depends_on_its_seed_alone():
  kernel = latent_proposal.with_short_steps(_SeesItsStep(), 10, 0.5)
  one_step = tf.function(kernel.one_step, autograph=False)
  seen = []
  for state in (tf.constant([-3.0, 0.1]), tf.constant([2.0, 8.0])):
    results = kernel.bootstrap_results(state)
    seeds = [tf.constant([5, i]) for i in range(40)]
    seen.append([one_step(state, results, seed=s)[0].numpy() for s in seeds])
  np.testing.assert_array_equal(*seen)
  assert len(np.unique(seen)) > 10 and np.max(seen) == 1.0


@pytest.mark.parametrize('step, can_be_short', [(4, True), (5, False)])
def test_no_step_is_short_from_the_first_frozen_one_on(step, can_be_short):
  kernel = latent_proposal.with_short_steps(_SeesItsStep(), 5, 0.5)
  state = tf.zeros([2])
  results = kernel.bootstrap_results(state)._replace(step=tf.constant(step))
  one_step = tf.function(kernel.one_step, autograph=False)
  seen = [one_step(state, results, seed=s)[0] for s in targets.seeds(30)]
  assert np.any(np.array(seen) < 1.0) == can_be_short


@pytest.mark.full
def test_a_run_goes_on_from_what_was_saved_while_adapting():
  kernel = tfpa.marginal_gradient(_log_likelihood, 60, prior=_prior(100.0))
  one_step = tf.function(kernel.one_step, autograph=False)

  def run(state, results, steps):
    for step in steps:
      state, results = one_step(state, results, seed=tf.constant([step, 5]))
    return state, results

  start = tf.fill([4, _SIZE], tf.constant(8.0, tf.float64))
  first = kernel.bootstrap_results(start)
  state, results = run(start, first, range(30))
  saved = [part.numpy() for part in tf.nest.flatten(results)]
  loaded = tf.nest.pack_sequence_as(first, [tf.constant(p) for p in saved])
  again = run(tf.constant(state.numpy()), loaded, range(30, 70))
  at_once = run(start, first, range(70))
  tf.nest.map_structure(np.testing.assert_array_equal, again, at_once)


def _moments_after(kernel):
  """Returns errors of mean and variance in standard errors, exact starts.

  Prior N(0, I), data 1 with noise 1: the posterior is N(1/2, I / 2).
  """
  num_chains = 20_000
  rng = np.random.default_rng(1)
  start = 0.5 + math.sqrt(0.5) * rng.normal(size=(num_chains, _SIZE))

  @tf.function(jit_compile=True, autograph=False)
  def run():
    return tfp.mcmc.sample_chain(
      20, tf.constant(start), kernel=kernel, trace_fn=None, seed=[7, 1]
    )[-1]

  last = run().numpy()
  assert np.mean(np.any(last != start, axis=1)) > 0.95
  size = num_chains * _SIZE
  return (
    abs(last.mean() - 0.5) / math.sqrt(0.5 / size),
    abs(last.var() - 0.5) / (0.5 * math.sqrt(2.0 / size)),
  )


def _gaussian_proposal():
  return tfpa.proposals.UncalibratedMarginalGradient(
    lambda x: -0.5 * tf.reduce_sum((x - 1.0) ** 2, axis=-1),
    _prior(1.0),
    delta=2.0,
  )


@pytest.mark.full
@pytest.mark.parametrize(
  'share', [pytest.param(0.0, marks=pytest.mark.nightly), 0.7]
)
def test_the_law_is_kept_by_steps_of_any_size(share):
  kernel = latent_proposal.with_short_steps(
    tfpa.MetropolisHastings(_gaussian_proposal()), 10**6, share
  )
  assert max(_moments_after(kernel)) < 4.5


@pytest.mark.full
def test_a_law_that_is_not_kept_would_be_seen():
  # The negative control: every proposal is taken, four fifths of them short.
  kernel = latent_proposal.with_short_steps(_gaussian_proposal(), 10**6, 0.8)
  assert max(_moments_after(kernel)) > 9.0


def test_a_short_step_counts_as_one_that_was_accepted_as_wanted():
  Results = collections.namedtuple('Results', ['log_accept_ratio', 'is_short'])
  kernel = step_sizes.tuned(_SeesItsStep(), 10, 0.25)
  get = kernel.parameters['log_accept_prob_getter_fn']
  ratio = tf.constant([-3.0, 2.0])
  np.testing.assert_allclose(get(Results(ratio, tf.constant(False))), [-3, 0])
  np.testing.assert_allclose(
    get(Results(ratio, tf.constant(True))), np.log([0.25, 0.25]), rtol=1e-6
  )


_PRIOR = tfpa.gaussian_priors.random_walk(1.0, _SIZE, 1.0)


@pytest.mark.parametrize(
  ('build', 'arguments'),
  [
    (tfpa.marginal_gradient, dict(prior=_PRIOR)),
    (tfpa.auxiliary_gradient, dict(prior=_PRIOR)),
    (tfpa.crank_nicolson, dict(prior=_PRIOR)),
    (baselines.prior_preconditioned_langevin, dict(prior=_PRIOR)),
    (tfpa.second_order_gradient, dict(prior=_PRIOR)),
    (tfpa.auxiliary_langevin, {}),
    (
      tfpa.latent_gaussian_hyperparameters,
      dict(
        prior_fn=lambda theta: _PRIOR,
        hyperprior=tfp.distributions.Normal(0.0, 1.0),
      ),
    ),
  ],
)
def test_every_builder_hands_the_share_on(build, arguments):
  for share in (0.2, 0.0, 0.7):
    given = {} if share == 0.2 else {'short_step_share': share}
    kernel = build(_log_likelihood, 5, **arguments, **given)
    while not isinstance(kernel, tfpa.adaptation.ShortSteps):
      kernel = kernel.inner_kernel
    assert kernel.parameters['short_step_share'] == share
  with pytest.raises(ValueError, match='short_step_share'):
    build(_log_likelihood, 5, **arguments, short_step_share=7.0)


@pytest.mark.parametrize('share', [-0.1, 1.0])
def test_what_is_no_share_is_refused(share):
  message = r'^`short_step_share` must be in \[0, 1\).*`short_step_share=0.2`'
  with pytest.raises(ValueError, match=message):
    _kernel(_log_likelihood, _prior(1.0), 5, share)
