"""Kernels work inside and around what TFP offers, and keep the right law."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from experiments.samplers import cases
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results

_SEED = (1, 2)
_NUM_CHAINS = 4
_NUM_DRAWS = 2
_EVENT_SIZE = 2


def _kernel(case):
  return case.build(targets.standard_normal, 2)


def _chain(kernel, start):
  return tfp.mcmc.sample_chain(
    _NUM_DRAWS, start, kernel=kernel, trace_fn=None, seed=_SEED
  )


def _above(wrap):
  """Runs sample_chain with `wrap(kernel)`; returns draws."""
  return lambda case, start: _chain(wrap(_kernel(case)), start)


def _transformed_below(case, start):
  """The adaptation around TransformedTransitionKernel around MH."""
  kernel = _kernel(case)
  below = tfp.mcmc.TransformedTransitionKernel(
    kernel.inner_kernel, tfp.bijectors.Softplus()
  )
  return _chain(kernel.copy(inner_kernel=below), start)


def _replica_exchange(case, start):
  kernel = tfp.mcmc.ReplicaExchangeMC(
    targets.standard_normal,
    inverse_temperatures=tf.constant([1.0, 0.5], start.dtype),
    make_kernel_fn=lambda target: case.build(target, 2),
  )
  return _chain(kernel, start)


def _thinning(kernel):
  return tfp.experimental.mcmc.ThinningKernel(kernel, 1)


def _with_reductions(case, start):
  reducer = tfp.experimental.mcmc.VarianceReducer()
  kernel = tfp.experimental.mcmc.WithReductions(_kernel(case), reducer)
  results = kernel.bootstrap_results(start)
  draws = []
  for seed in targets.seeds(_NUM_DRAWS):
    start, results = kernel.one_step(start, results, seed=seed)
    draws.append(start)
  variance = reducer.finalize(results.reduction_results)
  np.testing.assert_allclose(
    variance, np.var(draws, axis=0), rtol=1e-4, atol=1e-6
  )
  return tf.stack(draws)


WRAPPERS = {
  'sample_chain': _above(lambda kernel: kernel),
  'dual_averaging': _above(
    lambda kernel: tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, 2)
  ),
  'simple_step_size': _above(
    lambda kernel: tfp.mcmc.SimpleStepSizeAdaptation(kernel, 2)
  ),
  'transformed_above': _above(
    lambda kernel: tfp.mcmc.TransformedTransitionKernel(
      kernel, tfp.bijectors.Softplus()
    )
  ),
  'transformed_below': _transformed_below,
  'replica_exchange': _replica_exchange,
  'with_reductions': _with_reductions,
  'thinning_kernel': _above(_thinning),
}


# What a wrapper reads and sets is the proposal's, in the same way for all.
@pytest.mark.parametrize(
  'case, wrapper',
  registry.tiered(
    itertools.product(registry.PROPOSALS, WRAPPERS),
    ('hamiltonian', 'random_walk'),
  ),
)
def test_wrapper_runs_and_keeps_the_dtype(case, wrapper):
  # Positive, so that the constrained kernels can start there too.
  start = np.abs(np.random.default_rng(0).normal(size=(4, _EVENT_SIZE)))
  start = tf.constant(start, tf.float32)
  draws = WRAPPERS[wrapper](case, start)
  assert draws.dtype == tf.float32
  assert draws.shape == (_NUM_DRAWS, *start.shape)
  assert np.all(np.isfinite(draws))
  assert np.any(draws[-1] != start)


@registry.each_kernel
def test_step_size_adaptation_moves_the_step_size_of_the_proposal(case):
  frozen = registry.frozen_kernel(
    case, targets.standard_normal, 0.01 * np.eye(_EVENT_SIZE)
  )
  kernel = tfp.mcmc.SimpleStepSizeAdaptation(frozen, 5)
  state = tf.zeros([_NUM_CHAINS, _EVENT_SIZE], tf.float64)
  results = kernel.bootstrap_results(state)
  _, all_results = targets.run(kernel, state, 5, results=results)
  # Far too small a factor: every step is accepted and the step size grows.
  accepted = mh_results(all_results[-1]).accepted_results
  assert float(accepted.step_size) > 1.03


@registry.each_kernel
def test_a_transformed_kernel_samples_the_transformed_target(case):
  # x = 2 z with z the kernel's own coordinate: draws are exactly doubled.
  start = tf.constant(np.random.default_rng(0).normal(size=(4, 2)))
  scale = tfp.bijectors.Scale(tf.constant(2.0, tf.float64))
  plain = WRAPPERS['sample_chain'](case, start)
  wrapped = tfp.mcmc.TransformedTransitionKernel(
    case.build(lambda x: targets.standard_normal(0.5 * x), 2), scale
  )
  draws = _chain(wrapped, 2.0 * start)
  np.testing.assert_allclose(draws, 2.0 * plain, rtol=1e-9)


def _tempered_variances(make_kernel_fn):
  """Returns per-chain means of x^2 for N(0, 1) under replica exchange."""

  @tf.function(jit_compile=True, autograph=False)
  def run():
    kernel = tfp.mcmc.ReplicaExchangeMC(
      targets.standard_normal,
      inverse_temperatures=tf.constant([1.0, 0.3], tf.float64),
      make_kernel_fn=make_kernel_fn,
      swap_proposal_fn=tfp.mcmc.even_odd_swap_proposal_fn(1.0),
    )
    return tfp.mcmc.sample_chain(
      500,
      tf.zeros([400, 1], tf.float64),
      kernel=kernel,
      num_burnin_steps=50,
      trace_fn=None,
      seed=tf.constant(_SEED, tf.int32),
    )

  draws = run().numpy()[:, :, 0]
  return np.mean(draws**2, axis=0), np.mean(draws, axis=0)


def _standard_errors_from(expected, per_chain):
  """Chains are independent: their spread gives the standard error."""
  return (per_chain.mean() - expected) / (
    per_chain.std() / len(per_chain) ** 0.5
  )


@pytest.mark.full
@registry.each_kernel
def test_replica_exchange_keeps_the_exact_law(case):
  variances, means = _tempered_variances(
    lambda target: registry.frozen_kernel(case, target, np.eye(1))
  )
  assert abs(_standard_errors_from(1.0, variances)) < 4.0
  assert abs(_standard_errors_from(0.0, means)) < 4.0


@pytest.mark.full
def test_the_replica_exchange_test_detects_a_stale_gradient():
  # The negative control: TFP's own MALA caches what a swap does not refresh.
  variances, _ = _tempered_variances(
    lambda target: tfp.mcmc.MetropolisAdjustedLangevinAlgorithm(
      target, step_size=tf.constant(1.0, tf.float64)
    )
  )
  assert _standard_errors_from(1.0, variances) > 8.0


@functools.cache
def _two_cpus():
  devices = [d.name for d in tf.config.list_logical_devices('CPU')]
  return tf.distribute.MirroredStrategy(devices[:2])


def _run_on_two(function):
  strategy = _two_cpus()
  values = strategy.run(tf.function(function, autograph=False))
  return tf.nest.map_structure(
    lambda v: np.stack(strategy.experimental_local_results(v)), values
  )


@pytest.mark.full
@pytest.mark.parametrize('case', registry.tiered(registry.PROPOSALS))
def test_chains_on_two_devices_draw_differently(case):
  kernel = tfp.experimental.mcmc.Sharded(_kernel(case), 'chains')

  def one_step():
    # From ones three leapfrog steps would lead to -x, whatever the noise.
    start = tf.fill([_NUM_CHAINS, _EVENT_SIZE], tf.constant(0.7, tf.float64))
    _, results = kernel.one_step(
      start, kernel.bootstrap_results(start), seed=tf.constant(_SEED, tf.int32)
    )
    mh = mh_results(results)
    return mh.proposed_state, mh.is_accepted

  proposed, accepted = _run_on_two(one_step)
  assert proposed.shape == (2, _NUM_CHAINS, _EVENT_SIZE)
  assert np.all(proposed[0] != proposed[1])
  assert accepted.shape == (2, _NUM_CHAINS)


# MirroredStrategy has no sum over devices inside a loop, so none in the target
# of a leapfrog: TFP's own Hamiltonian kernel raises the same error.
@pytest.mark.full
@pytest.mark.parametrize(
  'case',
  registry.tiered([s for s in registry.KERNELS if s.proposal != 'hamiltonian']),
)
def test_a_state_sharded_over_two_devices_moves_as_one(case):
  # Each device holds half of the coordinates of every chain. The target sums
  # over devices, and so must the correction: one decision per chain.
  @tf.custom_gradient
  def sum_over_devices(local):
    context = tf.distribute.get_replica_context()
    return context.all_reduce('SUM', local), lambda upstream: upstream

  def sharded_normal(x):
    return sum_over_devices(targets.standard_normal(x))

  kernel = registry.frozen_kernel(case, sharded_normal, np.eye(_EVENT_SIZE))
  kernel = kernel.experimental_with_shard_axes(['shards'])

  def one_step():
    start = tf.ones([20, _EVENT_SIZE], tf.float64)
    _, results = kernel.one_step(
      start, kernel.bootstrap_results(start), seed=tf.constant(_SEED, tf.int32)
    )
    mh = mh_results(results)
    return mh.proposed_state, mh.is_accepted, mh.log_accept_ratio

  proposed, accepted, ratio = _run_on_two(one_step)
  assert np.all(proposed[0] != proposed[1])
  np.testing.assert_array_equal(accepted[0], accepted[1])
  np.testing.assert_allclose(ratio[0], ratio[1], rtol=1e-12)
  # Against the dense kernel on the joined state: same law, same formula.
  whole = np.concatenate([proposed[0], proposed[1]], axis=1)
  # The drift of a step from x is 1/2 times the gradient, -x.
  drift = 0.5 if 'langevin' in case.name else 0.0
  backward = 1.0 - (1.0 - drift) * whole
  forward = whole - (1.0 - drift)
  expected = -0.5 * np.sum(whole**2 - 1.0 + (backward**2 - forward**2), axis=1)
  np.testing.assert_allclose(ratio[0], expected, rtol=1e-9)


_SLICE = cases.named('elliptical_slice')
_EXCHANGE = cases.named('replica_exchange')


@pytest.mark.parametrize('case', [_SLICE, _EXCHANGE], ids=lambda c: c.name)
@pytest.mark.parametrize(
  'wrapper',
  [tfp.mcmc.SimpleStepSizeAdaptation, tfp.mcmc.DualAveragingStepSizeAdaptation],
)
def test_kernels_without_a_step_size_are_refused_one(case, wrapper):
  kernel, start = wrapper(case.build(), 5), case.problem.start()
  with pytest.raises(TypeError, match=f'{case.name}.*Use the kernel alone'):
    kernel.one_step(start, kernel.bootstrap_results(start), seed=(0, 1))


@pytest.mark.parametrize(
  'case, message',
  [(_SLICE, 'built on that prior'), (_EXCHANGE, 'Use it alone')],
)
def test_kernels_with_laws_of_their_own_are_not_exchanged_by_tfp(case, message):
  kernel = tfp.mcmc.ReplicaExchangeMC(
    case.problem.function, [1.0, 0.5], make_kernel_fn=case.build
  )
  with pytest.raises(TypeError, match=message):
    kernel.bootstrap_results(case.problem.start())
