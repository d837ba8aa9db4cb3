"""Chains that run on: their draws, their thinning, their cost."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.posterior import chains as chains_lib
from tfp_adaptive.posterior import density as density_lib
from tfp_adaptive.posterior.engines import recorded
from tfp_adaptive.posterior.engines.host import HostEngine
from tfp_adaptive.posterior.judge import verdict
from tfp_adaptive.posterior.model import problem as problem_lib
from tfp_adaptive.posterior.posterior import Posterior
from tfp_adaptive.posterior.structures import modes
from tfp_adaptive.posterior.structures import structure

_NUM_DRAWS, _BLOCK = 200, 100
_CHOICE = structure.Choice(*structure.default_matrix(2))


class _GivenEngine:
  """Its chains stand still; it has adapted, and costs a gradient a step."""

  name = 'given'
  is_settled, num_steps, num_adaptation_steps = True, 50, 50
  cost, cost_of_adapting, steps_of_draw = 1.0, 3.0, 1
  factor = None

  def __init__(self, states=None, recorded=None, results=None):
    self.states, self.results = np.asarray(states), results
    self._recorded = recorded

  def start(self, num_draws, run):
    del num_draws, run
    return self._recorded


def _started(choice=_CHOICE, num_steps=50, num_draws=_NUM_DRAWS, with_xla=True):
  problem = problem_lib.of_density(
    lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1),
    tf.TensorSpec([2], tf.float64),
    None,
    4,
  )
  density = density_lib.Density(problem, 4)
  starts = np.random.default_rng(0).normal(size=(4, 2))
  engine = chains_lib.engine_of(
    density, choice, starts, [1, 2], num_steps, with_xla
  )
  return chains_lib.start(
    engine, choice, density, num_draws, recorded.Options()
  )


@pytest.fixture(scope='module')
def started():
  return _started()


def test_blocks_are_small_where_gradients_are_few():
  sizes = [
    chains_lib.block_size(1000, budget) for budget in (5e3, 5e4, float('inf'))
  ]
  assert sizes == [100, 250, 250]
  # Half of what is wanted, and never nothing.
  assert chains_lib.block_size(31) == 16
  assert chains_lib.block_size(1, 1.0) == 1


@pytest.mark.parametrize('accept_prob, diverge', [(0.8, False), (0.95, True)])
def test_of_smaller_steps_fewer_may_diverge(accept_prob, diverge):
  choice = _CHOICE._replace(target_accept_prob=accept_prob)
  chains = chains_lib.Chains(_GivenEngine(), choice, None, 500)
  ratio = np.full((500, 8), -0.1)
  ratio[::50, 3] = -21.0  # A share of 0.0025.
  trace = dict(target_log_prob=ratio, log_accept_ratio=ratio)
  chains.recorded = [(ratio[..., np.newaxis], trace)]
  assert chains.diverge == diverge
  # One of a hundred is chance.
  few = ratio[49:62]
  trace = dict(target_log_prob=few, log_accept_ratio=few)
  chains.recorded = [(few[..., np.newaxis], trace)]
  assert np.sum(few < -20.0) == 1 and not chains.diverge


def test_blocks_follow_each_other_with_noise_of_their_own(started):
  chains = _copied(started)
  before = chains.draws
  assert before.shape == (_BLOCK, 4, 2) and not chains.is_full
  chains.extend_to(3 * _BLOCK)
  chains.run_block()
  first = chains.draws[_BLOCK:].copy()
  chains.run_block()
  second = chains.draws[2 * _BLOCK :]
  assert len(first) == len(second) == _BLOCK and chains.is_full
  np.testing.assert_array_equal(chains.draws[:_BLOCK], before)
  # Increments of the same noise are alike.
  steps = [np.diff(part, axis=0).reshape(-1) for part in (first, second)]
  assert abs(np.corrcoef(*steps)[0, 1]) < 0.25
  assert abs(np.std(chains.draws) - 1.0) < 0.15


def test_full_chains_keep_every_second_draw_and_go_on_at_that_pace(started):
  chains = _copied(started)
  chains.run_block()
  before, spent = chains.draws, chains.num_gradients
  assert chains.is_full and chains.num_kept == _NUM_DRAWS
  # The chains that these are a copy of have none of their blocks.
  assert len(started.draws) == started.num_recorded == _BLOCK
  cost = chains.gradients_to_go_on
  chains.run_block()
  assert chains.thinning == 2
  np.testing.assert_array_equal(chains.draws[:_BLOCK], before[1::2])
  assert len(chains.draws) == len(chains.trace['is_accepted']) == _NUM_DRAWS
  # Two steps for a draw.
  assert chains.num_gradients - spent == cost
  assert cost == chains.engine.cost * 2 * _BLOCK
  # Leapfrog steps of draws that were removed are those of the next draw.
  num_leaps = chains.trace['n_steps'].reshape(2, _BLOCK, -1).mean(axis=(1, 2))
  np.testing.assert_allclose(num_leaps, 2.0 * chains.engine.cost, rtol=0.1)


def test_a_block_that_is_interrupted_costs_no_draw(started, monkeypatch):
  chains = _copied(started)
  chains.run_block()

  def interrupted(*args, **kwargs):
    raise KeyboardInterrupt

  monkeypatch.setattr(HostEngine, '_take', interrupted)
  with pytest.raises(KeyboardInterrupt):
    chains.run_block()
  assert len(chains.draws) == _NUM_DRAWS and chains.thinning == 1


class _Interrupted(_GivenEngine):
  @property
  def cost(self):
    raise KeyboardInterrupt


@pytest.mark.parametrize('engine', [_Interrupted(), _GivenEngine()])
def test_a_block_is_added_whole_or_not_at_all(engine):
  chains = chains_lib.Chains(_GivenEngine(), _CHOICE, None, 4)
  draws = np.arange(4.0).reshape(4, 1, 1)
  chains.recorded = [(draws, dict(is_accepted=draws[..., 0]))]
  before = dict(chains.__dict__)
  found = recorded.Recorded(10.0 + draws[:2], dict(is_accepted=draws[:2, :, 0]))
  if isinstance(engine, _Interrupted):
    with pytest.raises(KeyboardInterrupt):
      chains.add(found, engine, is_apart=True)
    assert chains.__dict__ == before
  else:
    chains.add(found, engine, is_apart=True)
    assert chains.draws.ravel().tolist() == [1.0, 3.0, 10.0, 11.0]
    assert (chains.thinning, chains.num_gradients) == (2, 4.0)


def test_what_adapted_is_spent_too():
  rows = np.zeros([10, 4, 2])
  found = recorded.Recorded(rows, dict(target_log_prob=rows[..., 0]))
  engine = _GivenEngine(recorded=found)
  chains = chains_lib.start(engine, _CHOICE, None, 20, recorded.Options())
  # 50 steps of 3 gradients, then a block of 10 draws of one.
  assert chains.num_gradients == 160.0 and chains.gradients_of_draws == 10.0


def test_states_that_are_no_draws_cost_nothing_and_are_replaced():
  rows = np.zeros([1, 4, 2])
  trace = dict(
    target_log_prob=rows[..., 0], log_accept_ratio=np.nan * rows[..., 0]
  )
  found = recorded.Recorded(rows, trace, cut_by='the user', are_draws=False)
  engine = _GivenEngine(recorded=found)
  chains = chains_lib.start(engine, _CHOICE, None, 20, recorded.Options())
  assert chains.num_gradients == 150.0 and chains.diverge
  rows = np.ones([10, 4, 2])
  trace = {name: np.zeros([10, 4]) for name in trace}
  chains.add(recorded.Recorded(rows, trace), engine)
  np.testing.assert_array_equal(chains.draws, rows)
  assert chains.num_gradients == 160.0 and not chains.diverge


def test_an_error_is_told_until_a_block_succeeds():
  rows = np.zeros([10, 4, 2])
  found = recorded.Recorded(rows, dict(target_log_prob=rows[..., 0]))
  engine = _GivenEngine(recorded=found)
  chains = chains_lib.start(engine, _CHOICE, None, 20, recorded.Options())
  chains.error = 'a simulator that failed'
  assert chains.error in chains.failures[0]
  chains.add(found, engine)
  assert chains.failures == []


def test_restored_chains_know_how_long_a_step_takes(started):
  chains = _copied(started)
  chains._seconds_per_step = 0.1
  header, arrays = chains.to_saved()
  again = chains_lib.restore(
    chains.density, json.loads(json.dumps(header)), arrays, None
  )
  assert again.fitting(0.35) == chains.fitting(0.35) == 3


@pytest.mark.parametrize('num_draws', [101, 1000])
def test_one_diverging_draw_alone_is_allowed(num_draws):
  careful = _CHOICE._replace(target_accept_prob=0.99)
  chains = chains_lib.Chains(_GivenEngine(), careful, None, num_draws)
  # The last block goes beyond the draws that are kept and judged.
  draws = np.zeros([num_draws + 1, 4, 2])
  ratio = np.zeros(draws.shape[:2])
  ratio[5, 1] = -30.0
  trace = dict(target_log_prob=np.zeros_like(ratio), log_accept_ratio=ratio)
  chains.recorded = [(draws, trace)]
  judged = {name: rows[:num_draws] for name, rows in trace.items()}
  assert np.mean(verdict.is_diverging(judged)) <= chains.most_diverging
  assert not chains.diverge


@pytest.mark.parametrize('is_careful', [False, True])
def test_first_proposals_count_until_steps_were_made_smaller(is_careful):
  choice = _CHOICE._replace(target_accept_prob=0.95 if is_careful else 0.8)
  chains = chains_lib.Chains(_GivenEngine(), choice, None, 1000)
  draws = np.zeros([1000, 4, 2])
  ratio = np.zeros(draws.shape[:2])
  first = ratio.copy()
  first[:10] = -30.0
  trace = dict(
    target_log_prob=ratio, least_log_accept_ratio=ratio, least_first_ratio=first
  )
  chains.recorded = [(draws, trace)]
  assert chains.diverge == chains.may_be_more_careful == (not is_careful)


@pytest.mark.parametrize('num_restarts', [[1, 3, 2, 1], [0, 3, 2, 0]])
def test_an_exchange_that_reached_not_all_chains_has_not_converged(
  num_restarts,
):
  draws = np.random.default_rng(0).normal(size=(1000, 4, 1))
  choice = structure.Choice(modes.NAME, modes.around(draws))
  results = types.SimpleNamespace(num_restarts=np.array(num_restarts))
  engine = _GivenEngine(draws[-1], results=results)
  chains = chains_lib.Chains(engine, choice, None, len(draws))
  chains.recorded = [(draws, dict(target_log_prob=-(draws[..., 0] ** 2)))]
  problem = types.SimpleNamespace(
    names=['x'], constrain=lambda x: x, model=None, coordinates=['x[0]']
  )
  posterior = Posterior(problem, chains, [], 400.0)
  num_missed = num_restarts.count(0)
  assert posterior.converged == (not num_missed)
  assert [f'{num_missed} of 4 chains never' in w for w in posterior.failed] == (
    [True] if num_missed else []
  )


@pytest.mark.parametrize('most_dense', [16, 15])
def test_the_host_learns_a_matrix_of_the_structure_that_the_kernel_has(
  most_dense, monkeypatch
):
  monkeypatch.setattr(structure, '_MOST_DENSE', most_dense)
  size, on_host = 16, []
  for name, build in structure._builders(size).items():
    choice = structure.Choice(name, build())
    part = chains_lib._part_on_host(choice, size, 50)
    params = choice.part.init(size, tf.float64, tf.ones([], tf.float64))
    if part is not None:
      on_host.append(name)
      factor = params if part.is_matrix else params.factor
      assert factor.shape == part.factor.shape == (size, size)
  assert bool(on_host) == (size <= most_dense)


def test_the_kernel_of_a_map_in_many_coordinates_takes_a_step(monkeypatch):
  monkeypatch.setattr(structure, '_MOST_DENSE', 1)
  build = structure._builders(2)[structure.BENT]
  chains = _started(structure.Choice(structure.BENT, build()), 0, 2, False)
  states = tf.constant(chains.state)
  results = chains.kernel.bootstrap_results(states)
  moved, _ = chains.kernel.one_step(states, results, seed=[1, 2])
  assert moved.shape == states.shape and np.all(np.isfinite(moved))


def _copied(chains):
  copy = object.__new__(chains_lib.Chains)
  copy.__dict__.update(chains.__dict__)
  return copy
