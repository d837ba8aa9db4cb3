"""Variances of 30 coordinates of unlike periods, and one length that errs.

A trajectory that lasts a whole or half a period of a coordinate comes back to
its square: one length alone leaves some of 30 periods nearly unsampled. A
range of lengths leaves none.
"""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.linear.kept_momentum import accepted

_NUM_COORDINATES, _NUM_CHAINS, _NUM_RESULTS = 30, 1000, 800
_NUM_BURNIN_STEPS = 100
_TOLERANCE = 0.02


def _target():
  """Returns a log density, what makes its states N(0, I), and wide starts.

  The rotation keeps a diagonal metric from making all periods one.
  """
  rng = np.random.default_rng(22)
  scales = np.exp(rng.uniform(0.0, np.log(10.0), size=_NUM_COORDINATES))
  rotation, _ = np.linalg.qr(rng.normal(size=(_NUM_COORDINATES,) * 2))
  basis = rotation / scales

  def log_prob(x):
    return -0.5 * tf.reduce_sum((x @ basis) ** 2, axis=-1)

  draws = 2.0 * rng.normal(size=(_NUM_CHAINS, _NUM_COORDINATES)) * scales
  return log_prob, basis, tf.constant(draws @ rotation.T)


def _errors(kernel, start, basis, seed):
  """Returns errors of 30 variances, and their standard errors, relative.

  Chains are independent: their spread is the standard error, without a model
  of their correlation.
  """
  run = tfpa.sample(
    kernel,
    start,
    _NUM_RESULTS,
    num_burnin_steps=_NUM_BURNIN_STEPS,
    progress=False,
    seed=(22, seed),
  )
  squares = np.mean((run.states @ basis) ** 2, axis=0)
  error = squares.std(axis=0, ddof=1) / np.sqrt(_NUM_CHAINS)
  return np.abs(squares.mean(axis=0) - 1.0), error


@pytest.mark.nightly
def test_kept_momenta_do_not_resonate():
  log_prob, basis, start = _target()
  kernel = tfpa.fisher_divergence_hamiltonian(
    log_prob,
    1500,
    preconditioner=tfpa.preconditioners.diagonal(),
    keep_momentum=True,
  )
  run = tfpa.sample(kernel, start[:64], 20, progress=False, seed=(22, 0))
  learned = tfpa.frozen(kernel, run.final_kernel_results)
  found, error = _errors(learned, start, basis, 1)
  assert 4.0 * error.max() < _TOLERANCE
  assert found.max() < _TOLERANCE
  # The twin is the same kernel, but for a number that never changes.
  of_one = learned.inner_kernel.settled
  length = learned.inner_kernel.mean_num_steps
  twin = learned.inner_kernel.copy()
  twin.settled = lambda pair: tf.stack([length, length, of_one(pair)[2]])
  _, error = _errors(accepted(twin), start, basis, 1)
  assert 4.0 * error.max() > 1.5 * _TOLERANCE


@pytest.mark.nightly
def test_learned_lengths_do_not_resonate_and_one_length_does():
  log_prob, basis, start = _target()
  kernel = tfpa.fisher_divergence_hamiltonian(
    log_prob, 1500, preconditioner=tfpa.preconditioners.diagonal()
  )
  run = tfpa.sample(kernel, start[:64], 2, progress=False, seed=(22, 0))
  learned = tfpa.frozen(kernel, run.final_kernel_results)
  found, error = _errors(learned, start, basis, 1)
  assert 4.0 * error.max() < _TOLERANCE
  assert found.max() < _TOLERANCE
  # The twin is the same kernel, but for a length that never changes.
  proposal = learned.parameters['inner_kernel']
  length = int(np.ceil(np.mean(proposal.num_leapfrog_steps)))
  twin = tfpa.MetropolisHastings(proposal.copy(num_leapfrog_steps=length))
  found, error = _errors(twin, start, basis, 2)
  assert found.max() > 2.0 * _TOLERANCE
  assert 4.0 * error.max() > 2.0 * _TOLERANCE
