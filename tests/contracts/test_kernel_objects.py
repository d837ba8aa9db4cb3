"""Kernels as objects: copies, tensors, traces of the target, refusals."""

import inspect

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core import stack
from tfp_adaptive.core import tfp_private


def _kernel(case, target=targets.standard_normal, **options):
  return case.build(target, 3, size=2, **options)


@registry.each_sampler
def test_parameters_are_the_constructor_arguments_and_copy_round_trips(case):
  for kernel in stack.kernels(_kernel(case)):
    # TFP's own do not name all arguments.
    if isinstance(kernel, tfp.mcmc.DualAveragingStepSizeAdaptation):
      continue
    arguments = inspect.signature(type(kernel).__init__).parameters
    assert set(kernel.parameters) == set(arguments) - {'self'}
    copied = kernel.copy()
    assert type(copied) is type(kernel)
    assert copied.parameters == kernel.parameters
    named = kernel.copy(name='other')
    assert named.parameters == dict(kernel.parameters, name='other')


@pytest.mark.full
@registry.by_representatives
def test_a_density_that_remembers_its_tensors_is_no_obstacle(case):
  # A multivariate normal of TFP is a bijector, which caches by Tensor: a second
  # call with the same one, on another tape or in another branch, gets the first
  # one's answer.
  factor = np.array([[1.0, 0.0], [0.9, 0.4]])
  normal = tfp.distributions.MultivariateNormalTriL(scale_tril=factor)
  whitener = np.linalg.inv(factor).T

  def plain(x):
    white = tf.linalg.matmul(x, whitener)
    return -0.5 * tf.reduce_sum(white**2, axis=-1)

  start = tf.constant(np.random.default_rng(0).normal(size=(4, 2)))
  found = [
    targets.run(kernel, start, 5, 'graph')[0]
    for kernel in (_kernel(case, normal.log_prob), _kernel(case, plain))
  ]
  np.testing.assert_allclose(*found, rtol=1e-8)


@registry.each_sampler
def test_the_constructor_builds_no_tensors(case):
  given = case.problem.arguments(2, np.float64)
  with tf.Graph().as_default() as graph:
    _kernel(case, **given)
    made = [operation.name for operation in graph.get_operations()]
  # TFP's wrapper does build some.
  assert all(name.startswith('dual_averaging') for name in made)


@registry.each_sampler
def test_the_target_is_traced_no_more_often_than_promised(case):
  # Once at the start and once in the step. Kernels whose adapting branch
  # evaluates the target again (the random walk's gradient, the exact Langevin
  # gradient's Hessian product) trace it a third time.
  num_traces = 0

  def target(x):
    nonlocal num_traces
    num_traces += 1
    return targets.standard_normal(x)

  kernel = _kernel(case, target)

  @tf.function(autograph=False)
  def chain(start, seed):
    return tfp.mcmc.sample_chain(
      3, start, kernel=kernel, trace_fn=None, seed=seed
    )

  start = tf.ones([2, 2], tf.float64)
  chain(start, tf.constant([1, 2]))
  assert 2 <= num_traces <= case.num_traces
  once = num_traces
  chain(start + 1.0, tf.constant([3, 4]))
  assert num_traces == once
  assert chain.experimental_get_tracing_count() == 1


@registry.each_sampler
def test_results_are_plain_tensors_found_by_name(case):
  kernel = _kernel(case)
  start = tf.ones([2, 2], tf.float64)
  results = kernel.bootstrap_results(start)
  assert all(tf.is_tensor(leaf) for leaf in tf.nest.flatten(results))
  unnest = pytest.importorskip(
    'tensorflow_probability.python.internal.unnest',
    reason='TFP moved the module by which its wrappers find fields',
  )
  for field in ('target_log_prob', 'step_size', 'log_accept_ratio'):
    assert unnest.has_nested(results, field)


@registry.each_sampler
def test_cost_per_step_is_what_a_step_calls(case):
  target = targets.CountedTarget()
  kernel = case.build(target, 1, size=2, **registry.steps_of_one_size(case))
  state = tf.ones([2, 2], tf.float64)
  results = kernel.bootstrap_results(state)
  for adapting in (True, False):  # One step adapts, the next is frozen.
    results = registry.of_one_length(kernel, results)
    target.calls.update(target=0, gradient=0, hessian_vector=0)
    state, results = kernel.one_step(state, results, seed=(1, 2))
    cost = tfpa.cost_per_step(kernel, adapting, results)
    # A Hessian-vector product evaluates the target and its gradient on the way.
    # The second-order sampler differentiates the gradient that it has anyway.
    again = 0 if case.name == 'second_order' else cost.hessian_vector
    assert target.calls == dict(
      target=cost.target + again,
      gradient=cost.gradient + again,
      hessian_vector=cost.hessian_vector,
    )


@registry.each_kernel
def test_learned_covariance_is_factor_times_its_transpose(case):
  kernel = case.build(
    targets.standard_normal,
    0,
    preconditioner=registry.fixed([[2.0, 0.0], [1.0, 3.0]]),
  )
  results = tfp_private.replace_innermost(
    kernel.bootstrap_results(tf.ones([2, 2], tf.float64)),
    step_size=tf.constant(0.5, tf.float64),
  )
  np.testing.assert_allclose(
    tfpa.learned_factor(kernel, results), [[1.0, 0.0], [0.5, 1.5]]
  )
  np.testing.assert_allclose(
    tfpa.learned_covariance(kernel, results), [[1.0, 0.5], [0.5, 2.5]]
  )


def test_a_kernel_without_preconditioner_cannot_be_frozen_or_adapted():
  hmc = tfp.mcmc.HamiltonianMonteCarlo(targets.standard_normal, 0.1, 2)
  with pytest.raises(ValueError, match='nothing that can be frozen'):
    tfpa.frozen(hmc, hmc.bootstrap_results(tf.ones([2])))
  with pytest.raises(ValueError, match='preconditioner to adapt'):
    tfpa.adaptation.MomentBasedAdaptation(hmc, 10)


# Known gaps: auxiliary MALA does not see that a density sums over chains, and
# TF's own error meets parts of two dtypes in the second-order sampler.
_OF_OTHER_STATES = [
  cases.named(name) for name in ('marginal', 'kernel_hamiltonian')
]


@pytest.mark.parametrize(
  'case', registry.tiered([*registry.PROPOSALS, *_OF_OTHER_STATES])
)
def test_densities_and_parts_that_do_not_fit_are_refused(case):
  kernel = _kernel(case, lambda x: -0.5 * x**2 * tf.ones([7, 1, 1], x.dtype))
  with pytest.raises(ValueError, match='one number per chain'):
    kernel.bootstrap_results(tf.ones([4, 2], tf.float64))
  kernel = _kernel(case, lambda x, y: -(x**2) - tf.cast(y, tf.float32) ** 2)
  with pytest.raises(TypeError, match='must have one dtype'):
    kernel.bootstrap_results([tf.ones([]), tf.ones([], tf.float64)])


@pytest.mark.parametrize(
  'case', registry.tiered([*registry.PROPOSALS, _OF_OTHER_STATES[1]])
)
def test_a_density_of_another_dtype_than_the_state_is_refused(case):
  def target(x):
    return tf.cast(-0.5 * tf.reduce_sum(x**2, axis=-1), tf.float64)

  kernel = _kernel(case, target, dtype=np.float32)
  with pytest.raises(TypeError, match=r'float64 for a state of float32.*cast'):
    kernel.bootstrap_results(tf.zeros([4, 2]))


def _has(case, argument):
  return argument in inspect.signature(case.builder).parameters


@pytest.mark.parametrize(
  'case', registry.tiered([c for c in registry.KERNELS if _has(c, 'step_size')])
)
def test_a_step_size_that_only_the_run_knows_is_taken(case):
  case.build(targets.standard_normal, 1, step_size=tf.Variable(0.0))

  @tf.function(autograph=False)
  def build(step_size):
    assert case.build(targets.standard_normal, 1, step_size=step_size)

  build(tf.constant(0.0))
