"""One compiled block: which steps it takes, what it records, what it says."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.core import random
from tfp_adaptive.driver import blocks
from tfp_adaptive.driver import recording

CounterResults = collections.namedtuple(
  'CounterResults', ['target_log_prob', 'seed']
)


class _Counter(tfp.mcmc.TransitionKernel):
  """Adds one per step and keeps the seed that it was given."""

  parameters, is_calibrated = {}, True

  def __init__(self, op=tf.identity):
    self.parameters = dict(op=op)

  def one_step(self, current_state, previous_kernel_results, seed=None):
    state = current_state + 1.0
    return state, CounterResults(self.parameters['op'](state), seed)

  def bootstrap_results(self, init_state):
    return CounterResults(init_state, tf.zeros([2], tf.int32))


def _ints(*values):
  return [tf.constant(value, tf.int32) for value in values]


def _run(run, *counts, start=0.0):
  kernel = _Counter()
  state = tf.constant(start)
  return run(
    state, kernel.bootstrap_results(state), tf.constant([1, 2]), *_ints(*counts)
  )


@pytest.fixture(scope='module')
def counting():
  """Returns a compiled block of 5 results that records (state, seed)."""
  return blocks.build(
    _Counter(), lambda state, results: (state, results.seed), 5, True
  ).run


def test_a_block_records_every_step(counting):
  state, _, (states, seeds) = _run(counting, 0, 5, 1)
  assert float(state) == 5.0
  np.testing.assert_array_equal(states, [1, 2, 3, 4, 5])
  for step in range(5):
    np.testing.assert_array_equal(
      seeds[step], random.fold_in(tf.constant([1, 2]), step)
    )


def test_a_block_thins_and_may_be_partly_filled(counting):
  state, _, (states, _) = _run(counting, 0, 2, 3)
  assert float(state) == 6.0
  np.testing.assert_array_equal(states[:2], [3, 6])


def test_seeds_depend_on_the_number_of_the_step_alone(counting):
  _, _, (_, whole) = _run(counting, 0, 5, 1)
  _, _, (_, second_half) = _run(counting, 3, 2, 1)
  np.testing.assert_array_equal(second_half[:2], whole[3:5])


@pytest.mark.parametrize(
  'op, name',
  [
    (lambda x: x * tf.linalg.det(x * tf.eye(2)), 'MatrixDeterminant'),
    (lambda x: x + tf.py_function(lambda v: v, [x], tf.float32), 'EagerPyFunc'),
  ],
)
def test_an_op_that_xla_refuses_is_named(op, name):
  def shaped(state):
    value = op(state)
    value.set_shape([])
    return value

  kernel = _Counter(shaped)
  run = blocks.build(kernel, lambda state, results: state, 2, True).run
  with pytest.raises(ValueError, match=f"op '{name}' .*jit_compile=False") as e:
    _run(run, 0, 2, 1)
  assert 'XLA said' in str(e.value)
  plain = blocks.build(kernel, lambda state, results: state, 2, False).run
  state, _, _ = _run(plain, 0, 2, 1)
  assert float(state) == 2.0


def test_divergence_is_a_ratio_below_a_thousand_or_not_a_number():
  Results = collections.namedtuple('Results', ['log_accept_ratio'])
  ratios = tf.constant([0.0, -999.0, -1001.0, -np.inf, np.nan])
  trace = blocks.default_trace(None, Results(ratios))
  np.testing.assert_array_equal(
    trace['diverging'], [False, False, True, True, True]
  )


# What a run keeps in memory stays whole when it is interrupted.


class _Interrupting:
  """Rows that cannot be copied to the end."""

  shape, dtype = (3, 2), np.dtype(np.float64)

  def __len__(self):
    return 3

  def __array__(self, *args, **kwargs):
    raise KeyboardInterrupt


def _kept():
  return recording.InMemory(num_discarded=4, num_results=10, num_parts=1)


def test_rows_so_far_are_results_alone():
  kept = _kept()
  kept.append(
    [np.zeros([0, 2]), np.arange(4.0)]
  )  # Discarded steps have no states.
  states, trace = np.ones([3, 2]), 10.0 + np.arange(3.0)
  kept.append([states, trace])
  for count in (2, 3):
    found = kept.rows_so_far(count)
    np.testing.assert_array_equal(found[0], states[:count])
    np.testing.assert_array_equal(found[1], trace[:count])


def test_an_interrupt_leaves_no_half_of_a_block():
  kept = _kept()
  kept.append([np.zeros([0, 2]), np.arange(4.0)])
  kept.append([np.ones([3, 2]), np.arange(3.0)])
  with pytest.raises(KeyboardInterrupt):
    kept.append([np.full([3, 2], 7.0), _Interrupting()])
  states, _ = kept.rows_so_far(3)
  assert kept._num_filled == [3, 7]
  np.testing.assert_array_equal(states, 1.0)


# What is worth knowing of a step is found by name, in any loop.


def test_a_trace_of_tfp_has_what_an_adaptation_knows():
  kernel = tfpa.gradient_adaptive_langevin(targets.standard_normal, 20)
  kernel = tfp.mcmc.TransformedTransitionKernel(kernel, tfp.bijectors.Exp())
  start = tf.ones([3, 2], tf.float64)
  _, stats = tfp.mcmc.sample_chain(
    30,
    start,
    kernel=kernel,
    trace_fn=lambda state, results: tfpa.sample_stats(kernel, results),
    seed=(0, 1),
  )
  for name in ('target_log_prob', 'is_accepted', 'diverging'):
    assert stats[name].shape == [30, 3]
  for name in (
    'step_size',
    'entropy_weight',
    'mean_accept_prob',
    'num_dropped_gradients',
    'log_scale',
  ):
    assert stats[name].shape == [30]
  weights = stats['entropy_weight'].numpy()
  assert len(set(weights[:20])) > 1 and len(set(weights[20:])) == 1
