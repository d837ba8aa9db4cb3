"""Kernels and parts are printed as the calls that build them."""

import gc
import re
import weakref

import numpy as np
import pytest

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tests.contracts import targets


def test_a_kernel_shows_its_stack_and_arguments():
  kernel = tfpa.gradient_adaptive_langevin(
    targets.standard_normal,
    500,
    preconditioner=tfpa.preconditioners.low_rank(3),
    short_step_share=0.5,
  )
  assert repr(kernel) == (
    'GradientBasedAdaptation(\n'
    '    criterion=generalized_speed_measure(\n'
    '        target_accept_prob=0.55,\n'
    "        entropy_weight_rule='balance',\n"
    '        bound_log_ratio=True),\n'
    '    optimizer=relative_gradient(gain=4.0),\n'
    '    num_adaptation_steps=500)\n'
    '  ShortSteps(num_adaptation_steps=500, short_step_share=0.5)\n'
    '    MetropolisHastings()\n'
    '      UncalibratedPreconditionedLangevin(\n'
    '          target_log_prob_fn=standard_normal,\n'
    '          preconditioner=low_rank(rank=3))'
  )


@pytest.mark.parametrize('case', cases.CASES, ids=lambda case: case.name)
def test_no_kernel_shows_an_address(case):
  text = repr(case.build())
  assert not re.search(r'\b0x[0-9a-f]{6}| at 0x', text)
  assert max(map(len, text.splitlines())) <= 100


def test_a_part_shows_what_it_was_given():
  prior = tfpa.gaussian_priors.random_walk(0.1, 50, initial_scale=1.0)
  expected = 'random_walk(scale=0.1, num_steps=50, initial_scale=1.0)'
  assert repr(prior) == expected
  assert repr(tfpa.optimizers.adam(0.1)) == 'adam(learning_rate=0.1)'


def test_arrays_are_shown_by_shape_and_are_not_kept():
  covariance = np.eye(3)
  reference = weakref.ref(covariance)
  prior = tfpa.gaussian_priors.spectral(covariance)
  assert repr(prior) == 'spectral(covariance=float64[3, 3])'
  shown = prior.shown
  del covariance, prior
  gc.collect()
  assert reference() is None
  assert shown == 'spectral(covariance=float64[3, 3])'
