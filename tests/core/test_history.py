"""The history: who stays, equal shares of chains, moments."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.core import history


@functools.cache
def _runner(num_points, jit_compile):
  """Returns (rows [t, b, d], seeds [t, 2]) -> history after all steps."""

  @tf.function(autograph=False, jit_compile=jit_compile)
  def run(rows, seeds):
    start = history.start(num_points, rows.shape[-1], rows.dtype)
    return tf.while_loop(
      lambda step, _: step < rows.shape[0],
      lambda step, kept: (step + 1, history.add(kept, rows[step], seeds[step])),
      (0, start),
    )[1]

  return run


def _run(num_points, rows, seed=0, jit_compile=False):
  seeds = np.random.default_rng(seed).integers(
    2**31 - 1, size=(len(rows), 2), dtype=np.int32
  )
  run = _runner(num_points, jit_compile)
  return run(tf.constant(rows), tf.constant(seeds))


def _steps_of_chains(num_steps, num_chains):
  """Returns rows [t, b, 2]: the number of the step and of the chain."""
  steps, chains = np.meshgrid(
    np.arange(num_steps), np.arange(num_chains), indexing='ij'
  )
  return np.stack([steps, chains], axis=-1).astype('float64')


@pytest.mark.full
def test_survival_is_linear_in_the_step():
  # Recency 2: the age u = s / T of a row has the law u^2.
  num_steps, num_points, num_repeats = 1200, 50, 20
  rows = _steps_of_chains(num_steps, 1)
  ages = np.concatenate(
    [
      _run(num_points, rows, seed).points[:, 0].numpy() / num_steps
      for seed in range(num_repeats)
    ]
  )
  edges = np.linspace(0.0, 1.0, 6)
  counts, _ = np.histogram(ages, edges)
  shares = counts / len(ages)
  expected = np.diff(edges**2)
  standard_error = np.sqrt(expected * (1.0 - expected) / len(ages))
  assert np.all(np.abs(shares - expected) < 4.0 * standard_error)
  # Power: a plain reservoir would keep a fifth of each.
  assert np.any(np.abs(shares - 0.2) > 8.0 * standard_error)


def test_chains_keep_equal_shares():
  kept = _run(60, _steps_of_chains(300, 4))
  counts = np.bincount(kept.points[:, 1].numpy().astype(int), minlength=4)
  # Strata of their own once the history is full: 15 rows each, and those of
  # the filling that nobody has overwritten.
  assert np.all(np.abs(counts - 15) <= 1)
  assert int(kept.num_seen) == 1200


@pytest.mark.parametrize('jit_compile', [False, True])
def test_in_order_is_by_chain_and_then_by_time(jit_compile):
  kept = _run(30, _steps_of_chains(200, 3), jit_compile=jit_compile)
  points, weights = history.in_order(kept)
  steps, chains = points.numpy().T
  np.testing.assert_array_equal(np.lexsort([steps, chains]), np.arange(30))
  np.testing.assert_allclose(weights, np.full(30, 1 / 30))
  # Power: the rows themselves are in no order.
  assert np.any(np.diff(kept.points[:10, 0]) < 0)


@pytest.mark.parametrize('jit_compile', [False, True])
def test_the_first_states_fill_the_rows_in_order(jit_compile):
  kept = _run(10, _steps_of_chains(3, 3), jit_compile=jit_compile)
  np.testing.assert_array_equal(kept.points[:9, 0], np.repeat([0, 1, 2], 3))
  np.testing.assert_array_equal(kept.is_filled, [True] * 9 + [False])
  np.testing.assert_allclose(history.weights(kept), [1 / 9] * 9 + [0])


def test_more_chains_than_rows_take_turns():
  kept = _run(5, _steps_of_chains(200, 7))
  assert np.all(kept.is_filled) and np.all(kept.points[:, 0] > 0)
  np.testing.assert_array_equal(kept.chain, kept.points[:, 1])
  # Which chains are offered moves on from step to step.
  seen = {
    float(chain)
    for seed in range(8)
    for chain in _run(5, _steps_of_chains(40, 7), seed).points[:, 1]
  }
  assert seen == set(range(7))


def test_no_non_finite_row_enters():
  rows = _steps_of_chains(100, 3)
  rows[:, 1, 0] = np.nan
  rows[::2, 2, 1] = -np.inf
  kept = _run(12, rows)
  assert np.all(np.isfinite(kept.points))
  filled = kept.points.numpy()[kept.is_filled.numpy()]
  assert set(filled[:, 1]) == {0.0, 2.0}


def test_the_count_of_states_stops_before_it_overflows():
  kept = history.start(4, 2, tf.float32)._replace(
    num_seen=tf.constant(2**30 - 1, tf.int32), is_filled=tf.fill([4], True)
  )
  counts = []
  for seed in range(3):
    kept = history.add(kept, tf.ones([3, 2]), tf.constant([seed, 1]))
    counts.append(int(kept.num_seen))
  assert counts == [2**30 + 2, 2**30 + 3, 2**30 + 3]


def test_draws_given_beforehand_are_thinned_evenly_whatever_their_number():
  # 3e6 draws of 1000 places: the product is no int32.
  draws = tf.range(3_000_000, dtype=tf.float32)[:, tf.newaxis]
  kept = history.from_draws(history.start(1000, 1, tf.float32), draws)
  np.testing.assert_array_equal(kept.points[:, 0], np.arange(0.0, 3e6, 3000.0))
  assert int(kept.num_seen) == 3_000_000
