"""Lengths, shares, histories and sizes that make no sense are refused."""

import functools

import numpy as np
import pytest

import tfp_adaptive as tfpa
from tests.contracts import targets
from tests.surrogate import learning
from tests.surrogate import surrogates

_proposal = functools.partial(
  tfpa.proposals.UncalibratedSurrogateHamiltonian,
  target_log_prob_fn=targets.standard_normal,
  surrogate=surrogates.gaussian(),
  preconditioner=tfpa.preconditioners.cholesky(),
)
_kernel = functools.partial(
  tfpa.kernel_hamiltonian, targets.standard_normal, 10
)
_history = functools.partial(learning.kernel, 0)
_lite = functools.partial(tfpa.surrogates.kernel_exponential_family_lite, 10)
_finite = tfpa.surrogates.kernel_exponential_family_finite


def _estimate(x, seed):
  del seed
  return x[..., 0]


@pytest.mark.parametrize(
  'build, argument, values, message',
  [
    (_proposal, 'num_leapfrog_steps', [0, 2.0, True, (3, 2), (1,)], '=\\(1, 1'),
    (_proposal, 'trajectory_length', [0.0, np.inf, True], '=4.0'),
    (_proposal, 'step_size_jitter', [1.0, (0.0, 1.0), (0.5,)], '=\\(0.5, 1.0'),
    (_proposal, 'walk_share', [-0.1, 1.1, np.nan], '=0.2'),
    (_proposal, 'surrogate', [_finite], 'with parentheses'),
    (_proposal, 'target_log_prob_fn', [3.0], 'target_log_prob_fn'),
    (_proposal, 'target_log_prob_fn', [_estimate], '_is_stochastic=True'),
    (_kernel, 'target_accept_prob', [0.7], 'num_leapfrog_steps=\\(1, 10\\)'),
    (_kernel, 'walk_share', [1.0], 'tfpa.adaptive_metropolis'),
    (_history, 'history', [np.zeros(4), [[1.0, np.nan]] * 2], 'result.states'),
    (_lite, 'num_centers', [0, 11, 2.5, True], '`num_points=10`'),
    (_finite, 'num_points', [0, 2.5, True], 'num_points='),
    (_finite, 'kernel', ['laplace'], "'rational_quadratic'"),
  ],
)
def test_what_makes_no_sense_is_refused(build, argument, values, message):
  for value in values:
    with pytest.raises((TypeError, ValueError), match=message):
      build(**{argument: value})


def test_surrogates_of_other_sizes_are_not_joined():
  first = surrogates.known(lambda x: x, num_points=8)
  with pytest.raises(ValueError, match='the same number of draws'):
    tfpa.surrogates.in_turn(first, surrogates.gaussian())
