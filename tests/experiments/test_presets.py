"""The papers' constants, as arguments and as kernels."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments import presets
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


def test_adaptive_metropolis_starts_small():
  kernel = tfpa.adaptive_metropolis(
    targets.standard_normal, 10, **presets.adaptive_metropolis()
  )
  np.testing.assert_allclose(_first_factor(kernel), 0.05 * np.eye(4))


def test_the_kernel_hamiltonian_of_the_paper_draws_sizes_and_learns_none():
  kernel = presets.kernel_hamiltonian(targets.standard_normal, 10)
  assert isinstance(kernel, tfpa.adaptation.ScoreMatchingAdaptation)
  assert not kernel.parameters['learn_momentum_scale']
  parameters = kernel.proposal.parameters
  low, high = parameters['step_size_jitter']
  np.testing.assert_allclose(
    [parameters['step_size'] * low, parameters['step_size'] * high],
    [0.01, 0.1],
  )
  assert parameters['num_leapfrog_steps'] == (1, 10)
  assert parameters['walk_share'] == 0.0
  np.testing.assert_allclose(_first_factor(kernel), 0.1 * np.eye(4))
