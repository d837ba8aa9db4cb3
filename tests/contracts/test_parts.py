"""Every preconditioner, criterion and optimizer, in every adapting kernel."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import parts as parts_lib
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive import interfaces
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results


def _learns(**parts):
  """Returns params before and after a few adapting Langevin steps.

  The state is one part of three coordinates, or two parts of one and two where
  each has a preconditioner of its own.
  """
  state = tf.constant(np.random.default_rng(0).normal(size=(4, 3)))
  target = targets.standard_normal
  preconditioner = parts.get('preconditioner')
  if preconditioner is not None and preconditioner.name == 'per_part':
    state = tf.split(state, [1, 2], axis=-1)
    target = lambda *split: targets.standard_normal(tf.concat(split, axis=-1))
  kernel = tfpa.gradient_adaptive_langevin(target, 100, **parts)
  results = kernel.bootstrap_results(state)
  _, all_results = targets.run(kernel, state, 4, results=results)
  return [
    tf.nest.flatten(mh_results(r).accepted_results.preconditioner_params)
    for r in (results, all_results[-1])
  ]


def _assert_learns(**parts):
  before, after = _learns(**parts)
  assert any(np.any(b != a) for b, a in zip(before, after))
  assert all(np.all(np.isfinite(a)) for a in after)


@pytest.mark.parametrize('name', registry.MOVED)
def test_a_kernel_learns_with_every_preconditioner(name):
  part = registry.preconditioner(name, init_scale=0.5)
  _assert_learns(preconditioner=part)


@pytest.mark.parametrize('name', registry.CRITERIA)
def test_a_kernel_learns_with_every_criterion(name):
  _assert_learns(
    criterion=registry.criterion(name),
    optimizer=registry.optimizer_of(name),
    preconditioner=tfpa.preconditioners.cholesky(init_scale=0.5),
  )


# A relative optimizer sees the group of a structure, the others raw entries: by
# day in `test_optimizers_see_gradients_inside_the_structure`.
@pytest.mark.full
@pytest.mark.parametrize(
  'name, structure',
  [
    pytest.param(n, s, marks=[pytest.mark.nightly] * (s != 'cholesky'))
    for n in registry.OPTIMIZERS
    for s in registry.MOVED
    if n != 'rmsprop' or s == 'cholesky'
  ],
)
def test_a_kernel_learns_with_every_optimizer(name, structure):
  _assert_learns(
    optimizer=registry.optimizer(name),
    preconditioner=registry.preconditioner(structure, init_scale=0.5),
  )


@pytest.mark.parametrize('is_relative', [True, False])
@pytest.mark.parametrize('structure', registry.MOVED)
def test_optimizers_see_gradients_inside_the_structure(structure, is_relative):
  # Entries that are projected away must not count, in a global norm say.
  seen = []

  def update(grads, state, params, *_):
    seen.append((grads, params))
    return params, state

  recorder = interfaces.Optimizer(
    name='recorder',
    is_relative=is_relative,
    init=lambda params, problem: [],
    update=update,
  )
  part = registry.preconditioner(structure, init_scale=0.5)
  _learns(optimizer=recorder, preconditioner=part)
  for grads, params in seen:
    if is_relative:
      # Its entries are tested with the structures; here that it moves them.
      tf.nest.assert_same_structure(params, grads)
      moved = part.move(params, grads)
      assert all(np.all(np.isfinite(m)) for m in tf.nest.flatten(moved))
      continue
    moved = tf.nest.map_structure(lambda p, g: p + 1e-6 * g, params, grads)
    projected = part.project(moved)
    tf.nest.map_structure(np.testing.assert_array_equal, moved, projected)


def _assert_same_shapes(one, two):
  tf.nest.assert_same_structure(one, two)
  for before, after in zip(tf.nest.flatten(one), tf.nest.flatten(two)):
    assert before.shape == after.shape and before.dtype == after.dtype


@pytest.mark.parametrize('name', registry.CRITERIA)
def test_criterion_values_are_one_finite_number_per_chain(name):
  criterion = registry.criterion(name)
  state = criterion.init(parts_lib.PROBLEM)
  for seed in range(3):
    transition = parts_lib.transition(num_diverged=1, seed=seed)
    values = criterion.value(state, transition)
    assert values.shape == (4,) and values.dtype == tf.float64
    assert np.all(np.isfinite(values))
    updated = parts_lib.update_criterion(criterion, state, transition)
    _assert_same_shapes(state, updated)
    state = updated


@pytest.mark.parametrize('name', registry.CRITERIA)
def test_a_kernel_never_widens_while_everything_diverges(name):
  # Nowhere but at the start is the target finite: nothing may be rewarded.
  def spike(x):
    return tf.where(tf.reduce_all(x == 1.0, axis=-1), 0.0 * x[..., 0], -np.inf)

  kernel = tfpa.gradient_adaptive_langevin(
    spike,
    100,
    criterion=registry.criterion(name),
    optimizer=registry.optimizer_of(name),
    preconditioner=tfpa.preconditioners.cholesky(init_scale=0.5),
  )
  state = tf.ones([4, 3], tf.float64)
  results = kernel.bootstrap_results(state)
  _, all_results = targets.run(kernel, state, 4, results=results)
  scales = [
    np.prod(np.diag(tfpa.learned_factor(kernel, r)))
    for r in (results, *all_results)
  ]
  assert np.all(np.isfinite(scales)) and np.all(np.diff(scales) <= 0.0)


@pytest.mark.parametrize('name', registry.OPTIMIZERS)
def test_optimizers_ascend_keep_their_state_and_rest_without_gradient(name):
  optimizer = registry.optimizer(name)
  preconditioner = tfpa.preconditioners.cholesky()
  params = preconditioner.init(3, tf.float64, tf.constant(0.7, tf.float64))
  state = optimizer.init(params, parts_lib.PROBLEM)

  def moved_by(grads):
    return parts_lib.update_optimizer(
      optimizer, grads, state, params, preconditioner
    )

  grads = tf.linalg.band_part(
    tf.constant(np.random.default_rng(0).normal(size=(3, 3))), -1, 0
  )
  moved, updated = moved_by(grads)
  _assert_same_shapes([params, state], [moved, updated])
  assert float(tf.reduce_sum(grads * (moved - params))) > 0.0
  np.testing.assert_array_equal(moved_by(tf.zeros_like(grads))[0], params)
