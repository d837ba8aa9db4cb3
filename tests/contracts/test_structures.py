"""States of any structure, number of chain dimensions and static shape."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results

Pair = collections.namedtuple('Pair', ['location', 'scale'])

STRUCTURES = {
  'scalar': lambda new: new([]),
  'vector': lambda new: new([3]),
  'matrix': lambda new: new([2, 2]),
  'list': lambda new: [new([]), new([2]), new([2, 1])],
  'tuple': lambda new: (new([2]), new([])),
  'dict': lambda new: {'b': new([2]), 'a': new([])},
  'namedtuple': lambda new: Pair(new([]), new([2])),
}


def _state(structure, chains, seed=0):
  rng = np.random.default_rng(seed)
  return STRUCTURES[structure](
    lambda shape: tf.constant(rng.normal(size=[*chains, *shape]))
  )


def _normal_with(num_chain_dims):
  """N(0, I) over everything behind the chain dimensions."""

  def log_prob(*parts, **named_parts):
    total = 0.0
    for part in tf.nest.flatten((parts, named_parts)):
      axes = list(range(num_chain_dims, part.shape.rank))
      total -= 0.5 * tf.reduce_sum(part**2, axis=axes)
    return total

  return log_prob


def _steps(kernel, state, num_steps=2):
  return targets.run(kernel, state, num_steps)


# The proposal takes the structure apart; what learns sees rows of numbers.
@pytest.mark.parametrize(
  'case, structure, chains',
  registry.tiered(
    (case, structure, [(), (4,), (2, 3)][(i + j) % 3])
    for i, case in enumerate(registry.PROPOSALS)
    for j, structure in enumerate(STRUCTURES)
  ),
)
def test_structure_shape_and_dtype_are_kept(case, structure, chains):
  kernel = case.build(_normal_with(len(chains)), 1)
  start = _state(structure, chains)
  bootstrapped = kernel.bootstrap_results(start)
  states, results = _steps(kernel, start, 1)
  for state in states:
    tf.nest.assert_same_structure(start, state)
    for before, after in zip(tf.nest.flatten(start), tf.nest.flatten(state)):
      assert after.shape == before.shape and after.dtype == before.dtype
  for result in results:
    tf.nest.assert_same_structure(bootstrapped, result)
    for before, after in zip(
      tf.nest.flatten(bootstrapped), tf.nest.flatten(result)
    ):
      assert after.shape == before.shape and after.dtype == before.dtype
    assert mh_results(result).is_accepted.shape == chains
    assert mh_results(result).log_accept_ratio.shape == chains


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
@registry.each_sampler
def test_results_follow_the_dtype_of_the_state(case, dtype):
  kernel = case.build(targets.standard_normal, 1, size=3, dtype=dtype)
  states, results = _steps(kernel, tf.ones([2, 3], dtype))
  floats = [
    leaf
    for leaf in tf.nest.flatten((states, results))
    if leaf.dtype.is_floating
  ]
  assert {leaf.dtype for leaf in floats} == {tf.as_dtype(dtype)}


# The columns of a matrix of chains, and the rows of each chain's matrix.
@pytest.mark.parametrize('shape', [(4, 3), (4, 2, 3)])
@registry.each_sampler
def test_a_whole_state_equals_the_list_of_its_parts(case, shape):
  state = tf.constant(np.random.default_rng(1).normal(size=shape))
  size = int(np.prod(shape[1:]))
  whole, _ = _steps(case.build(_normal_with(1), 5, size=size), state)
  parts, _ = _steps(
    case.build(_normal_with(1), 5, size=size), tf.unstack(state, axis=1)
  )
  for one, split in zip(whole, parts):
    np.testing.assert_allclose(one, np.stack(split, axis=1), rtol=1e-12)


@registry.each_kernel
def test_two_chain_dimensions_equal_one_of_their_product(case):
  flat = tf.constant(np.random.default_rng(1).normal(size=(6, 2)))
  folded = tf.reshape(flat, [2, 3, 2])
  one, one_results = _steps(case.build(targets.standard_normal, 5), flat)
  two, two_results = _steps(case.build(targets.standard_normal, 5), folded)
  np.testing.assert_allclose(one[-1], tf.reshape(two[-1], [6, 2]), rtol=1e-12)
  np.testing.assert_allclose(
    _params(one_results[-1]), _params(two_results[-1]), rtol=1e-12
  )


@pytest.mark.full
@pytest.mark.parametrize('case', registry.tiered(registry.PROPOSALS))
def test_unknown_static_shapes_give_the_same_step(case):
  kernel = case.build(targets.standard_normal, 5)
  state = tf.constant(np.random.default_rng(1).normal(size=(4, 3)))

  @tf.function(
    input_signature=[tf.TensorSpec([None, None], tf.float64)], autograph=False
  )
  def one_step(start):
    states, results = _steps(kernel, start, 1)
    return states[-1], _params(results[-1])

  unknown, unknown_params = one_step(state)
  known, results = _steps(kernel, state, 1)
  np.testing.assert_allclose(unknown, known[-1], rtol=1e-12)
  np.testing.assert_allclose(unknown_params, _params(results[-1]), rtol=1e-12)


def _params(results):
  return mh_results(results).accepted_results.preconditioner_params
