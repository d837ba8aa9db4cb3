"""The samplers of the papers have the constants that are in print."""

import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import parts
from tests.contracts import targets

_LINEAR = {
  'gadrwm': ({}, 'rmsprop'),
  'gadmala': ({}, 'rmsprop'),
  'entropy_hmc': ({'num_leapfrog_steps': 3}, 'adam'),
}
_PRIOR = tfpa.gaussian_priors.random_walk(0.1, 4, initial_scale=1.0)


def _built(name, **options):
  return getattr(tfpa.papers, name)(
    targets.standard_normal, 10, **_LINEAR[name][0], **options
  )


def _first_factor(kernel):
  results = kernel.bootstrap_results(tf.ones([2, 4], tf.float64))
  return tfpa.learned_factor(kernel, results)


@pytest.mark.parametrize('name', _LINEAR)
def test_gradients_move_a_small_factor_by_the_papers_optimizer(name):
  kernel = _built(name)
  np.testing.assert_allclose(_first_factor(kernel), 0.05 * np.eye(4))
  assert kernel.optimizer.name == _LINEAR[name][1]
  assert not kernel.criterion.needs_slopes
  assert kernel.num_adaptation_steps == 10


@pytest.mark.parametrize('name', _LINEAR)
def test_the_papers_gradients_have_no_control_variates(name):
  criterion = _built(name).criterion
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


def test_the_hamiltonian_of_the_paper_follows_the_authors_code():
  kernel = _built(
    'entropy_hmc', target_accept_prob=0.6, entropy_weight_rate=0.5
  )
  assert kernel.proposal.parameters['num_fixed_terms'] == 3
  assert kernel.proposal.num_leapfrog_steps == 3
  criterion = kernel.criterion
  assert criterion.target_accept_prob == 0.6
  state = criterion.init(parts.PROBLEM)
  assert float(state.penalty.weight) == 1e4
  assert criterion.bounds(None)['entropy_weight'] == (1e-2, 1e2)
  moved = parts.transition()
  accept = np.exp(np.minimum(moved.log_accept_ratio, 0.0)).mean()
  weight = parts.update_criterion(criterion, state, moved).entropy_weight
  np.testing.assert_allclose(weight, 1.0 + 0.5 * (accept - 0.6))


def test_the_paper_has_an_energy_error_and_the_default_has_none():
  assert 'clip_value=3.0' in repr(_built('entropy_hmc', clip_value=3.0))
  assert 'clip_value' not in repr(_built('entropy_hmc'))
  default = tfpa.entropy_adaptive_hamiltonian(
    targets.standard_normal, 10, num_leapfrog_steps=3
  )
  moved = parts.transition()
  worse = moved._replace(log_accept_ratio=moved.log_accept_ratio - 1.0)
  for kernel, is_paper in ((_built('entropy_hmc'), True), (default, False)):
    criterion = kernel.criterion
    state = criterion.init(parts.PROBLEM)
    values = [criterion.value(state, m).numpy() for m in (moved, worse)]
    assert np.any(values[0] != values[1]) == is_paper


def test_adaptive_metropolis_moves_as_printed():
  kernel = tfpa.papers.adaptive_metropolis(targets.standard_normal, 10)
  np.testing.assert_allclose(_first_factor(kernel), 0.05 * np.eye(4))
  part = kernel.preconditioner
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
  kernel = tfpa.papers.kmc(targets.standard_normal, 10)
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


@pytest.mark.parametrize(
  'name, accept_prob, proposal',
  [
    ('mgrad', 0.55, 'UncalibratedMarginalGradient'),
    ('agrad', 0.55, 'UncalibratedAuxiliaryGradient'),
    ('pcnl', 0.5, 'langevin=True'),
    ('pcn', 0.3, 'UncalibratedCrankNicolson'),
  ],
)
def test_latent_samplers_make_no_short_steps(name, accept_prob, proposal):
  kernel = getattr(tfpa.papers, name)(targets.standard_normal, 10, prior=_PRIOR)
  shown = repr(kernel)
  assert f'target_accept_prob={accept_prob}' in shown
  assert 'short_step_share=0.0' in shown and proposal in shown


def test_every_formula_names_tests_that_exist():
  root = pathlib.Path(__file__).parents[1]
  text = (root / 'tests/formulas.md').read_text()
  named = re.findall(r'(tests/\S+\.py)::(\w+)', text)
  assert len(named) > 70
  for file, name in named:
    assert f'def {name}(' in (root / file).read_text(), name
