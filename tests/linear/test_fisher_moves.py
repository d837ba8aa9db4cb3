"""Moves towards the least Fisher divergence are Newton's near it."""

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import registry
from tests.preconditioners import structures
from tests.preconditioners.structures import dense
from tests.preconditioners.structures import EVENT_SIZE
from tfp_adaptive.linear import fisher_fit


def _errors(name, rate):
  """Returns what a move leaves of perturbations of 1e-2 and 1e-3.

  The pairs are of a normal whose covariance S the structure has, d states as
  far from its centre as their dimension, of covariance S: all count one.
  """
  part, params = structures.arrange(name)
  before = dense(part, params)
  errors = []
  for size in (1e-2, 1e-3):
    wanted = dense(part, structures.perturbed(part, params, size, seed=2))
    covariance = wanted @ wanted.T
    states = EVENT_SIZE**0.5 * wanted.T
    scores = -np.linalg.solve(covariance, states.T).T
    moved = fisher_fit.moved(
      part,
      params,
      tf.constant(states),
      tf.constant(scores),
      1.0 / EVENT_SIZE,
      tf.constant(rate, tf.float64),
    )
    after = dense(part, moved)
    errors.append(
      np.max(np.abs(after @ after.T - covariance))
      / np.max(np.abs(before @ before.T - covariance))
    )
  return errors


@pytest.mark.parametrize('name', registry.PRECONDITIONERS)
def test_a_move_at_rate_one_lands_with_an_error_of_second_order(name):
  errors = _errors(name, 1.0)
  assert errors[0] < 0.1
  assert errors[1] < 0.15 * errors[0]


@pytest.mark.parametrize('name', registry.PRECONDITIONERS)
def test_one_at_half_of_the_rate_goes_half_of_the_way(name):
  np.testing.assert_allclose(_errors(name, 0.5), 0.5, atol=0.05)
