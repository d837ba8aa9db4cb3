"""Kernels as objects: copies, tensors, traces of the target, pickles."""

import inspect
import pickle

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets


def _kernel(spec, target=targets.standard_normal):
  return spec.build(target, 3)


def _stack(kernel):
  stack = [kernel]
  while hasattr(stack[-1], 'inner_kernel'):
    stack.append(stack[-1].inner_kernel)
  return stack


@registry.each_kernel
def test_parameters_are_the_constructor_arguments_and_copy_round_trips(spec):

  for kernel in _stack(_kernel(spec)):
    arguments = inspect.signature(type(kernel).__init__).parameters
    assert set(kernel.parameters) == set(arguments) - {'self'}
    copied = kernel.copy()
    assert type(copied) is type(kernel)
    assert copied.parameters == kernel.parameters
    named = kernel.copy(name='other')
    assert named.parameters == dict(kernel.parameters, name='other')


@registry.each_kernel
def test_calibrated_kernels_wrap_an_uncalibrated_proposal(spec):
  stack = _stack(_kernel(spec))
  assert [k.is_calibrated for k in stack] == [True] * (len(stack) - 1) + [False]


@pytest.mark.full
@registry.each_kernel
def test_one_kernel_works_in_two_functions_and_eagerly(spec):
  # A Tensor made by the constructor would belong to one graph only.
  kernel = _kernel(spec)
  start = tf.ones([2, 2], tf.float64)

  def step(state):
    return kernel.one_step(
      state, kernel.bootstrap_results(state), seed=tf.constant([1, 2])
    )[0]

  one = tf.function(step, autograph=False)(start)
  two = tf.function(step, autograph=False)(start)
  np.testing.assert_array_equal(one, two)
  np.testing.assert_allclose(one, step(start), rtol=1e-12)


@pytest.mark.full
@registry.each_kernel
def test_a_density_that_remembers_its_tensors_is_no_obstacle(spec):
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
    targets.run_steps(
      targets.stepper(kernel, 'graph'),
      start,
      kernel.bootstrap_results(start),
      5,
    )[0]
    for kernel in (_kernel(spec, normal.log_prob), _kernel(spec, plain))
  ]
  np.testing.assert_allclose(*found, rtol=1e-8)


@registry.each_kernel
def test_the_constructor_builds_no_tensors(spec):
  with tf.Graph().as_default() as graph:
    _kernel(spec)
    assert not graph.get_operations()


@registry.each_kernel
def test_the_target_is_traced_no_more_often_than_promised(spec):
  # Once at the start and once in the step. Kernels whose adapting branch
  # evaluates the target again (the random walk's gradient, the exact Langevin
  # gradient's Hessian product) trace it a third time.
  num_traces = 0

  def target(x):
    nonlocal num_traces
    num_traces += 1
    return targets.standard_normal(x)

  kernel = _kernel(spec, target)

  @tf.function(autograph=False)
  def chain(start, seed):
    return tfp.mcmc.sample_chain(
      3, start, kernel=kernel, trace_fn=None, seed=seed
    )

  start = tf.ones([2, 2], tf.float64)
  chain(start, tf.constant([1, 2]))
  assert 2 <= num_traces <= spec.num_target_traces
  once = num_traces
  chain(start + 1.0, tf.constant([3, 4]))
  assert num_traces == once
  assert chain.experimental_get_tracing_count() == 1


@registry.each_kernel
def test_results_pickle(spec):
  kernel = _kernel(spec)
  start = tf.ones([2, 2], tf.float64)
  _, results = kernel.one_step(
    start, kernel.bootstrap_results(start), seed=(1, 2)
  )
  again = pickle.loads(pickle.dumps(results))
  tf.nest.assert_same_structure(results, again)
  for one, two in zip(tf.nest.flatten(results), tf.nest.flatten(again)):
    np.testing.assert_array_equal(one, two)


@registry.each_kernel
def test_results_are_plain_tensors_found_by_name(spec):
  kernel = _kernel(spec)
  start = tf.ones([2, 2], tf.float64)
  results = kernel.bootstrap_results(start)
  assert all(tf.is_tensor(leaf) for leaf in tf.nest.flatten(results))
  unnest = pytest.importorskip(
    'tensorflow_probability.python.internal.unnest',
    reason='TFP moved the module by which its wrappers find fields',
  )
  for field in ('target_log_prob', 'step_size', 'log_accept_ratio'):
    assert unnest.has_nested(results, field)


class _CountedTarget:
  """N(0, I) that counts eager calls: values, gradients, Hessian products."""

  def __init__(self):
    self.calls = dict(target=0, gradient=0, hessian_vector=0)

  def __call__(self, x):
    @tf.custom_gradient
    def minus(x):
      self.calls['gradient'] += 1

      def product(upstream):
        self.calls['hessian_vector'] += 1
        return -upstream

      return -x, product

    @tf.custom_gradient
    def log_prob(x):
      self.calls['target'] += 1

      def grad(upstream):
        return upstream[..., tf.newaxis] * minus(x)

      return targets.standard_normal(x), grad

    return log_prob(x)


@pytest.mark.parametrize('adapting', [True, False])
@registry.each_kernel
def test_cost_per_step_is_what_a_step_calls(spec, adapting):
  target = _CountedTarget()
  kernel = spec.build(
    target, 1 if adapting else 0, **registry.steps_of_one_size(spec)
  )
  start = tf.ones([2, 2], tf.float64)
  results = registry.of_one_length(kernel, kernel.bootstrap_results(start))
  target.calls.update(target=0, gradient=0, hessian_vector=0)
  _, results = kernel.one_step(start, results, seed=(1, 2))
  cost = tfpa.cost_per_step(kernel, adapting, results)
  # A Hessian-vector product evaluates the target and its gradient on the way.
  assert target.calls == dict(
    target=cost.target + cost.hessian_vector,
    gradient=cost.gradient + cost.hessian_vector,
    hessian_vector=cost.hessian_vector,
  )


@registry.each_kernel
def test_the_target_is_never_called_by_the_frozen_branch_of_adaptation(spec):
  target = _CountedTarget()
  kernel = spec.build(target, 1)
  state = tf.ones([2, 2], tf.float64)
  results = kernel.bootstrap_results(state)
  state, results = kernel.one_step(state, results, seed=(1, 2))
  results = registry.of_one_length(kernel, results)
  target.calls.update(target=0, gradient=0, hessian_vector=0)
  kernel.one_step(state, results, seed=(1, 3))
  cost = tfpa.cost_per_step(kernel, False, results)
  assert target.calls == dict(
    target=cost.target,
    gradient=cost.gradient,
    hessian_vector=cost.hessian_vector,
  )


@registry.each_kernel
def test_learned_covariance_is_factor_times_its_transpose(spec):
  kernel = spec.build(
    targets.standard_normal,
    0,
    preconditioner=registry.fixed([[2.0, 0.0], [1.0, 3.0]]),
    step_size=0.5,
  )
  results = kernel.bootstrap_results(tf.ones([2, 2], tf.float64))
  np.testing.assert_allclose(
    tfpa.learned_factor(kernel, results), [[1.0, 0.0], [0.5, 1.5]]
  )
  np.testing.assert_allclose(
    tfpa.learned_covariance(kernel, results), [[1.0, 0.5], [0.5, 2.5]]
  )


@registry.each_kernel
def test_a_target_that_is_not_callable_is_refused(spec):
  with pytest.raises(TypeError, match='target_log_prob_fn'):
    spec.build(3.0, 1)


@registry.each_kernel
def test_a_preconditioner_without_parentheses_is_refused(spec):
  with pytest.raises(TypeError, match='with parentheses'):
    spec.build(
      targets.standard_normal,
      1,
      preconditioner=tfpa.preconditioners.cholesky,
    )


def test_a_kernel_without_preconditioner_cannot_be_frozen_or_adapted():
  hmc = tfp.mcmc.HamiltonianMonteCarlo(targets.standard_normal, 0.1, 2)
  with pytest.raises(ValueError, match='nothing that can be frozen'):
    tfpa.frozen(hmc, hmc.bootstrap_results(tf.ones([2])))
  with pytest.raises(ValueError, match='preconditioner to adapt'):
    tfpa.adaptation.MomentBasedAdaptation(hmc, 10)


@registry.each_kernel
def test_a_density_of_another_dtype_than_the_state_is_refused(spec):
  def target(x):
    return tf.cast(-0.5 * tf.reduce_sum(x**2, axis=-1), tf.float64)

  with pytest.raises(TypeError, match=r'float64 for a state of float32.*cast'):
    spec.build(target, 3).bootstrap_results(tf.zeros([4, 2]))


@pytest.mark.parametrize('value', [0.0, -1.0, np.nan, np.inf, '1'])
@registry.each_kernel
def test_a_step_size_that_is_not_positive_is_refused(spec, value):
  with pytest.raises(ValueError, match='`step_size` must be positive'):
    spec.build(targets.standard_normal, 1, step_size=value)


@registry.each_kernel
def test_a_step_size_that_only_the_run_knows_is_taken(spec):
  spec.build(targets.standard_normal, 1, step_size=tf.Variable(0.0))

  @tf.function(autograph=False)
  def build(step_size):
    assert spec.build(targets.standard_normal, 1, step_size=step_size)

  build(tf.constant(0.0))


@pytest.mark.parametrize('value', [0.0, 1.0, -0.2, 1.5, np.nan, '0.5'])
@registry.each_kernel
def test_an_acceptance_that_is_no_probability_is_refused(spec, value):
  with pytest.raises(ValueError, match='strictly between 0 and 1, but got'):
    spec.build(targets.standard_normal, 1, target_accept_prob=value)


@registry.each_kernel
def test_a_state_of_whole_numbers_is_refused(spec):
  kernel = spec.build(targets.standard_normal, 1)
  with pytest.raises(TypeError, match='floating numbers.*int64.*tf.cast'):
    kernel.bootstrap_results(np.zeros([4, 2], np.int64))
