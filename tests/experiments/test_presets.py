"""The papers' constants, as arguments and as kernels."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments import presets
from tests.contracts import parts
from tests.contracts import targets

_LINEAR = {
  'random_walk': (tfpa.gradient_adaptive_random_walk, {}, 'rmsprop'),
  'langevin': (tfpa.gradient_adaptive_langevin, {}, 'rmsprop'),
  'hamiltonian': (
    tfpa.entropy_adaptive_hamiltonian,
    {'num_leapfrog_steps': 3},
    'adam',
  ),
}


def _first_factor(kernel):
  results = kernel.bootstrap_results(tf.ones([2, 4], tf.float64))
  return tfpa.learned_factor(kernel, results)


@pytest.mark.parametrize('name', _LINEAR)
def test_gradients_move_a_small_factor_by_the_papers_optimizer(name):
  builder, options, optimizer = _LINEAR[name]
  kernel = builder(
    targets.standard_normal,
    num_adaptation_steps=10,
    **options,
    **getattr(presets, name)(),
  )
  np.testing.assert_allclose(_first_factor(kernel), 0.05 * np.eye(4))
  assert kernel.optimizer.name == optimizer
  assert not kernel.criterion.needs_slopes


@pytest.mark.parametrize('name', _LINEAR)
def test_the_papers_gradients_have_no_control_variates(name):
  criterion = getattr(presets, name)()['criterion']
  library = tfpa.criteria.generalized_speed_measure(0.5, 'acceptance')
  moved = parts.transition()
  state = criterion.init(parts.PROBLEM)
  with_one = moved._replace(
    control_variate=tf.constant([1.0, 2.0, 3.0, 4.0], tf.float64)
  )
  plain = criterion.value(state, moved)
  np.testing.assert_array_equal(criterion.value(state, with_one), plain)
  # Power: the library's own takes them.
  assert np.all(library.value(state, with_one) != plain)


def test_the_hamiltonian_of_the_paper_follows_the_authors_jobs():
  arguments = presets.hamiltonian(0.6, entropy_weight_rate=0.5)
  criterion = arguments['criterion']
  assert criterion.target_accept_prob == 0.6
  state = criterion.init(parts.PROBLEM)
  assert float(state.penalty.weight) == 1e4
  assert criterion.bounds(None)['entropy_weight'] == (1e-2, 1e2)
  moved = parts.transition()
  accept = np.exp(np.minimum(moved.log_accept_ratio, 0.0)).mean()
  weight = parts.update_criterion(criterion, state, moved).entropy_weight
  np.testing.assert_allclose(weight, 1.0 + 0.5 * (accept - 0.6))


def test_adaptive_metropolis_moves_as_printed():
  part = presets.adaptive_metropolis()['preconditioner']
  factor = tf.constant([[1.0, 0.0], [0.5, 2.0]], tf.float64)
  tangent = tf.constant([[0.1, 0.3], [0.3, -2.0]], tf.float64)
  lower = np.tril(tangent)
  moved = part.move(factor, tangent)
  expected = factor.numpy() @ (np.eye(2) + lower)
  expected[1, 1] = 1e-3  # Not below.
  np.testing.assert_allclose(moved, expected)
  # The library's own moves the entry below the diagonal twice as far.
  small = 1e-6 * tangent
  change = part.move(factor, small) - factor
  own = tfpa.preconditioners.cholesky().move(factor, small) - factor
  np.testing.assert_allclose(own[0, 0], change[0, 0])
  unit = tf.eye(2, dtype=tf.float64)
  change = part.move(unit, small) - unit
  own = tfpa.preconditioners.cholesky().move(unit, small) - unit
  np.testing.assert_allclose(own[1, 0], 2.0 * change[1, 0])


def test_the_kernel_hamiltonian_of_the_paper_draws_sizes_and_learns_none():
  kernel = presets.kernel_hamiltonian(targets.standard_normal, 10)
  assert isinstance(kernel, tfpa.adaptation.ScoreMatchingAdaptation)
  assert not kernel.parameters['learn_momentum_scale']
  parameters = kernel.proposal.parameters
  low, high = parameters['step_size_jitter']
  np.testing.assert_allclose(
    [parameters['step_size'] * low, parameters['step_size'] * high], [0.01, 0.1]
  )
  assert parameters['num_leapfrog_steps'] == (1, 10)
  assert parameters['walk_share'] == 0.0
  np.testing.assert_allclose(_first_factor(kernel), 0.1 * np.eye(4))
