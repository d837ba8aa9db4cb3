"""The bare loop of the benchmark is a correct MALA."""

import numpy as np
import pytest
import tensorflow as tf

from experiments.studies import bench
from experiments.studies import bench_hamiltonian
from experiments.studies import bench_latent
from experiments.targets.gaussians import gaussian_target


def _variance_after_one_step(scale, num_chains=50000):
  """Variance over exact draws after one bare step on N(0, scale^2)."""
  target = gaussian_target('x', [[scale**2]], 'float64')
  x = np.random.default_rng(0).normal(size=(num_chains, 1))
  x = tf.constant(x)
  log_prob, grads = bench._value_and_gradient(target.target_log_prob_fn, x)
  factor = tf.constant([[1.2]], tf.float64)
  moved, _, _ = bench.bare_langevin_step(
    target.target_log_prob_fn, factor, (x, log_prob, grads), [3, 4]
  )
  assert np.mean(moved.numpy() != x.numpy()) > 0.3
  return np.var(moved.numpy())


def test_bare_step_leaves_the_target_invariant():
  # Standard error of a variance of n normals: sqrt(2 / n).
  assert abs(_variance_after_one_step(1.0) - 1) < 4 * np.sqrt(2 / 50000)


def test_bare_step_moves_draws_of_another_target():
  assert abs(_variance_after_one_step(0.8) - 1) > 4 * np.sqrt(2 / 50000)


@pytest.mark.full
def test_bench_measures_all_three_programs():
  rows = bench.measure(smoke=True)
  assert len(rows) == len(bench.SMOKE_SIZES)
  assert all(value > 0 for row in rows for value in row)
  assert bench.to_rich(rows).row_count == len(rows)


@pytest.mark.nightly
def test_the_hamiltonian_bench_measures_its_case():
  rows = bench_hamiltonian.measure(smoke=True)
  assert [row.name for row in rows] == ['iid']
  assert all(value > 0.0 for value in rows[0][3:])
  assert bench_hamiltonian.to_rich(rows).row_count == 1


@pytest.mark.nightly
def test_the_latent_bench_measures_every_prior():
  rows = bench_latent.measure(smoke=True)
  assert [row.prior for row in rows] == ['dense', 'fft', 'kronecker'] + [
    'ar1',
    'ar2',
  ]
  assert all(row.microseconds > 0.0 for row in rows)
  assert bench_latent.to_rich(rows).row_count == len(rows)
