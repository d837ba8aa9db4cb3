"""Samplers without gradients, assembled.

DualAveragingStepSizeAdaptation   TFP's; where leapfrog steps are counted
 └ ScoreMatchingAdaptation        learns surrogate and scales from past states
    └ MetropolisHastings          accepts by the true target, or an estimate
       └ Uncalibrated...          proposes
"""

import functools

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import preconditioners
from tfp_adaptive.core import arguments
from tfp_adaptive.core import step_size_range
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.preconditioners.per_part import as_preconditioner
from tfp_adaptive.surrogate import models as surrogates
from tfp_adaptive.surrogate.adaptation import ScoreMatchingAdaptation
from tfp_adaptive.surrogate.surrogate_hamiltonian import (
  UncalibratedSurrogateHamiltonian,
)

__all__ = ['kernel_hamiltonian']


def kernel_hamiltonian(
  target_log_prob_fn,
  num_adaptation_steps,
  surrogate=None,
  preconditioner=None,
  num_leapfrog_steps=None,
  step_size=None,
  history=None,
  target_is_stochastic=False,
  target_accept_prob=None,
  walk_share=None,
  settings='default',
  trajectory_length=4.0,
):
  """Builds HMC without gradients (KMC): forces learned from past states.

  One step calls the target once, whatever the length of the trajectory. For
  targets whose gradient is unknown, and for those known only by a random
  estimate: pseudo-marginal likelihoods, simulators.

  Args:
    target_log_prob_fn: Log density up to a constant, called as TFP calls it;
      returns [chains...]. If stochastic, called with `seed` too ([2] int32),
      and the log of an unbiased estimate of the density.
    num_adaptation_steps: Steps that learn; after them the kernel is fixed.
    surrogate: An `interfaces.Surrogate`;
      `tfpa.surrogates.kernel_exponential_family_finite()` by default.
    preconditioner: Structure of the momentum scale, or a list with one for
      each part of the state; dense by default.
    num_leapfrog_steps: L, or a pair (fewest, most) to draw from every step. By
      default as many as `trajectory_length` needs: leapfrog steps call no
      target.
    step_size: First step size, in units of the momentum scale. It becomes the
      largest at which trajectories keep the surrogate's own energy; with
      `num_leapfrog_steps` dual averaging moves it. With `settings='paper'` the
      largest, of which a step takes a tenth at least.
    history: Draws known beforehand, numpy [k, event_size]: the surrogate is
      fitted to them before the first step. In the coordinates that the kernel
      moves in: inside a `TransformedTransitionKernel`, the unconstrained ones.
    target_is_stochastic: Whether the target is an estimate. Accepted estimates
      are kept and never drawn again, which keeps the chain exact.
    target_accept_prob: Wanted mean acceptance of the steps that follow the
      surrogate, in (0, 1), where `num_leapfrog_steps` is given; 0.65 by
      default, 0.35 where the target is stochastic. The noise of estimates
      bounds what can be had: where it allows less than is wanted, the step
      size falls to nothing.
    walk_share: Smallest share of the steps, in [0, 1), that walk at random and
      so find what the surrogate has not seen; 0.1 by default. Where it is not
      0, all steps walk before the first fit, half of them until the last, and
      then more than this where walks earn more: with one chain or many
      dimensions a surrogate can be too poor to follow.
    settings: `'default'`, or `'paper'`: momenta of unit scale, step sizes drawn
      from [0.01, 0.1] and not adapted, 1 to 10 leapfrog steps, no walks.
    trajectory_length: Longest trajectory, in units of the momentum scale, not
      read where `num_leapfrog_steps` is given: every step draws its length
      between a third of this and all of it. Half a turn around a Gaussian is
      3.1, and whatever the surrogate misses costs acceptance once, not more
      the farther it is followed.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    ValueError: If an argument is not allowed.

  References:
    Strathmann et al. (2015), Algorithm 1, https://arxiv.org/abs/1506.02564.
  """
  _check_settings(settings)
  is_paper = settings == 'paper'
  has_length = num_leapfrog_steps is None and not is_paper
  if has_length and target_accept_prob is not None:
    raise ValueError(
      f'`target_accept_prob={target_accept_prob!r}` steers the step size of a '
      'number of leapfrog steps that is given: write for example '
      '`num_leapfrog_steps=(1, 10)` as well, or leave it out.'
    )
  if preconditioner is None:
    preconditioner = (
      preconditioners.diagonal(init_scale=1.0)
      if is_paper
      else preconditioners.cholesky(init_scale=1.0)
    )
  proposal = UncalibratedSurrogateHamiltonian(
    target_log_prob_fn,
    surrogate or surrogates.kernel_exponential_family_finite(),
    as_preconditioner(preconditioner),
    (1, 10) if num_leapfrog_steps is None else num_leapfrog_steps,
    (0.1 if is_paper else 0.3) if step_size is None else step_size,
    step_size_jitter=(0.1, 1.0) if is_paper else (1.0, 1.0),
    walk_share=(0.0 if is_paper else 0.1) if walk_share is None else walk_share,
    target_is_stochastic=target_is_stochastic,
    trajectory_length=trajectory_length if has_length else None,
  )
  kernel = ScoreMatchingAdaptation(
    MetropolisHastings(proposal),
    num_adaptation_steps,
    history,
    learn_momentum_scale=not is_paper,
  )
  if is_paper or has_length:
    return kernel
  if target_accept_prob is None:
    target_accept_prob = 0.35 if target_is_stochastic else 0.65
  return _tuned(kernel, num_adaptation_steps, target_accept_prob)


def _tuned(kernel, num_adaptation_steps, target_accept_prob):
  """Puts TFP's dual averaging of the step size around a kernel."""
  arguments.check_accept_prob(target_accept_prob)
  return tfp.mcmc.DualAveragingStepSizeAdaptation(
    kernel,
    num_adaptation_steps=num_adaptation_steps,
    target_accept_prob=target_accept_prob,
    step_size_setter_fn=step_size_range.setter(),
    log_accept_prob_getter_fn=functools.partial(
      _log_accept_prob, target_accept_prob
    ),
  )


def _log_accept_prob(target_accept_prob, results):
  """Returns log min(1, exp(r)); what is wanted where the step walked.

  Walks have a scale of their own and say nothing about the step size.
  """
  while not hasattr(results, 'proposed_results'):
    results = results.inner_results
  log_prob = tf.minimum(results.log_accept_ratio, 0.0)
  move = getattr(results.proposed_results, 'trajectory', None)
  has_walked = getattr(move, 'has_walked', False)
  wanted = tf.math.log(tf.constant(target_accept_prob, log_prob.dtype))
  return tf.where(has_walked, wanted, log_prob)


def _check_settings(settings):
  if settings not in ('default', 'paper'):
    raise ValueError(
      f"`settings` must be 'default' or 'paper', but got {settings!r}."
    )
