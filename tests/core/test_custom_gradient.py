"""Custom gradients: right in every mode, and gone with their graph."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.framework import ops

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core import xla_gradients
from tfp_adaptive.core.custom_gradient import custom_gradient
from tfp_adaptive.driver import blocks


@custom_gradient
def _claimed(x, y):
  # Not the derivatives of what is returned: 7 x^2 and y^3 are recognised.
  return x + y, lambda cotangent: (cotangent * 7.0 * x**2, cotangent * y**3)


def _plainly(function, x, y):
  return function(x, y)


def _in_a_loop(function, x, y):
  _, total = tf.while_loop(
    lambda i, _: i < 1,
    lambda i, _: (i + 1, function(x, y)),
    (0, tf.zeros([])),
    maximum_iterations=1,
  )
  return total


def _in_a_branch(function, x, y):
  return tf.cond(x > 0.0, lambda: function(x, y), lambda: x)


def _in_a_case(function, x, y):
  index = tf.cast(x > 0.0, tf.int32)
  return tf.switch_case(index, [lambda: x, lambda: function(x, y)])


def _in_a_function(function, x, y):
  return tf.function(function, autograph=False)(x, y)


_DEEP = [_plainly, _in_a_loop, _in_a_function]
# TF itself has no second derivative of what is inside of a conditional.
_PLACES = [*_DEEP, _in_a_branch, _in_a_case]


def _first(place, function):
  """Returns the function x -> derivatives by x and y, at y = 2."""

  def derivatives(x, y=2.0):
    y = tf.convert_to_tensor(y)
    with tf.GradientTape() as tape:
      tape.watch([x, y])
      value = place(function, x, y)
    return tape.gradient(value, [x, y])

  return derivatives


def _second(place, function):
  """Returns the function x -> both second derivatives, at y = 2."""

  def derivatives(x):
    y = tf.constant(2.0)
    with tf.GradientTape() as tape:
      tape.watch([x, y])
      first = _first(place, function)(x, y)
    return tape.gradient(first, [x, y])

  return derivatives


@pytest.mark.parametrize('mode', targets.MODES)
@pytest.mark.parametrize(
  'order, place',
  [(_first, place) for place in _PLACES] + [(_second, p) for p in _DEEP],
)
def test_derivatives_are_the_claimed_ones(order, place, mode):
  derivatives = order(place, _claimed)
  if mode != 'eager':
    derivatives = tf.function(
      derivatives, autograph=False, jit_compile=mode == 'xla'
    )
  # 7 x^2 and y^3; 14 x and 3 y^2.
  expected = [63.0, 8.0] if order is _first else [42.0, 12.0]
  np.testing.assert_array_equal(derivatives(tf.constant(3.0)), expected)


def _entries():
  """Returns how many custom gradients TF's registry keeps."""
  names = ops.gradient_registry.list()
  return sum(name.startswith('CustomGradient-') for name in names)


def _traced(function, *args):
  """Returns a weak reference to the graph of a traced function."""
  traced = tf.function(function, autograph=False).get_concrete_function(*args)
  return weakref.ref(traced.graph)


@pytest.mark.parametrize('place', _PLACES)
def test_a_graph_is_freed_with_its_gradients(place):
  num_entries = _entries()
  graph = _traced(_first(place, _claimed), tf.constant(3.0))
  gc.collect()
  assert graph() is None
  assert _entries() == num_entries


def test_the_custom_gradient_of_tensorflow_keeps_its_graph():
  # What the tests above and below would see without our decorator.
  @tf.custom_gradient
  def kept(x, y):
    return x + y, lambda cotangent: (cotangent, cotangent)

  num_entries = _entries()
  graph = _traced(_first(_plainly, kept), tf.constant(3.0))
  gc.collect()
  assert graph() is not None
  assert _entries() == num_entries + 1


# What a map's bijectors keep is freed with its block: see below.
_KERNELS = [
  *((case, None) for case in registry.SAMPLERS if case.learns != 'map'),
  (cases.named('elliptical_slice'), None),
  *(
    (cases.named('hamiltonian'), structure)
    for structure in registry.MOVED
    if structure not in ('cholesky', 'per_part')
  ),
]


# What is no representative by night: the decorator is the same.
@pytest.mark.full
@pytest.mark.parametrize(
  'case, structure', registry.tiered(_KERNELS, registry.OTHERS)
)
def test_a_step_of_a_kernel_leaves_nothing_behind(case, structure):
  options = {}
  if structure is not None:
    options['preconditioner'] = registry.preconditioner(structure)
  kernel = case.build(targets.standard_normal, 5, size=5, **options)
  state = tf.zeros([2, 5], tf.float64)
  results = kernel.bootstrap_results(state)
  num_entries = _entries()
  graph = _traced(
    lambda state, results: kernel.one_step(state, results, seed=(0, 1)),
    state,
    results,
  )
  gc.collect()
  assert graph() is None
  assert _entries() == num_entries


def _student(x):
  # Student's density and swish have custom gradients of TFP's and TF's.
  tails = tfp.distributions.StudentT(5.0, 0.0, 1.0).log_prob(x)
  return tf.reduce_sum(tails + 0.1 * tf.nn.swish(x), axis=-1)


def _transport(target):
  # TFP's bijectors keep the log-determinants that they computed.
  return tfpa.transport_adaptive_hamiltonian(target, 5, num_leapfrog_steps=2)


def _langevin(target):
  return tfpa.gradient_adaptive_langevin(target, 5)


@pytest.mark.full
@pytest.mark.parametrize(
  'build, jit_compile',
  [(_langevin, False), (_langevin, True), (_transport, False)],
)
def test_a_block_frees_what_target_and_bijectors_keep(build, jit_compile):
  graphs = []

  def trace_fn(state, results):
    del results
    graphs.append(weakref.ref(tf.compat.v1.get_default_graph()))
    return state

  kernel, state = build(_student), tf.zeros([2, 4])
  run = blocks.build(kernel, trace_fn, 4, jit_compile).run
  run(state, kernel.bootstrap_results(state), tf.constant([0, 1]), 0, 4, 1)
  gc.collect()
  assert graphs and all(graph() is not None for graph in graphs)
  del run
  gc.collect()
  assert all(graph() is None for graph in graphs)


# The registered gradient of a slice's reverse rule under XLA.


_OP = 'XlaDynamicUpdateSlice'


def _second_derivative_of_a_slice(x):
  """d/dx of |d/dx sum(x[1:3]^3)|^2: 36 x^3 in the slice, 0 outside."""
  with tf.GradientTape() as outer:
    outer.watch(x)
    with tf.GradientTape() as inner:
      inner.watch(x)
      value = tf.reduce_sum(tf.slice(x, [1], [2]) ** 3)
    square = tf.reduce_sum(inner.gradient(value, x) ** 2)
  return outer.gradient(square, x)


def test_a_slice_has_second_derivatives_under_xla():
  xla_gradients.register()
  x = tf.constant([1.0, 2.0, -3.0, 4.0], tf.float64)
  compiled = tf.function(
    _second_derivative_of_a_slice, jit_compile=True, autograph=False
  )
  np.testing.assert_allclose(compiled(x), [0.0, 36 * 8.0, -36 * 27.0, 0.0])


def test_without_the_registration_it_has_none(monkeypatch):
  # The negative control. Fails once TF has the gradient itself: then this
  # module can go.
  ops = pytest.importorskip(
    'tensorflow.python.framework.ops', reason='TensorFlow moved its registry'
  )
  xla_gradients.register()
  monkeypatch.delitem(ops.gradient_registry._registry, _OP)
  compiled = tf.function(
    _second_derivative_of_a_slice, jit_compile=True, autograph=False
  )
  with pytest.raises(LookupError, match=_OP):
    compiled(tf.ones([4], tf.float64))


def test_the_rule_is_that_of_an_update():
  # out = x with y written at [1, 2]: each entry of x or y goes to one of out.
  xla_gradients.register()
  weights = np.random.default_rng(0).normal(size=(4, 5))

  @tf.function(jit_compile=True, autograph=False)
  def gradients(x, y):
    with tf.GradientTape() as tape:
      tape.watch([x, y])
      updated = gen_xla_ops.xla_dynamic_update_slice(x, y, tf.constant([1, 2]))
      value = tf.reduce_sum(updated * weights)
    return tape.gradient(value, [x, y])

  grad_x, grad_y = gradients(
    tf.ones([4, 5], tf.float64), tf.ones([2, 3], tf.float64)
  )
  outside = weights.copy()
  outside[1:3, 2:5] = 0.0
  np.testing.assert_array_equal(grad_x, outside)
  np.testing.assert_array_equal(grad_y, weights[1:3, 2:5])
