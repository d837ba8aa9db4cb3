"""Draws as a DataTree: the same numbers, by name, chains first."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.driver import to_arviz

_NUM_DRAWS = 6
_Pair = collections.namedtuple('Pair', ['loc', 'scale'])


def _result(states, trace=None, **run):
  """Returns a result of given draws, [6, 3, event...] each."""
  rng = np.random.default_rng(0)
  log_prob = rng.normal(size=(_NUM_DRAWS, 3))
  run = {
    'kernel': 'Some',
    'num_discarded': 5,
    'num_adaptation_steps': 4,
    'steps_per_result': 2,
    'num_gradients': None,
    'log_prob': 'lp',
    'worst': {},
    **run,
  }
  return tfpa.SampleResult(
    states=states,
    trace={'target_log_prob': log_prob} if trace is None else trace,
    adaptation_trace={},
    final_state=None,
    final_kernel_results=None,
    seconds=dict(compile=1.0, adaptation=2.0, sampling=3.0),
    run=run,
  )


def _draws(*shape):
  return np.random.default_rng(1).normal(size=(_NUM_DRAWS, 3, *shape))


@pytest.mark.parametrize(
  'states, names',
  [
    (_draws(2), ['x']),
    ([_draws(), _draws(2, 4)], ['x0', 'x1']),
    ({'b': _draws(2), 'a': _draws()}, ['a', 'b']),
    (_Pair(_draws(), _draws(2)), ['loc', 'scale']),
    ({'b': [_draws(), _draws(1)], 'a': _draws()}, ['a', 'b.x0', 'b.x1']),
  ],
  ids=['Tensor', 'list', 'dict', 'namedtuple', 'nested'],
)
def test_parts_keep_their_values_and_have_the_names_of_the_state(states, names):
  tree = _result(states).to_arviz()
  assert set(tree.posterior.data_vars) == set(names)
  for name, part in zip(names, tf.nest.flatten(states)):
    variable = tree.posterior[name]
    assert variable.dims[:2] == ('chain', 'draw')
    assert variable.dims[2:] == tuple(
      f'{name}_dim_{i}' for i in range(part.ndim - 2)
    )
    for chain in range(3):
      np.testing.assert_array_equal(variable.values[chain], part[:, chain])


def test_names_that_are_not_allowed_are_changed_where_nobody_chose_them():
  found = to_arviz.allowed_names(dict(a=0, chain=1, draw=dict(b=2)))
  assert found == ['a', 'chain_', 'draw.b'] and to_arviz.are_names(found)
  # Each part keeps a name of its own.
  found = to_arviz.allowed_names(None, ('chain', 'a/b', 'chain_', 'a_b'))
  assert found == ['chain__', 'a_b_', 'chain_', 'a_b']


@pytest.mark.parametrize('names', ['a', ['a', 'a'], ['a', 'b/c']])
def test_names_may_be_given_and_those_that_do_not_fit_are_refused(names):
  result = _result([_draws(), _draws(2)])
  tree = result.to_arviz(('location', 'scale'))
  assert set(tree.posterior.data_vars) == {'location', 'scale'}
  with pytest.raises(ValueError, match='names='):
    result.to_arviz(names)


def test_the_trace_has_the_names_of_arviz():
  rng = np.random.default_rng(2)
  ratio = rng.normal(size=(_NUM_DRAWS, 3))
  ratio[0, 0], ratio[1, 1] = np.nan, -np.inf
  energy = rng.normal(size=(_NUM_DRAWS, 3))
  trace = {
    'target_log_prob': rng.normal(size=(_NUM_DRAWS, 3)),
    'is_accepted': ratio > -0.5,
    'log_accept_ratio': ratio,
    'diverging': ~(ratio > -1000.0),
    'step_size': np.linspace(1.0, 2.0, _NUM_DRAWS),
    'extra': {
      'energy': energy,
      'chain': 2.0 * energy,
      'matrix': np.zeros([_NUM_DRAWS, 2, 2]),
    },
  }
  stats = _result(_draws(), trace).to_arviz().sample_stats
  expected = np.where(np.isnan(ratio), 0.0, np.minimum(np.exp(ratio), 1.0))
  np.testing.assert_allclose(stats['acceptance_rate'], expected.T)
  for name, values in {
    'lp': trace['target_log_prob'],
    'accepted': trace['is_accepted'],
    'diverging': trace['diverging'],
    'energy': energy,
    'extra_chain': 2.0 * energy,
  }.items():
    np.testing.assert_array_equal(stats[name], values.T)
  np.testing.assert_array_equal(
    stats['step_size'], np.tile(trace['step_size'], [3, 1])
  )


@pytest.mark.parametrize('chains', [(), (1,), (2, 3)])
def test_any_number_of_chain_axes_is_one(chains):
  rng = np.random.default_rng(3)
  states = rng.normal(size=(_NUM_DRAWS, *chains, 4))
  trace = {
    'target_log_prob': rng.normal(size=(_NUM_DRAWS, *chains)),
    'extra': np.arange(_NUM_DRAWS),
  }
  tree = _result(states, trace).to_arviz()
  rows = states.reshape(_NUM_DRAWS, -1, 4)
  log_probs = trace['target_log_prob'].reshape(_NUM_DRAWS, -1)
  np.testing.assert_array_equal(tree.posterior['x'], np.swapaxes(rows, 0, 1))
  stats = tree.sample_stats
  np.testing.assert_array_equal(stats['lp'], log_probs.T)
  assert np.all(stats['extra'] == trace['extra'])


@pytest.mark.full
def test_a_run_says_what_it_was():
  start = {'b': tf.zeros([4, 2]), 'a': tf.ones([4])}
  kernel = tfpa.gradient_adaptive_langevin(
    lambda a, b: -0.5 * (a**2 + tf.reduce_sum(b**2, axis=-1)), 150
  )
  result = tfpa.sample(
    kernel,
    start,
    200,
    num_burnin_steps=170,
    num_steps_between_results=1,
    progress=False,
    jit_compile=False,
  )
  first, second, third = repr(result).splitlines()
  assert first.endswith('200 draws x 4 chain(s) x 3 coordinate(s)')
  run = result.run
  assert run['num_adaptation_steps'] == 150 and run['num_discarded'] == 170
  costs = [tfpa.cost_per_step(kernel, a).gradient for a in (True, False)]
  assert run['num_gradients'] == 150 * costs[0] + (20 + 400) * costs[1]
  assert f'{run["num_gradients"]:,.0f} gradients of each chain' in second
  accepted = result.trace['is_accepted'].mean()
  assert second.strip().startswith(f'accepted {accepted:.2f}, ')
  value, place = run['worst']['rhat']
  assert f'R-hat at most {value:.3f} ({place})' in third
  tree = result.to_arviz()
  np.testing.assert_array_equal(
    tree.posterior['b'].values, np.swapaxes(result.states['b'], 0, 1)
  )
