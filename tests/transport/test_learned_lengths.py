"""Lengths learned behind a map: exact turns, what is chosen and refused."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import learned_lengths
from tests.contracts import targets
from tests.transport.funnels import exact_draws
from tests.transport.funnels import fixed
from tests.transport.funnels import funnel
from tests.transport.funnels import SIZE
from tfp_adaptive.core import block_fits
from tfp_adaptive.core import tfp_private
from tfp_adaptive.linear import trajectory_length
from tfp_adaptive.transport.adaptation import FisherTransportAdaptation

_STEP_SIZE = 0.4


def _learning(target, transport, num_steps=60, most=8, **options):
  return tfpa.transport_adaptive_hamiltonian(
    target,
    num_steps,
    transport=transport,
    max_num_leapfrog_steps=most,
    **options,
  )


def _correlations(num_steps=300, num_chains=50):
  """Returns 1 - r by length and coordinate, at one step size, and weights."""
  kernel = _learning(funnel, fixed(slope=1.0), 10**6)
  state = exact_draws(num_chains)
  with block_fits.promised(kernel):
    results = kernel.bootstrap_results(state)

  @tf.function(autograph=False)
  def step(state, results, seed):
    results = tfp_private.replace_innermost(
      results, step_size=tf.constant(_STEP_SIZE, tf.float64)
    )
    return kernel.one_step(state, results, seed=seed)

  for seed in targets.seeds(num_steps):
    state, results = step(state, results, seed)
  lengths = results.trajectory_length
  variance = lengths.squares - lengths.means**2
  jumps = lengths.jumps / lengths.weights[:, tf.newaxis, tf.newaxis] / variance
  return jumps[:, 0].numpy()


def _largest_error(jumps):
  """Returns the largest distance from 1 - cos, in bounds of its noise."""
  # A leapfrog step of size s turns a normal of unit scale by this angle.
  turn = np.arccos(1.0 - 0.5 * _STEP_SIZE**2)
  expected = 1.0 - np.cos(turn * np.arange(1, 7))[:, np.newaxis]
  # Pairs of each length are worth 1400 and more; half of a squared normal of
  # variance 2 (1 - r) has deviation sqrt(2) (1 - r). The rest is what is
  # rejected.
  bound = 4.0 * np.sqrt(2.0 / 1400) * expected + 0.04
  return np.max(np.abs(jumps[:6] - expected) / bound)


def test_correlations_behind_an_exact_map_are_cosines_of_its_turns():
  assert _largest_error(_correlations()) < 1.0


@pytest.mark.full
def test_those_of_the_states_are_not(monkeypatch):
  # The negative control: q is no normal.
  monkeypatch.setattr(
    FisherTransportAdaptation, '_turning', lambda self, rows, params: rows
  )
  assert _largest_error(_correlations()) > 2.0


def _wide(x):
  return targets.standard_normal(x / tf.constant([1.0, 1.0, 20.0], x.dtype))


@pytest.mark.full
def test_the_lengths_are_those_of_the_map():
  # The same density: only one of the maps holds its slow direction.
  found = []
  for log_scale in (np.zeros(SIZE), np.log([1.0, 1.0, 20.0])):
    kernel = _learning(_wide, fixed(log_scale), 500, 16)
    start = np.random.default_rng(3).normal(size=(16, SIZE))
    run = tfpa.sample(
      kernel, tf.constant(start * [1.0, 1.0, 20.0]), 5, progress=False,
      seed=(0, 3), jit_compile=False,
    )  # fmt: skip
    found.append(learned_lengths.learned(run.final_kernel_results)[1])
  assert found[0] > 8 > found[1]


def _far(x):
  """A normal of mean (0, 0, 100) and deviations (1, 1, 200)."""
  return _wide((x - [0.0, 0.0, 100.0]) / [1.0, 1.0, 10.0])


def _fitted_late():
  """Returns the identity, to which fits give the scales and means of `_far`."""
  parts = fixed()

  def fit(params, *_):
    return params._replace(
      log_scale=tf.constant(np.log([1.0, 1.0, 200.0])),
      mean=tf.constant([0.0, 0.0, 100.0], tf.float64),
    )

  return parts._replace(fit=fit)


def _spread_behind_fits():
  """Returns the longest of the range, and variances where it was learned."""
  # Short steps: one alone is a small part of a turn.
  kernel = _learning(_far, _fitted_late(), 500, 16, target_accept_prob=0.99)
  start = np.random.default_rng(3).normal(size=(16, SIZE))
  run = tfpa.sample(
    kernel, tf.constant(start * [1.0, 1.0, 200.0] + [0.0, 0.0, 100.0]), 5,
    progress=False, seed=(0, 3), jit_compile=False,
  )  # fmt: skip
  results = run.final_kernel_results
  spread = results.trajectory_length.moments.spread
  return learned_lengths.learned(results)[1], spread.numpy()


@pytest.mark.full
def test_what_was_seen_behind_another_map_is_forgotten(monkeypatch):
  longest, spread = _spread_behind_fits()
  assert longest > 2
  np.testing.assert_allclose(spread, 1.0, atol=0.2)
  # The negative control: what is new looks as if it did not move.
  monkeypatch.setattr(trajectory_length, 'restart', lambda known, *_: known)
  _, spread = _spread_behind_fits()
  assert spread.max() > 100.0


def _spread_of_means(kernel, num_steps=60, num_chains=300):
  """Returns Var mean q_0^2 of independent chains, times their steps."""
  states, _ = targets.run_steps(
    targets.stepper(kernel, 'graph'),
    exact_draws(num_chains, seed=5),
    kernel.bootstrap_results(exact_draws(num_chains, seed=5)),
    num_steps,
  )
  squares = np.stack([state.numpy()[:, 0] ** 2 for state in states])
  return num_steps * squares.mean(axis=0).var()


@pytest.mark.full
def test_learned_lengths_keep_no_energy_and_half_a_turn_does():
  kernel = _learning(funnel, fixed(slope=1.0), 300)
  run = tfpa.sample(
    kernel, exact_draws(16), 5, progress=False, seed=(0, 3), jit_compile=False
  )
  learned = tfpa.frozen(kernel, run.final_kernel_results)
  # Independent draws have 2; three leapfrog steps of size 1 are half a turn.
  assert _spread_of_means(learned) < 6.0
  twin = tfpa.MetropolisHastings(
    learned.parameters['inner_kernel'].copy(num_leapfrog_steps=3, step_size=1.0)
  )
  assert _spread_of_means(twin) > 12.0


@pytest.mark.full
@pytest.mark.parametrize(
  'batch, dtype', [((), np.float64), ((2, 3), np.float32)]
)
def test_states_of_any_parts_batch_and_dtype_learn_a_range(dtype, batch):
  def target(x, y):
    return funnel(tf.concat([x[..., tf.newaxis], y], axis=-1))

  rows = np.random.default_rng(1).normal(size=(*batch, SIZE)).astype(dtype)
  start = [tf.constant(rows[..., 0]), tf.constant(rows[..., 1:])]
  kernel = _learning(target, fixed(slope=1.0))
  run = tfpa.sample(kernel, start, 3, progress=False, seed=(0, 3))
  results = run.final_kernel_results
  fewest, most = learned_lengths.learned(results)
  assert 1 <= fewest <= most <= 8
  assert results.trajectory_length.next_review > 25.0
  assert results.trajectory_length.jumps.dtype == dtype


def test_where_the_density_fails_is_rejected_and_not_learned_from():
  learned_lengths.check_failures(lambda target: _learning(target, fixed()))


def test_what_is_learned_is_frozen_and_counted():
  kernel = _learning(funnel, fixed(slope=1.0))
  learned_lengths.check_frozen_and_counted(kernel, exact_draws(4))


def test_a_number_is_that_of_every_step_and_a_pair_is_drawn_from():
  for given, mean in ((5, 5.0), ((1, 5), 3.0), ((3, 6), 4.5)):
    kernel = tfpa.transport_adaptive_hamiltonian(
      funnel, 10, num_leapfrog_steps=given, transport=fixed()
    )
    assert kernel.proposal.max_num_leapfrog_steps is None
    assert tfpa.cost_per_step(kernel, True).gradient == mean
