"""The samplers of the papers, assembled: the second file to read.

Every builder returns an ordinary `tfp.mcmc.TransitionKernel`:

  GradientBasedAdaptation      learns the factor, for num_adaptation_steps
   └ MetropolisHastings        accepts or rejects
      └ Uncalibrated...        proposes
"""

from tfp_adaptive import optimizers
from tfp_adaptive import preconditioners
from tfp_adaptive.adaptation.gradient_based import GradientBasedAdaptation
from tfp_adaptive.adaptation.moment_based import MomentBasedAdaptation
from tfp_adaptive.criteria import generalized_speed_measure
from tfp_adaptive.internal.metropolis_hastings import MetropolisHastings
from tfp_adaptive.proposals import UncalibratedPreconditionedLangevin
from tfp_adaptive.proposals import UncalibratedPreconditionedRandomWalk

__all__ = [
  'adaptive_metropolis',
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
    preconditioner: Structure of the scale factor; dense by default.
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
  preconditioner, criterion, optimizer = _parts(
    settings, preconditioner, criterion, optimizer, target_accept_prob, 5e-5
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
):
  """Builds a MALA whose covariance is learned by gradient (gadMALA).

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable, called as
      TFP calls it; returns [chains...].
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    preconditioner: Structure of the scale factor; dense by default.
    exact_gradient: Whether to differentiate through the gradient at the
      proposal, with one Hessian-vector product per adapting step (gadMALAe).
      The fast form (gadMALAf) leaves it out.
    criterion: What to maximise; the generalised speed measure by default.
    optimizer: How the factor moves; `relative_gradient` by default.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    settings: `'default'`, or `'paper'` for the constants of the paper: start
      at 0.1 / sqrt(d), RMSProp with rate 1.5e-4, beta by the accept decision.
    step_size: Multiplies the scale factor; leave it to the adaptation.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  References:
    Titsias and Dellaportas (2019), section 2.3,
    https://arxiv.org/abs/1911.01373.
  """
  preconditioner, criterion, optimizer = _parts(
    settings,
    preconditioner,
    criterion,
    optimizer,
    target_accept_prob,
    paper_rate=1.5e-4,
    # The exact gradient is noisier: less gain averages more.
    gain=2.0 if exact_gradient else 4.0,
  )
  proposal = UncalibratedPreconditionedLangevin(
    target_log_prob_fn, preconditioner, step_size, exact_gradient
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
):
  """Builds adaptive Metropolis (AM): the random walk's covariance by moments.

  It calls the target once per step and never its gradient.

  Args:
    target_log_prob_fn: Log density up to a constant; returns [chains...].
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    preconditioner: Structure of the scale factor; dense by default.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    settings: `'default'`, or `'paper'`: start at 0.1 / sqrt(d).
    step_size: First sqrt(s), which the adaptation moves.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  References:
    Haario, Saksman and Tamminen (2001); Andrieu and Thoms (2008), 5.1.1.
  """
  _check_settings(settings)
  if preconditioner is None:
    preconditioner = preconditioners.cholesky(
      init_scale=_paper_scale if settings == 'paper' else None
    )
  proposal = UncalibratedPreconditionedRandomWalk(
    target_log_prob_fn, preconditioner, step_size
  )
  return MomentBasedAdaptation(
    MetropolisHastings(proposal), num_adaptation_steps, target_accept_prob
  )


def _parts(
  settings,
  preconditioner,
  criterion,
  optimizer,
  accept_prob,
  paper_rate,
  gain=4.0,
):
  """Fills the parts that the caller left out."""
  _check_settings(settings)
  is_paper = settings == 'paper'
  if preconditioner is None:
    preconditioner = (
      preconditioners.cholesky(init_scale=_paper_scale, min_scale=1e-3)
      if is_paper
      else preconditioners.cholesky()
    )
  if criterion is None:
    criterion = generalized_speed_measure(
      target_accept_prob=accept_prob,
      entropy_weight_rule='acceptance' if is_paper else 'balance',
      use_accept_flag=is_paper,
    )
  if optimizer is None:
    optimizer = (
      optimizers.rmsprop(paper_rate)
      if is_paper
      else optimizers.relative_gradient(gain)
    )
  return preconditioner, criterion, optimizer


def _check_settings(settings):
  if settings not in ('default', 'paper'):
    raise ValueError(
      "`settings` must be 'default' or 'paper', but got "
      f'{settings!r}. Single constants are arguments of the parts, for example '
      '`optimizer=tfpa.optimizers.rmsprop(learning_rate=1e-4)`.'
    )


def _paper_scale(event_size):
  return 0.1 * event_size**-0.5
