"""A trajectory has diverged where its energy error is above 1000."""

import numpy as np
import tensorflow as tf

from tfp_adaptive.linear import trajectory
from tfp_adaptive.transport import hamiltonian
from tfp_adaptive.transport import transported_leapfrog

_RATIOS = tf.constant([0.0, 2000.0, -999.0, -1001.0, -np.inf, np.nan])
_CONVERGED = [True, True, True, False, False, False]


def _rows():
  return tf.ones([len(_CONVERGED), 2])


def test_of_a_preconditioned_trajectory():
  step = trajectory.Step(
    _rows(), _rows(), _rows(), trajectory.start_trajectory(_rows())
  )
  found = trajectory.has_converged(step, _RATIOS)
  np.testing.assert_array_equal(found, _CONVERGED)


def test_of_a_trajectory_behind_a_map():
  proposal = hamiltonian.proposal.ProposalResults
  proposed = proposal(*[[]] * len(proposal._fields))._replace(
    trajectory=transported_leapfrog.start_trajectory(_rows(), 2), noise=_rows()
  )
  found, _, noise = hamiltonian._keep_finite(proposed, _RATIOS)
  np.testing.assert_array_equal(found, _CONVERGED)
  # At rest in a flat target.
  np.testing.assert_array_equal(noise[:, 0], np.float32(_CONVERGED))
