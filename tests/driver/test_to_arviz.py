"""Draws as a DataTree: the same numbers, by name, chains first."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.core import state_parts
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


@pytest.mark.parametrize(
  'states, names',
  [(_draws(2), 'beta'), ([_draws(), _draws(2)], ('location', 'scale'))],
)
def test_names_may_be_given(states, names):
  tree = _result(states).to_arviz(names)
  found = set(tree.posterior.data_vars)
  assert found == ({names} if isinstance(names, str) else set(names))


def test_names_that_are_not_allowed_are_changed_where_nobody_chose_them():
  parts = dict(a=0, chain=1, draw=dict(b=2))
  found = to_arviz.allowed_names(parts)
  assert found == ['a', 'chain_', 'draw.b']
  assert to_arviz.allowed_names(parts, ('x/y', 'draw')) == ['x_y', 'draw_']
  assert to_arviz.are_names(found)
  # Each part keeps a name of its own.
  found = to_arviz.allowed_names(None, ('chain', 'a/b', 'chain_', 'a_b'))
  assert found == ['chain__', 'a_b_', 'chain_', 'a_b']


@pytest.mark.parametrize(
  'names', ['a', ['a'], ['a', 'a'], ['a', 3], ['a', 'chain'], ['a', 'b/c']]
)
def test_names_that_do_not_fit_are_refused(names):
  result = _result([_draws(), _draws(2)])
  with pytest.raises(ValueError, match=r'2 part\(s\) of the state.*names='):
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
    'extra': {'energy': energy, 'matrix': np.zeros([_NUM_DRAWS, 2, 2])},
  }
  stats = _result(_draws(), trace).to_arviz().sample_stats
  assert set(stats.data_vars) == {
    'lp',
    'accepted',
    'acceptance_rate',
    'diverging',
    'step_size',
    'energy',
  }
  expected = np.where(np.isnan(ratio), 0.0, np.minimum(np.exp(ratio), 1.0))
  np.testing.assert_allclose(stats['acceptance_rate'], expected.T)
  np.testing.assert_array_equal(stats['lp'], trace['target_log_prob'].T)
  np.testing.assert_array_equal(stats['accepted'], trace['is_accepted'].T)
  np.testing.assert_array_equal(stats['diverging'], trace['diverging'].T)
  np.testing.assert_array_equal(stats['energy'], energy.T)
  np.testing.assert_array_equal(
    stats['step_size'], np.tile(trace['step_size'], [3, 1])
  )


def test_what_a_user_records_takes_the_name_of_nothing_else():
  log_prob, own = _draws(), _draws()
  trace = {'target_log_prob': log_prob, 'extra': {'lp': own, 'energy': own}}
  stats = _result(_draws(), trace).to_arviz().sample_stats
  assert set(stats.data_vars) == {'lp', 'extra_lp', 'energy'}
  np.testing.assert_array_equal(stats['lp'], log_prob.T)
  np.testing.assert_array_equal(stats['extra_lp'], own.T)


@pytest.mark.parametrize('chains', [(), (1,), (2, 3)])
def test_any_number_of_chain_axes_is_one(chains):
  rng = np.random.default_rng(3)
  states = rng.normal(size=(_NUM_DRAWS, *chains, 4))
  trace = {
    'target_log_prob': rng.normal(size=(_NUM_DRAWS, *chains)),
    'extra': np.arange(_NUM_DRAWS),
  }
  tree = _result(states, trace).to_arviz()
  num_chains = int(np.prod(chains))
  assert tree.posterior['x'].shape == (num_chains, _NUM_DRAWS, 4)
  for number, index in enumerate(np.ndindex(*chains)):
    np.testing.assert_array_equal(
      tree.posterior['x'][number], states[(slice(None), *index)]
    )
    np.testing.assert_array_equal(
      tree.sample_stats['lp'][number],
      trace['target_log_prob'][(slice(None), *index)],
    )
    np.testing.assert_array_equal(
      tree.sample_stats['extra'][number], trace['extra']
    )


def test_attributes_tell_of_the_run():
  attributes = _result(_draws(), num_gradients=12.0).to_arviz().attrs
  assert attributes['inference_library_version'] == tfpa.__version__
  assert attributes['kernel'] == 'Some' and attributes['tuning_steps'] == 4
  assert attributes['sampling_time'] == 3.0
  assert attributes['num_gradients'] == 12.0
  assert 'num_gradients' not in _result(_draws()).to_arviz().attrs


def test_a_likelihood_is_not_called_the_log_density():
  tree = _result(_draws(), log_prob='log_likelihood').to_arviz()
  assert set(tree.sample_stats.data_vars) == {'log_likelihood'}


def test_without_a_log_density_the_chains_are_not_guessed():
  with pytest.raises(ValueError, match='which axes are chains is not known'):
    _result(_draws(), trace={}).to_arviz()


def test_names_of_parts_follow_the_order_in_which_they_are_flattened():
  structure = {'b': _Pair(1, [2, 3]), 'a': 4}
  names = state_parts.names(structure)
  assert names == ('a', 'b.loc', 'b.scale.x0', 'b.scale.x1')
  assert tf.nest.flatten(structure) == [4, 1, 2, 3]


@pytest.mark.full
def test_a_run_says_what_it_was_in_three_lines():
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
  assert first == (
    'PreconditionedLangevin in ShortSteps in GradientBasedAdaptation: '
    '200 draws x 4 chain(s) x 3 coordinate(s)'
  )
  run = result.run
  assert run['num_adaptation_steps'] == 150 and run['num_discarded'] == 170
  costs = [tfpa.cost_per_step(kernel, a).gradient for a in (True, False)]
  assert run['num_gradients'] == 150 * costs[0] + (20 + 400) * costs[1]
  assert f'{run["num_gradients"]:,.0f} gradients of each chain' in second
  accepted = result.trace['is_accepted'].mean()
  assert second.strip().startswith(f'accepted {accepted:.2f}, ')
  value, place = run['worst']['rhat']
  assert third.strip().startswith(f'R-hat at most {value:.3f} ({place})')
  assert 'of part' in place
  tree = result.to_arviz()
  np.testing.assert_array_equal(
    tree.posterior['b'].values, np.swapaxes(result.states['b'], 0, 1)
  )
  assert {'lp', 'accepted', 'acceptance_rate', 'diverging'} <= set(
    tree.sample_stats.data_vars
  )
