"""Runs of a kernel that learns a surrogate, and what changed in them."""

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tests.surrogate import surrogates
from tfp_adaptive.core import tfp_private

SIZE, NUM_CHAINS = 2, 3


def kernel(num_adaptation_steps, surrogate=None, walk_share=0.0, **options):
  """Returns the wrapper around a proposal along a cheap surrogate."""
  preconditioner = options.pop(
    'preconditioner', tfpa.preconditioners.cholesky(init_scale=1.0)
  )
  trajectory_length = options.pop('trajectory_length', None)
  target = options.pop('target', targets.standard_normal)
  return tfpa.adaptation.ScoreMatchingAdaptation(
    tfpa.MetropolisHastings(
      tfpa.proposals.UncalibratedSurrogateHamiltonian(
        target,
        surrogate or surrogates.gaussian(),
        preconditioner,
        num_leapfrog_steps=2,
        step_size=0.5,
        walk_share=walk_share,
        trajectory_length=trajectory_length,
      )
    ),
    num_adaptation_steps,
    **options,
  )


def start(dtype=np.float64):
  """Returns the states that runs start from, [chains, d]."""
  rng = np.random.default_rng(0)
  return tf.constant(rng.normal(size=(NUM_CHAINS, SIZE)), dtype)


def run(kernel, num_steps, init_state=None):
  """Returns the lists of states and results after each of the steps."""
  init_state = start() if init_state is None else init_state
  results = kernel.bootstrap_results(init_state)
  step = targets.stepper(kernel, 'graph')
  return targets.run_steps(step, init_state, results, num_steps)


def params_of(results):
  """Returns what the surrogate has learned."""
  return tfp_private.get_innermost(results, 'surrogate_params')


def factor_of(results):
  """Returns the params of the momentum scale."""
  return tfp_private.get_innermost(results, 'preconditioner_params')


def changes(values):
  """Returns the steps, counted from 1, after which a value is another.

  Args:
    values: For every step a list of arrays.
  """
  rows = [np.concatenate([np.ravel(leaf) for leaf in v]) for v in values]
  return [
    step + 2
    for step, (one, other) in enumerate(zip(rows, rows[1:]))
    if np.any(one != other)
  ]
