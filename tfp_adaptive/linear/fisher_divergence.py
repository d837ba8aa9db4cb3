"""Fisher divergence: a dense factor from the spreads of states and gradients.

  C C^T = Cov x # (Cov g)^-1

the geometric mean of the covariance of the states x of all chains and the
inverse covariance of the gradients g of the log target there. It minimizes the
Fisher divergence E |C^T (g - g_N)|^2 between the target and a normal N of that
covariance.

Where the target is N(m, S), g = -S^-1 (x - m) and Cov g = S^-1 (Cov x) S^-1, so
that the geometric mean is S however little the chain has moved. Elsewhere it
lies between the covariance, which knows the extent of a curved ridge, and the
inverse Fisher information, which knows its width.

Few states are shrunk: n of them keep their correlations at n^4 / (n^4 + d^4),
so that a condition number of 1e6 takes some 30 states for each dimension.

Source: Seyboldt, Carlson and Carpenter (2026), Preconditioning Hamiltonian
Monte Carlo by minimizing Fisher divergence, https://arxiv.org/abs/2603.18845.
"""

import collections

import tensorflow as tf

from tfp_adaptive import preconditioners
from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import control_flow
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linalg import geometric_mean
from tfp_adaptive.linear import closed_form
from tfp_adaptive.linear import running_moments
from tfp_adaptive.linear.langevin import UncalibratedPreconditionedLangevin

__all__ = ['FisherDivergenceAdaptation', 'fisher_divergence_langevin']

_PRIOR_STEPS = 1.0  # Steps that the start counts for in the means.
_FIRST_FIT = 2.0  # In steps; fits then follow ...
_GROWTH = 1.1  # ... at times that grow by this: each costs some d^3.

Statistics = collections.namedtuple(
  'Statistics', ['time', 'next_fit', 'num_failed_fits', 'state', 'gradient']
)


def fisher_divergence_langevin(
  target_log_prob_fn,
  num_adaptation_steps,
  preconditioner=None,
  target_accept_prob=0.574,
  step_size=1.0,
  short_step_share=0.2,
):
  """Builds a MALA with the covariance that minimizes the Fisher divergence.

  It is the geometric mean of the covariance of the states and the inverse
  covariance of their gradients: dense, and for a Gaussian its covariance
  however little the chains have moved, after some tens of states for each
  dimension. For other proposals, `FisherDivergenceAdaptation` goes around any
  that uses gradients.

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable, called as
      TFP calls it; returns [chains...].
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    preconditioner: A `preconditioners.cholesky()`, whose start is taken.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    step_size: First step size, which the adaptation moves.
    short_step_share: As of `gradient_adaptive_langevin`.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    ValueError: If an argument is not allowed.

  References:
    Seyboldt, Carlson and Carpenter (2026), https://arxiv.org/abs/2603.18845.
  """
  if preconditioner is None:
    preconditioner = preconditioners.cholesky()
  proposal = UncalibratedPreconditionedLangevin(
    target_log_prob_fn,
    preconditioner,
    step_size,
    short_step_share=short_step_share,
  )
  return FisherDivergenceAdaptation(
    MetropolisHastings(proposal), num_adaptation_steps, target_accept_prob
  )


class FisherDivergenceAdaptation(closed_form.ClosedFormAdaptation):
  """Learns a dense scale factor from states and their gradients.

  A step costs one product of [d, chains] and [chains, d] more; a fit, some
  tens of them in a run, ten to twenty decompositions of [d, d].

  Results are `linear.closed_form.ClosedFormAdaptationResults`; fits that had
  no Cholesky factor are counted in `statistics.num_failed_fits`.
  """

  def __init__(
    self,
    inner_kernel,
    num_adaptation_steps,
    target_accept_prob=0.574,
    gain=2.0,
    name=None,
  ):
    """Builds the wrapper; no Tensor is created here.

    Args:
      inner_kernel: `tfpa.MetropolisHastings` around a proposal that uses
        gradients and has a `preconditioners.cholesky`.
      num_adaptation_steps: Steps that adapt, a non-negative int.
      target_accept_prob: Wanted mean acceptance, in (0, 1).
      gain: How fast the past is forgotten, at least 1; 1: never.
      name: Prefix of op names.

    Raises:
      ValueError: If an argument is not one of those allowed.
    """
    super().__init__(
      inner_kernel,
      num_adaptation_steps,
      target_accept_prob,
      gain,
      name=name,
    )
    # A kernel that never adapts may have any structure.
    if num_adaptation_steps and self.preconditioner.name != 'cholesky':
      raise ValueError(
        'The minimum of the Fisher divergence is a dense factor, but got '
        f'`{self.preconditioner.name}`. Write '
        '`preconditioner=tfpa.preconditioners.cholesky()`.'
      )

  def _start(self, params, state, inner):
    """Returns moments without spread, around the states."""
    states, gradients, is_finite = self._states_and_gradients(state, inner)
    return Statistics(
      time=tf.zeros([], params.dtype),
      next_fit=tf.constant(_FIRST_FIT, params.dtype),
      num_failed_fits=tf.zeros([], tf.int32),
      state=running_moments.start(states, is_finite, dense=True),
      gradient=running_moments.start(gradients, is_finite, dense=True),
    )

  def _learn(self, params, statistics, gradients, next_state, inner):
    """Moves the moments by one state of every chain; fits when it is due."""
    del gradients
    states, gradients, is_finite = self._states_and_gradients(next_state, inner)
    gain = self._parameters['gain']
    time = statistics.time + 1.0
    weight = gain / (time + gain * _PRIOR_STEPS)
    state = running_moments.add(statistics.state, states, is_finite, weight)
    gradient = running_moments.add(
      statistics.gradient, gradients, is_finite, weight
    )
    is_due = time >= statistics.next_fit
    num_states = time * tf.cast(ps.shape(states)[0], params.dtype)
    params, num_failed = control_flow.apply_if(
      is_due,
      lambda params, num_failed: _fitted(
        params, num_failed, state.spread, gradient.spread, num_states
      ),
      params,
      statistics.num_failed_fits,
    )
    next_fit = tf.where(
      is_due, tf.maximum(time + 1.0, _GROWTH * time), statistics.next_fit
    )
    statistics = Statistics(time, next_fit, num_failed, state, gradient)
    return params, statistics, tf.ones([], params.dtype)


def _fitted(params, num_failed, covariance, precision, num_states):
  """Returns the factor of the geometric mean; `params` where there is none."""
  ratio = num_states / tf.cast(ps.shape(params)[-1], params.dtype)
  share = 1.0 / (1.0 + ratio**-4)
  factor = geometric_mean.factor_of_mean(
    _shrunk(covariance, share), _shrunk(precision, share)
  )
  is_good = adaptation_base.is_finite(factor)
  return (
    tf.where(is_good, factor, params),
    num_failed + tf.cast(~is_good, tf.int32),
  )


def _shrunk(matrix, share):
  """Returns the matrix with its correlations multiplied by the share."""
  return tf.linalg.set_diag(share * matrix, tf.linalg.diag_part(matrix))
