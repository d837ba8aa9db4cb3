"""Runs of few chains keep the law, whatever is drawn; a slip is seen.

The tests of one step in `test_invariance.py` and `test_latent.py` start 50 000
chains together: what depends on the mean of all states hardly varies there.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import few_chain_cases
from tests.contracts import few_chains
from tests.contracts import targets
from tfp_adaptive.core import short_steps

pytestmark = pytest.mark.full

# Those that stand for the others, and those whose law no test of one step has:
# by night two chains and four of them, and one of the others.
_REPRESENTATIVES = (
  'random_walk',
  'langevin',
  'hamiltonian',
  'transported',
  'kernel_hamiltonian',
  'marginal',
  'elliptical_slice',
  'joint',
  'gibbs',
  'second_order',
)
_RUNS = [
  (case, num_chains)
  for case in few_chain_cases.CASES
  for num_chains in (1, 2, 4)
  if num_chains == 1 or case.name in _REPRESENTATIVES
]


def _marks(case, num_chains):
  is_by_night = num_chains > 1 or case.name not in _REPRESENTATIVES
  return [pytest.mark.nightly] if is_by_night else []


def _parametrized(runs):
  return pytest.mark.parametrize(
    'case, num_chains',
    [
      pytest.param(
        *run,
        id=f'{run[0].name}-{run[1]}',
        marks=_marks(*run),
      )
      for run in runs
    ],
  )


each_run = _parametrized(_RUNS)
each_steered_run = _parametrized([run for run in _RUNS if run[0].steered])
each_varying_case = pytest.mark.parametrize(
  'case',
  [
    pytest.param(case, id=case.name, marks=_marks(case, 1))
    for case in few_chain_cases.CASES
    if case.varying
  ],
)


@functools.cache
def _runner(case, num_chains):
  return few_chains.runner(case, num_chains)


def _p_value(case, num_chains, **options):
  return few_chains.smallest_p_value(_runner(case, num_chains)(**options))


@each_run
def test_runs_of_few_chains_keep_the_law(case, num_chains):
  run = _runner(case, num_chains)()
  assert 0.2 < run.accepted <= 1.0  # Otherwise the test has no power.
  assert np.mean(run.after != run.before) > 0.5
  # Fails by chance for one seed in 1000; the seeds are fixed.
  assert few_chains.smallest_p_value(run) > 1e-3


@each_steered_run
def test_a_step_that_sees_the_state_is_detected(case, num_chains):
  assert _p_value(case, num_chains, strength=0.6) < 1e-6


@each_run
def test_a_wrong_target_is_detected(case, num_chains):
  assert _p_value(case, num_chains, temper=1.2) < 1e-6


@each_varying_case
def test_steps_of_several_sizes_are_drawn(case):
  values, counts = np.unique(_runner(case, 1)().varied, return_counts=True)
  # None of them so often that the others would not show.
  assert len(values) > 1 and counts.max() < 0.8 * counts.sum()
  if case.varying is few_chain_cases.multiplier:
    assert len(values) > 1000 and values.min() < 0.11 < 0.99 < values.max()


@pytest.mark.parametrize(
  'name', ['hamiltonian', 'kernel_hamiltonian', 'marginal']
)
def test_what_is_drawn_depends_on_the_seed_alone(name):
  case = next(c for c in few_chain_cases.CASES if c.name == name)
  kernel = case.build(1.0)
  drawn_by = tf.function(
    lambda *args: case.varying(kernel.one_step(*args)[1]), autograph=False
  )
  drawn = []
  for scale in (1.0, 4.0):  # Once where the density is low.
    state = tf.nest.map_structure(
      lambda s, scale=scale: tf.constant(scale * s), case.law.draw(2, seed=1)
    )
    results = kernel.bootstrap_results(state)
    seeds = targets.seeds(100)
    drawn.append([drawn_by(state, results, s).numpy() for s in seeds])
  np.testing.assert_array_equal(*drawn)
  assert len(np.unique(drawn)) > 1


class _ShortStepsSeeTheState(short_steps.ShortSteps):
  """The wrong kernel: more steps are short on one side."""

  def one_step(self, current_state, previous_kernel_results, seed=None):
    side = tf.cast(tf.reduce_mean(current_state) > 0.0, tf.float64)
    share = 0.2 + 0.7 * side
    results = previous_kernel_results._replace(short_step_share=share)
    return super().one_step(current_state, results, seed)


@pytest.mark.parametrize(
  'num_chains', [1, pytest.param(4, marks=pytest.mark.nightly)]
)
def test_short_steps_that_see_the_state_are_detected(num_chains):
  case = few_chains.FewChains(
    'wrong',
    functools.partial(few_chain_cases.mala, steps=_ShortStepsSeeTheState),
    few_chain_cases.BANANA,
    num_replicates=100_000,
  )
  assert _p_value(case, num_chains) < 1e-6


class _OneUniform(tfpa.MetropolisHastings):
  """The wrong kernel: all chains are accepted, or none."""

  def one_step(self, current_state, previous_kernel_results, seed=None):
    state, results = super().one_step(
      current_state, previous_kernel_results, seed
    )
    moves = tf.reduce_mean(tf.exp(tf.minimum(results.log_accept_ratio, 0.0)))
    moves = moves > tf.random.stateless_uniform([], seed, dtype=moves.dtype)
    return tf.where(moves, results.proposed_state, current_state), results


def test_chains_that_share_a_decision_are_detected():
  def build(temper):
    kernel = few_chain_cases.mala(temper)
    return _OneUniform(kernel.inner_kernel.inner_kernel)

  case = few_chains.FewChains('wrong', build, few_chain_cases.BANANA)
  assert _p_value(case, 4) < 1e-6
