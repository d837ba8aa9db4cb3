"""The samplers of the papers, assembled: the second file to read.

Every builder returns an ordinary `tfp.mcmc.TransitionKernel`:

  GradientBasedAdaptation      learns the factor, for num_adaptation_steps
   └ MetropolisHastings        accepts or rejects
      └ Uncalibrated...        proposes
"""

from tfp_adaptive import preconditioners
from tfp_adaptive.core import arguments
from tfp_adaptive.core import short_steps
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.linear import optimizers
from tfp_adaptive.linear.criteria import generalized_speed_measure
from tfp_adaptive.linear.gradient_based import GradientBasedAdaptation
from tfp_adaptive.linear.hamiltonian import (
  UncalibratedPreconditionedHamiltonian,
)
from tfp_adaptive.linear.langevin import UncalibratedPreconditionedLangevin
from tfp_adaptive.linear.moment_based import MomentBasedAdaptation
from tfp_adaptive.linear.random_walk import UncalibratedPreconditionedRandomWalk
from tfp_adaptive.preconditioners.per_part import as_preconditioner

__all__ = [
  'adaptive_metropolis',
  'entropy_adaptive_hamiltonian',
  'gradient_adaptive_langevin',
  'gradient_adaptive_random_walk',
]


def gradient_adaptive_random_walk(
  target_log_prob_fn,
  num_adaptation_steps,
  preconditioner=None,
  criterion=None,
  optimizer=None,
  target_accept_prob=0.25,
  settings='default',
  step_size=1.0,
):
  """Builds a random walk whose covariance is learned by gradient (gadRWM).

  Args:
    target_log_prob_fn: Log density up to a constant, called as TFP calls it;
      returns [chains...].
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    preconditioner: Structure of the scale factor, or a list with one for each
      part of the state; dense by default.
    criterion: What to maximise; the generalised speed measure by default.
    optimizer: How the factor moves; `relative_gradient` by default.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    settings: `'default'`, or `'paper'` for the constants of the paper: start
      at 0.1 / sqrt(d), RMSProp with rate 5e-5, beta by the accept decision.
    step_size: Multiplies the scale factor; leave it to the adaptation.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  References:
    Titsias and Dellaportas (2019), section 2.2,
    https://arxiv.org/abs/1911.01373.
  """
  preconditioner, optimizer = _parts(
    settings, preconditioner, optimizer, optimizers.rmsprop(5e-5)
  )
  criterion = criterion or _speed_measure(
    settings, target_accept_prob, optimizer
  )
  proposal = UncalibratedPreconditionedRandomWalk(
    target_log_prob_fn, preconditioner, step_size
  )
  return GradientBasedAdaptation(
    MetropolisHastings(proposal), criterion, optimizer, num_adaptation_steps
  )


def gradient_adaptive_langevin(
  target_log_prob_fn,
  num_adaptation_steps,
  preconditioner=None,
  exact_gradient=False,
  criterion=None,
  optimizer=None,
  target_accept_prob=0.55,
  settings='default',
  step_size=1.0,
  short_step_share=None,
):
  """Builds a MALA whose covariance is learned by gradient (gadMALA).

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable, called as
      TFP calls it; returns [chains...].
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    preconditioner: Structure of the scale factor, or a list with one for each
      part of the state; dense by default.
    exact_gradient: Whether to differentiate through the gradient at the
      proposal, with one Hessian-vector product per adapting step (gadMALAe).
      The fast form (gadMALAf) leaves it out.
    criterion: What to maximise; the generalised speed measure by default.
    optimizer: How the factor moves; `relative_gradient` by default.
    target_accept_prob: Wanted mean acceptance, in (0, 1), of the steps that are
      not short.
    settings: `'default'`, or `'paper'` for the constants of the paper: start
      at 0.1 / sqrt(d), RMSProp with rate 1.5e-4, beta by the accept decision.
    step_size: Multiplies the scale factor; leave it to the adaptation.
    short_step_share: Share of steps, in [0, 1), that are 0.1 to 1 times as
      long, at random: they bring chains out of narrow places. 0.2 by default,
      0 with the paper's settings.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  References:
    Titsias and Dellaportas (2019), section 2.3,
    https://arxiv.org/abs/1911.01373.
  """
  preconditioner, optimizer = _parts(
    settings,
    preconditioner,
    optimizer,
    optimizers.rmsprop(1.5e-4),
    # The exact gradient is noisier: less gain averages more.
    gain=2.0 if exact_gradient else 4.0,
  )
  criterion = criterion or _speed_measure(
    settings, target_accept_prob, optimizer, bound_log_ratio=True
  )
  proposal = UncalibratedPreconditionedLangevin(
    target_log_prob_fn,
    preconditioner,
    step_size,
    exact_gradient,
    short_step_share=short_steps.share_of(settings, short_step_share),
  )
  return GradientBasedAdaptation(
    MetropolisHastings(proposal), criterion, optimizer, num_adaptation_steps
  )


def entropy_adaptive_hamiltonian(
  target_log_prob_fn,
  num_leapfrog_steps,
  num_adaptation_steps,
  preconditioner=None,
  criterion=None,
  optimizer=None,
  target_accept_prob=0.67,
  hessian_product='autodiff',
  randomize_num_steps=False,
  exact_gradient=False,
  settings='default',
  step_size=1.0,
):
  """Builds HMC whose inverse mass matrix is learned by gradient.

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable twice,
      called as TFP calls it; returns [chains...].
    num_leapfrog_steps: L, gradients per step; with 1 it is MALA.
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    preconditioner: Structure of the scale factor C, C C^T the inverse mass
      matrix, or a list with one for each part of the state; dense by default.
    criterion: What to maximise; the generalised speed measure by default.
    optimizer: How the factor moves; `relative_gradient` by default.
    target_accept_prob: Smallest wanted mean acceptance, in (0, 1). Where the
      entropy is greatest at a smaller scale, more is accepted.
    hessian_product: `'autodiff'`, or `'finite_difference'` of gradients for
      targets that are costly or cannot be differentiated twice.
    randomize_num_steps: Whether every step draws its number of leapfrog steps
      from 1, ..., L.
    exact_gradient: Whether to learn from the energy error too, differentiated
      through all gradients of the trajectory.
    settings: `'default'`, or `'paper'` for the constants of the paper: start
      at 0.1 / sqrt(d), Adam with rate 1e-3, beta by acceptance in [1e-2, 1e2],
      penalty weight in [1e3, 1e5].
    step_size: Multiplies the scale factor; leave it to the adaptation.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  References:
    Hirt, Titsias and Dellaportas (2021), Algorithm 1,
    https://arxiv.org/abs/2110.14625.
  """
  preconditioner, optimizer = _parts(
    settings, preconditioner, optimizer, optimizers.adam(1e-3)
  )
  criterion = criterion or _entropy_measure(
    settings,
    target_accept_prob,
    optimizer,
    # One step has no Jacobian; the exact gradient is that of the energy.
    learns_from_energy=exact_gradient or num_leapfrog_steps == 1,
  )
  proposal = UncalibratedPreconditionedHamiltonian(
    target_log_prob_fn,
    preconditioner,
    num_leapfrog_steps,
    step_size,
    randomize_num_steps,
    exact_gradient,
    hessian_product,
  )
  return GradientBasedAdaptation(
    MetropolisHastings(proposal), criterion, optimizer, num_adaptation_steps
  )


def adaptive_metropolis(
  target_log_prob_fn,
  num_adaptation_steps,
  preconditioner=None,
  target_accept_prob=0.25,
  settings='default',
  step_size=1.0,
  target_is_stochastic=False,
):
  """Builds adaptive Metropolis (AM): the random walk's covariance by moments.

  It calls the target once per step and never its gradient.

  Args:
    target_log_prob_fn: Log density up to a constant; returns [chains...]. If
      stochastic, `fn(*state, seed=seed)`, the log of an unbiased estimate.
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    preconditioner: Structure of the scale factor, or a list with one for each
      part of the state; dense by default.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    settings: `'default'`, or `'paper'`: start at 0.1 / sqrt(d).
    step_size: First sqrt(s), which the adaptation moves.
    target_is_stochastic: Whether the target is a random estimate, drawn from
      its `seed` ([2] int32). Accepted estimates are kept, never drawn again:
      the chain is exact for the density that is estimated.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  References:
    Haario, Saksman and Tamminen (2001); Andrieu and Thoms (2008), 5.1.1;
    stochastic targets: Andrieu and Roberts (2009).
  """
  _check_settings(settings)
  preconditioner = as_preconditioner(preconditioner)
  if preconditioner is None:
    preconditioner = preconditioners.cholesky(
      init_scale=_paper_scale if settings == 'paper' else None
    )
  proposal = UncalibratedPreconditionedRandomWalk(
    target_log_prob_fn, preconditioner, step_size, target_is_stochastic
  )
  return MomentBasedAdaptation(
    MetropolisHastings(proposal), num_adaptation_steps, target_accept_prob
  )


def _parts(settings, preconditioner, optimizer, paper_optimizer, gain=4.0):
  """Fills in preconditioner and optimizer where the caller left them out."""
  _check_settings(settings)
  preconditioner = as_preconditioner(preconditioner)
  if settings == 'paper':
    preconditioner = preconditioner or preconditioners.cholesky(
      init_scale=_paper_scale, min_scale=1e-3
    )
    optimizer = optimizer or paper_optimizer
  else:
    preconditioner = preconditioner or preconditioners.cholesky()
    optimizer = optimizer or optimizers.relative_gradient(gain)
  arguments.check_optimizer(optimizer)
  return preconditioner, optimizer


def _speed_measure(
  settings, target_accept_prob, optimizer, bound_log_ratio=False
):
  """Returns the speed measure of the random walk and of MALA."""
  return generalized_speed_measure(
    target_accept_prob,
    # Raw gradients have no slopes to balance.
    'balance' if optimizer.is_relative else 'acceptance',
    use_accept_flag=settings == 'paper',
    bound_log_ratio=bound_log_ratio and settings != 'paper',
  )


def _entropy_measure(
  settings, target_accept_prob, optimizer, learns_from_energy
):
  """Returns the speed measure of Hamiltonian proposals."""
  if settings == 'paper':
    return generalized_speed_measure(
      target_accept_prob,
      'acceptance',
      min_entropy_weight=1e-2,
      max_entropy_weight=1e2,
      penalty_threshold=0.75,
      penalty_weights=(1e3, 1e5),
      penalty_rate=0.01,
    )
  if learns_from_energy:
    return _speed_measure(
      settings, target_accept_prob, optimizer, bound_log_ratio=True
    )
  return generalized_speed_measure(
    target_accept_prob,
    'constraint' if optimizer.is_relative else 'acceptance',
    penalty_threshold=0.75,
  )


def _check_settings(settings):
  if settings not in ('default', 'paper'):
    raise ValueError(
      "`settings` must be 'default' or 'paper', but got "
      f'{settings!r}. Single constants are arguments of the parts, for example '
      '`optimizer=tfpa.optimizers.rmsprop(learning_rate=1e-4)`.'
    )


def _paper_scale(event_size):
  return 0.1 * event_size**-0.5
