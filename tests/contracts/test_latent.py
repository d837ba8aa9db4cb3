"""What every kernel for latent Gaussian models owes TFP and its users."""

import functools
import inspect
import pickle

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from tests.contracts import latent_model as model
from tests.contracts import pairs
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core import tfp_private


@pytest.fixture(scope='module')
def draws():
  return tf.constant(model.exact_draws(50_000))


def _mh_results(results):
  """Returns the results of the Metropolis-Hastings kernel inside."""
  while not hasattr(results, 'proposed_results'):
    results = results.inner_results
  return results


def _proposal(kernel):
  """Returns the innermost kernel."""
  while hasattr(kernel, 'inner_kernel'):
    kernel = kernel.inner_kernel
  return kernel


@pytest.mark.full
@model.each_kernel_and_variant
def test_one_step_leaves_the_posterior_invariant(name, draws):
  after, results = model.one_step(model.build(name), draws)
  accepted = np.mean(_mh_results(results).is_accepted)
  assert 0.1 < accepted < 0.95
  # Fails by chance for one seed in 1000; the seed is fixed.
  assert model.smallest_p_value(draws.numpy(), after.numpy()) > 1e-3


@model.each_kernel_and_variant
def test_a_tempered_likelihood_is_detected(name, draws):
  # pCN sees the likelihood through its ratio only: less in one step.
  wrong = functools.partial(
    model.log_likelihood, temper=1.5 if name == 'pcn' else 1.1
  )
  after, _ = model.one_step(model.build(name, function=wrong), draws)
  assert model.smallest_p_value(draws.numpy(), after.numpy()) < 1e-6


@pytest.mark.full
@model.each_kernel
def test_eager_graph_and_xla_take_the_same_steps(name):
  start = tf.constant(model.exact_draws(6))
  runs = []
  for mode in targets.MODES:
    kernel = model.build(name, num_adaptation_steps=3)
    step = targets.stepper(kernel, mode)
    runs.append(
      targets.run_steps(step, start, kernel.bootstrap_results(start), 5)
    )
  eager, *compiled = [tf.nest.flatten(run) for run in runs]
  for other in compiled:
    for expected, got in zip(eager, other, strict=True):
      np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-10)


@model.each_kernel
def test_a_step_makes_two_products_with_the_basis(name):
  counts = dict(to_coordinates=0, from_coordinates=0, pull=0)
  prior = model.gaussian_prior()

  def counted(field):
    function = getattr(prior, field)

    def call(*args):
      counts[field] += 1
      return function(*args)

    return call

  prior = prior._replace(**{field: counted(field) for field in counts})
  kernel = model.build(name, prior=prior)
  state = tf.constant(model.exact_draws(2))
  results = kernel.bootstrap_results(state)
  counts.update(to_coordinates=0, from_coordinates=0, pull=0)
  kernel.one_step(state, results, seed=(0, 1))
  uses_gradient = name != 'pcn'
  assert counts == dict(
    to_coordinates=0, from_coordinates=1, pull=int(uses_gradient)
  )
  cost = tfpa.cost_per_step(kernel, adapting=False)
  assert (cost.target, cost.gradient) == (1, int(uses_gradient))
  assert cost.matrix_product == sum(counts.values())


@model.each_kernel
def test_coordinates_in_the_results_stay_those_of_the_state(name):
  kernel = model.build(name)
  prior = model.gaussian_prior()
  state = tf.constant(model.exact_draws(4))
  results = kernel.bootstrap_results(state)
  step = targets.stepper(kernel, 'graph')
  for seed in targets.seeds(50):
    state, results = step(state, results, seed)
  accepted = _mh_results(results).accepted_results
  np.testing.assert_allclose(
    accepted.coordinates,
    prior.to_coordinates(prior.params, state),
    atol=1e-12,
  )
  np.testing.assert_allclose(
    accepted.target_log_prob, model.log_likelihood(state), rtol=1e-12
  )


@pytest.mark.full
@model.each_kernel
@pytest.mark.parametrize(
  'bad', [np.nan, -np.inf, pytest.param(np.inf, marks=pytest.mark.nightly)]
)
def test_a_region_without_a_number_is_never_entered(name, bad):
  def log_likelihood(x):
    inside = tf.reduce_all(x < 0.8, axis=-1)
    value = model.log_likelihood(x)
    return tf.where(inside, value, bad * tf.ones_like(value))

  prior = tfpa.gaussian_priors.spectral(model.C)
  kernel = model.build(name, 2, log_likelihood, prior)
  state = tf.constant(np.minimum(model.exact_draws(50), 0.7))
  results = kernel.bootstrap_results(state)
  step = targets.stepper(kernel, 'graph')
  num_refused = 0
  for seed in targets.seeds(10):
    before = state
    state, results = step(state, results, seed)
    mh_results = _mh_results(results)
    accepted = mh_results.is_accepted.numpy()
    np.testing.assert_array_equal(state[~accepted], before[~accepted])
    np.testing.assert_array_equal(
      state[accepted], mh_results.proposed_state[accepted]
    )
    num_refused += np.sum(~np.isfinite(mh_results.log_accept_ratio))
    for leaf in tf.nest.flatten(mh_results.accepted_results):
      assert np.all(np.isfinite(leaf))
  assert num_refused > 0
  assert np.all(state < 0.8)


@pytest.mark.parametrize(
  'name, chains, dtype',
  registry.tiered(
    pairs.pairs(model.KERNELS, [(), (3,), (2, 3)], [tf.float32, tf.float64])
  ),
)
def test_shapes_and_dtype_are_kept(name, chains, dtype):
  kernel = model.build(
    name, 1, prior=model.gaussian_prior(dtype.as_numpy_dtype)
  )
  start = tf.zeros([*chains, model.D], dtype)
  results = kernel.bootstrap_results(start)
  state, after = kernel.one_step(start, results, seed=(0, 1))
  assert state.shape == start.shape and state.dtype == dtype
  tf.nest.assert_same_structure(results, after)
  for old, new in zip(tf.nest.flatten(results), tf.nest.flatten(after)):
    assert old.shape == new.shape and old.dtype == new.dtype


@model.each_kernel
def test_parts_of_a_state_are_the_coordinates_in_their_order(name):
  whole = tf.constant(model.exact_draws(3))
  parts = tf.split(whole, [2, 3], axis=-1)
  split = model.build(
    name, function=lambda a, b: model.log_likelihood(tf.concat([a, b], axis=-1))
  )
  expected, _ = model.one_step(model.build(name), whole, 'eager')
  got, _ = model.one_step(split, parts, 'eager')
  np.testing.assert_allclose(tf.concat(got, axis=-1), expected, rtol=1e-12)


@model.each_kernel
def test_adaptation_ends_after_its_steps_and_frozen_keeps_delta(name):
  kernel = model.build(name, num_adaptation_steps=4)
  start = tf.constant(model.exact_draws(3))
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
  kernel = model.KERNELS[name][0](
    model.log_likelihood,
    model.gaussian_prior(),
    num_adaptation_steps=400,
    step_size=start,
  )
  result = tfpa.sample(
    kernel,
    tf.constant(model.exact_draws(10)),
    num_results=200,
    seed=1,
    progress=False,
    jit_compile=False,
  )
  aim = 0.25 if name == 'pcn' else 0.55
  # 2000 decisions: 0.02 is two standard errors of independent ones.
  assert abs(np.mean(result.trace['is_accepted']) - aim) < 0.12


@model.each_kernel
def test_kernels_copy_and_their_results_pickle(name):
  kernel = model.build(name, 2)
  proposal = _proposal(kernel)
  arguments = inspect.signature(type(proposal).__init__).parameters
  assert set(proposal.parameters) == set(arguments) - {'self'}
  assert proposal.copy(step_size=0.7).step_size == 0.7
  assert not proposal.is_calibrated and kernel.is_calibrated
  results = kernel.bootstrap_results(tf.zeros([2, model.D], tf.float64))
  restored = pickle.loads(
    pickle.dumps(tf.nest.map_structure(np.array, results))
  )
  for old, new in zip(tf.nest.flatten(results), tf.nest.flatten(restored)):
    np.testing.assert_array_equal(old, new)


@pytest.mark.full
@model.each_kernel
def test_constructor_builds_no_tensors_and_f_is_traced_twice(name):
  prior = model.gaussian_prior()
  num_traces = 0

  def counted(x):
    nonlocal num_traces
    num_traces += 1
    return model.log_likelihood(x)

  with tf.Graph().as_default() as graph:
    # The wrapper around it is TFP's, whose constructor does build some.
    proposal = _proposal(model.build(name, 2, counted, prior))
    tfpa.MetropolisHastings(proposal.copy(name='other'))
    made = [op.name for op in graph.get_operations()]
    assert all(op.startswith('dual_averaging') for op in made)
  kernel = model.build(name, 2, counted, prior)
  run = tf.function(
    lambda state: tfp.mcmc.sample_chain(
      3, state, kernel=kernel, trace_fn=None, seed=(0, 1)
    ),
    autograph=False,
  )
  states = run(tf.zeros([2, model.D], tf.float64))
  assert states.shape == [3, 2, model.D]
  assert num_traces <= 2
  run(tf.ones([2, model.D], tf.float64))
  assert run.experimental_get_tracing_count() == 1


_BUILDERS = [
  tfpa.auxiliary_gradient,
  tfpa.crank_nicolson,
  tfpa.marginal_gradient,
  baselines.prior_preconditioned_langevin,
]


@pytest.mark.full
@pytest.mark.parametrize('builder', _BUILDERS)
def test_arguments_that_make_no_step_are_refused(builder):
  prior = model.gaussian_prior()
  with pytest.raises(ValueError, match='`step_size` must be positive'):
    builder(model.log_likelihood, prior, 1, step_size=0.0)
  with pytest.raises(ValueError, match='`target_accept_prob` must lie'):
    builder(model.log_likelihood, prior, 1, target_accept_prob=1.5)
