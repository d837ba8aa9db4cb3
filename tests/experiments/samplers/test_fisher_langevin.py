"""Fisher adaptation against dense algebra, and what it learns."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from experiments.samplers.baselines import square_root
from experiments.samplers.baselines.fisher_langevin import FisherAdaptation
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results

_EVENT_SIZE = 4
_NUM_STEPS = 20
_TARGET = targets.Banana(_EVENT_SIZE)
_FACTOR = 0.5 * targets.correlated_factor(_EVENT_SIZE, 4.0, seed=8)


def _fisher(target, num_steps, preconditioner=None, **options):
  dense = preconditioner or tfpa.preconditioners.cholesky()
  proposal = tfpa.proposals.UncalibratedPreconditionedLangevin(
    target, square_root.as_square(dense)
  )
  return FisherAdaptation(
    tfpa.MetropolisHastings(proposal), num_steps, **options
  )


def _run(num_chains, **options):
  """Returns the results before and after every step from a fixed factor."""
  kernel = _fisher(
    _TARGET.log_prob, _NUM_STEPS, registry.fixed(_FACTOR), **options
  )
  start = tf.constant(_TARGET.draw(num_chains))
  before = kernel.bootstrap_results(start)
  step = targets.stepper(kernel, 'graph')
  _, results = targets.run_steps(step, start, before, _NUM_STEPS)
  return [before, *results]


def _increments(before, after):
  """Returns s_k and a_k of a step from what the kernel cached."""
  mh = mh_results(after)
  accept = np.exp(np.minimum(mh.log_accept_ratio, 0.0))
  change = (
    mh.proposed_results.grads_target_log_prob
    - mh_results(before).accepted_results.grads_target_log_prob
  )
  return np.sqrt(accept)[:, np.newaxis] * change.numpy(), accept


def _params(results):
  accepted = mh_results(results).accepted_results
  return accepted.preconditioner_params.numpy()


@pytest.mark.full
def test_with_gain_one_the_precision_is_the_plain_sum():
  results = _run(10, gain=1.0, regularization=10.0, max_shrinkage=None)
  # lambda = 10 in the units of the gradient, along the first factor.
  count = 10.0 * np.trace(_FACTOR @ _FACTOR.T) / _EVENT_SIZE
  precision = count * np.linalg.inv(_FACTOR @ _FACTOR.T)
  for before, after in zip(results, results[1:]):
    increments, accept = _increments(before, after)
    precision = precision + increments.T @ increments
    count += accept.sum()
    root = _params(after) / count**0.5
    np.testing.assert_allclose(
      root @ root.T, np.linalg.inv(precision), rtol=0.0, atol=1e-10
    )
  assert np.any(np.triu(root, 1) != 0.0)


@pytest.mark.full
def test_the_mean_square_follows_its_recursion():
  gain = 3.0
  results = _run(10, gain=gain, max_shrinkage=None)
  mean_square = np.linalg.inv(_FACTOR @ _FACTOR.T)
  count = gain * max(_EVENT_SIZE, 10 * 10)
  for before, after in zip(results, results[1:]):
    increments, accept = _increments(before, after)
    count += accept.sum()
    weight = gain / count
    mean_square = (
      1.0 - weight * accept.sum()
    ) * mean_square + weight * increments.T @ increments
    params = _params(after)
    np.testing.assert_allclose(
      params @ params.T, np.linalg.inv(mean_square), rtol=1e-9
    )
    np.testing.assert_allclose(
      after.statistics.log_scale,
      np.linalg.slogdet(params)[1] / _EVENT_SIZE,
      rtol=1e-9,
    )


@pytest.mark.parametrize('normalize_trace', [True, False])
def test_the_step_size_follows_the_acceptance(normalize_trace):
  results = _run(10, normalize_trace=normalize_trace, target_accept_prob=0.5)
  for time, (before, after) in enumerate(zip(results, results[1:])):
    scales = [
      np.log(mh_results(r).accepted_results.step_size) for r in (before, after)
    ]
    if normalize_trace:
      scales = [
        scale + 0.5 * np.log(np.sum(_params(r) ** 2))
        for scale, r in zip(scales, (before, after))
      ]
    accept = np.exp(np.minimum(mh_results(after).log_accept_ratio, 0.0))
    rate = max(0.0075, 0.5 * (1.0 + time) ** -0.6)
    np.testing.assert_allclose(
      scales[1] - scales[0], rate * (accept.mean() - 0.5), rtol=1e-9, atol=1e-13
    )


def _condition(kernel, factor, start, dtype):
  # Compiling would take longer; the modes agree by the contract tests.
  run = tfpa.sample(
    kernel, tf.constant(start, dtype), 20, progress=False, jit_compile=False
  )
  learned = tfpa.learned_factor(kernel, run.final_kernel_results)
  whitened = np.linalg.solve(factor, learned.astype(np.float64))
  return np.linalg.cond(whitened @ whitened.T)


def _gaussian(factor, dtype):
  inverse = tf.constant(np.linalg.inv(factor), dtype)
  return lambda x: targets.standard_normal(tf.linalg.matvec(inverse, x))


@pytest.mark.full
@pytest.mark.parametrize(
  'has_paper_constants, num_chains, num_steps, dtype, distance',
  [(False, 10, 800, np.float32, 100.0), (True, 10, 800, np.float32, 1.0)],
  ids=['ten far chains', 'paper'],
)
def test_a_gaussian_is_learned(
  has_paper_constants, num_chains, num_steps, dtype, distance
):
  factor = targets.correlated_factor(_EVENT_SIZE, 100.0)
  start = np.random.default_rng(0).normal(size=(num_chains, _EVENT_SIZE))
  kernel = baselines.fisher_adaptive_langevin(
    _gaussian(factor, dtype), num_steps, has_paper_constants=has_paper_constants
  )
  condition = _condition(kernel, factor, distance * start @ factor.T, dtype)
  # An isotropic factor leaves 100.
  assert condition < 2.5


# Square roots moved by rows, against dense algebra.


_EVENT_SIZE_ROOT = 6


def _root_and_rows(num_rows, size=1.0):
  rng = np.random.default_rng(num_rows)
  root = np.eye(_EVENT_SIZE_ROOT) + 0.3 * rng.normal(
    size=[_EVENT_SIZE_ROOT] * 2
  )
  return root, size * rng.normal(size=(num_rows, _EVENT_SIZE_ROOT))


def _expected(root, rows):
  inverse = np.linalg.inv(root)
  return np.linalg.inv(inverse.T @ inverse + rows.T @ rows)


@pytest.mark.parametrize('is_compiled', [False, True])
@pytest.mark.parametrize('num_rows', [1, 4, 37])
def test_rows_are_added_to_the_inverse_and_to_its_determinant(
  num_rows, is_compiled
):
  root, rows = _root_and_rows(num_rows)
  contract = square_root.contract
  if is_compiled:
    contract = tf.function(contract, jit_compile=True, autograph=False)
  moved, change = contract(tf.constant(root), tf.constant(rows))
  expected = _expected(root, rows)
  np.testing.assert_allclose(
    moved.numpy() @ moved.numpy().T, expected, rtol=0.0, atol=1e-10
  )
  before, after = (
    np.linalg.slogdet(matrix)[1] for matrix in (root, moved.numpy())
  )
  np.testing.assert_allclose(change, after - before, rtol=1e-10)
  # The negative control: without one of the rows it is another matrix.
  assert np.max(np.abs(_expected(root, rows[1:]) - expected)) > 1e-4


def test_huge_rows_shrink_a_direction_by_the_bound_and_no_further():
  root, rows = _root_and_rows(1, size=1e12)
  moved, _ = square_root.contract(tf.constant(root), tf.constant(rows), 2.0)
  stretch = np.linalg.svd(np.linalg.solve(root, moved))[1]
  np.testing.assert_allclose(stretch[-1], 0.5, rtol=1e-9)
  np.testing.assert_allclose(stretch[:-1], 1.0, rtol=1e-9)


def test_a_square_structure_multiplies_and_has_a_determinant():
  part = square_root.as_square(tfpa.preconditioners.cholesky(init_scale=0.3))
  assert part.init_scale == 0.3
  assert square_root.as_square(part) is part
  root, rows = _root_and_rows(3)

  operator = part.operator(tf.constant(root))
  pushed = operator.matmul(tf.constant(rows), adjoint_arg=True)
  np.testing.assert_allclose(pushed, root @ rows.T, rtol=1e-10)
  np.testing.assert_allclose(
    operator.log_abs_determinant(), np.linalg.slogdet(root)[1], rtol=1e-10
  )
  projected = part.operator(part.project(tf.constant(root)))
  np.testing.assert_array_equal(projected.to_dense(), root)
