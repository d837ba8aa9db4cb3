"""The bare loop is a correct MALA, and programs of a case are timed."""

import numpy as np
import pytest
import tensorflow as tf

from experiments.run.study import Work
from experiments.studies import steps
from experiments.targets.gaussians import gaussian_target


def _variance_after_one_step(scale, num_chains=50_000):
  """Returns the variance of N(0, 1) draws after a step on N(0, scale^2)."""
  target = gaussian_target('x', [[scale**2]], 'float64')
  x = tf.constant(np.random.default_rng(0).normal(size=(num_chains, 1)))
  log_prob, grads = steps._value_and_gradient(target.target_log_prob_fn, x)
  factor = tf.constant([[1.2]], tf.float64)
  moved, _, _ = steps.bare_langevin_step(
    target.target_log_prob_fn, factor, (x, log_prob, grads), [3, 4]
  )
  assert np.mean(moved.numpy() != x.numpy()) > 0.3
  return np.var(moved.numpy())


def test_a_bare_step_leaves_its_target_invariant_and_no_other():
  # The variance of n squared normals is 2 / n.
  error = np.sqrt(2 / 50_000)
  assert abs(_variance_after_one_step(1.0) - 1.0) < 4 * error
  assert abs(_variance_after_one_step(0.8) - 1.0) > 4 * error


@pytest.mark.nightly
@pytest.mark.parametrize(
  'name, programs',
  [
    ('MALA, 1 chains, d = 10', ['bare', 'frozen', 'adapting']),
    (
      'HMC, kernel Gaussian, dense, d = 51',
      ['frozen', 'autodiff', 'finite_difference'],
    ),
    ('mGrad, path of 1000', ['ar1', 'ar2']),
  ],
)
def test_programs_of_a_case_are_timed_in_turns(name, programs, tmp_path):
  settings = steps.Steps().smoke()
  case = steps.cases(settings)[name]
  record = steps.run(case, 0, Work(settings, tmp_path))
  for one, other in case.ratios:
    ratio, (low, high) = (
      record[f'{one}_over_{other}'],
      record['quartiles'][f'{one}_over_{other}'],
    )
    assert 0.0 < low <= ratio <= high
  assert all(record[name] > 0.0 for name in programs)
  assert record.items() >= case.facts.items()


def test_a_grid_has_a_program_for_each_prior():
  programs = steps._field_programs(4, 'float32', 1, None)
  assert list(programs) == ['dense', 'fft', 'kronecker']
  for program in programs.values():
    assert np.all(np.isfinite(program(tf.constant(2))[1]))
