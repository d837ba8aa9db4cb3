"""Kernels and parts are printed as the calls that build them."""

import gc
import re
import weakref

import numpy as np
import pytest

import tfp_adaptive as tfpa
from experiments.samplers import cases


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
