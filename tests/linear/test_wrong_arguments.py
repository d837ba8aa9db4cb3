"""Numbers that make no sense are refused by their name."""

import functools

import numpy as np
import pytest

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.linear.criteria import penalty

_target = targets.standard_normal
_proposal = functools.partial(
  tfpa.proposals.UncalibratedPreconditionedHamiltonian,
  _target,
  tfpa.preconditioners.cholesky(),
)
_fisher = functools.partial(tfpa.fisher_divergence_hamiltonian, _target, 10)
_metropolis = functools.partial(tfpa.adaptive_metropolis, _target, 10)
_penalty = functools.partial(
  penalty.eigenvalue_penalty, weights=(1.0, 2.0), rate=0.1, slack=0.0
)
_measure = tfpa.criteria.generalized_speed_measure


@pytest.mark.parametrize(
  'build, options, message',
  [
    (_proposal, dict(num_leapfrog_steps=0), 'positive int'),
    (_proposal, dict(num_leapfrog_steps=2.0), 'positive int'),
    (_proposal, dict(num_leapfrog_steps=2, hessian_product='f'), "'autodiff'"),
    (_fisher, dict(num_leapfrog_steps=(4, 2)), 'fewest, most'),
    (_fisher, dict(num_leapfrog_steps=5, max_num_leapfrog_steps=9), 'Leave'),
    (_metropolis, dict(shape_rate=0.0), 'shape_rate'),
    (_metropolis, dict(shape_rate=np.inf), 'shape_rate'),
    (_measure, dict(target_accept_prob=1.0), 'between 0 and 1'),
    (_measure, dict(target_accept_prob=0.5, entropy_weight_rule='x'), 'one of'),
    (_measure, dict(target_accept_prob=0.5, min_entropy_weight=0.0), 'min_'),
    (lambda: tfpa.criteria.cross_entropy(0.6, -0.1), {}, 'not be negative'),
    (_penalty, dict(threshold=1.0), 'between 0 and 1'),
  ],
)
def test_a_number_that_makes_no_sense_is_refused(build, options, message):
  with pytest.raises(ValueError, match=message):
    build(**options)
