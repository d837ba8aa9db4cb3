"""Variance ratio: a diagonal from the spreads of states and of gradients.

  c_i^2 = sqrt(Var x_i / Var g_i)

over the states x of all chains and the gradients g of the log target there. It
minimizes the Fisher divergence E |g - g_N|_C^2 between the target and a normal
N of covariance C C^T = diag(c^2). Means and variances are running ones
(`linear/running_moments.py` of the library) of weight w = gain / (t + gain
t_0): what was known at time t' weighs (t' / t)^gain at time t.

Source: Seyboldt, Carlson and Carpenter (2026), Preconditioning Hamiltonian
Monte Carlo by minimizing Fisher divergence, https://arxiv.org/abs/2603.18845;
the sampler nutpie, which forgets by windows in place of weights.
"""

import collections

import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.core import short_steps
from tfp_adaptive.linear import closed_form
from tfp_adaptive.linear import running_moments

__all__ = ['VarianceRatioAdaptation', 'variance_ratio_langevin']

# Steps that the start counts for in the means. Few: the ratio is as good
# however little the chain has moved.
_PRIOR_STEPS = 1.0
# Change of a scale in one step: where few states are known, both spreads are
# small and their ratio may be far off.
_MAX_CHANGE = 2.0

Statistics = collections.namedtuple('Statistics', ['time', 'state', 'gradient'])


def variance_ratio_langevin(
  target_log_prob_fn,
  num_adaptation_steps,
  *,
  preconditioner=None,
  target_accept_prob=0.574,
  step_size=1.0,
  short_step_share=None,
):
  """Builds a MALA with the diagonal that minimizes the Fisher divergence.

  Its scales are c_i^2 = sqrt(Var x_i / Var g_i), g the gradient of the log
  target: the diagonal of the sampler nutpie. For other proposals,
  `VarianceRatioAdaptation` goes around any that uses gradients.

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable, called as
      TFP calls it; returns [chains...].
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    preconditioner: A `tfpa.preconditioners.diagonal()`, whose start is taken.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    step_size: First step size, which the adaptation moves.
    short_step_share: As of `tfpa.gradient_adaptive_langevin`.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    ValueError: If an argument is not allowed.

  References:
    Seyboldt, Carlson and Carpenter (2026), https://arxiv.org/abs/2603.18845.
  """
  if preconditioner is None:
    preconditioner = tfpa.preconditioners.diagonal()
  proposal = tfpa.proposals.UncalibratedPreconditionedLangevin(
    target_log_prob_fn,
    preconditioner,
    step_size,
  )
  return VarianceRatioAdaptation(
    short_steps.around(
      tfpa.MetropolisHastings(proposal), num_adaptation_steps, short_step_share
    ),
    num_adaptation_steps,
    target_accept_prob,
  )


class VarianceRatioAdaptation(closed_form.ClosedFormAdaptation):
  """Learns a diagonal scale factor from states and their gradients.

  Where coordinates are Gaussian and independent each c_i is exact after a few
  steps, far from the typical set too: gradients are linear in the states. With
  correlations c_i^2 lies between the marginal variance and that given all
  other coordinates.

  Results are `linear.closed_form.ClosedFormAdaptationResults`.
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
        gradients and has a `preconditioners.diagonal`.
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
      gain=gain,
      name=name,
    )
    # A kernel that never adapts may have any structure.
    if num_adaptation_steps and self.preconditioner.name != 'diagonal':
      raise ValueError(
        'Variance ratios make a diagonal factor, but got '
        f'`{self.preconditioner.name}`. Write '
        '`preconditioner=tfpa.preconditioners.diagonal()`, or take '
        '`tfpa.adaptation.FisherDivergenceAdaptation` with a dense one.'
      )

  def _start(self, params, state, inner):
    """Returns moments without spread, around the states."""
    states, gradients, is_finite = self._states_and_gradients(state, inner)
    return Statistics(
      time=tf.zeros([], params.dtype),
      state=running_moments.start(states, is_finite),
      gradient=running_moments.start(gradients, is_finite),
    )

  def _learn(self, params, statistics, gradients, next_state, inner):
    """Moves the moments by one state of every chain."""
    del gradients
    states, gradients, is_finite = self._states_and_gradients(next_state, inner)
    gain = self._parameters['gain']
    time = statistics.time + 1.0
    weight = gain / (time + gain * _PRIOR_STEPS)
    state = running_moments.add(statistics.state, states, is_finite, weight)
    gradient = running_moments.add(
      statistics.gradient, gradients, is_finite, weight
    )
    # Ratio of standard deviations: that of variances may overflow.
    square = tf.sqrt(state.spread) * tf.math.rsqrt(gradient.spread)
    is_good = tf.math.is_finite(square) & (square > 0.0)
    change = tf.sqrt(tf.where(is_good, square, 1.0)) / params
    change = tf.clip_by_value(change, 1.0 / _MAX_CHANGE, _MAX_CHANGE)
    return (
      tf.where(is_good, change * params, params),
      Statistics(time, state, gradient),
      tf.ones([], params.dtype),
    )
