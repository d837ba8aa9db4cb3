"""MALA whose factor is a closed form of past gradients, as in `builders.py`."""

from tfp_adaptive import preconditioners
from tfp_adaptive.core import short_steps
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.linear.fisher import FisherAdaptation
from tfp_adaptive.linear.fisher_divergence import FisherDivergenceAdaptation
from tfp_adaptive.linear.langevin import UncalibratedPreconditionedLangevin
from tfp_adaptive.linear.variance_ratio import VarianceRatioAdaptation

__all__ = [
  'fisher_adaptive_langevin',
  'fisher_divergence_langevin',
  'variance_ratio_langevin',
]


def fisher_adaptive_langevin(
  target_log_prob_fn,
  num_adaptation_steps,
  preconditioner=None,
  target_accept_prob=0.574,
  settings='default',
  step_size=1.0,
  short_step_share=None,
):
  """Builds a MALA with the inverse Fisher information (FisherMALA).

  Its covariance is the inverse of the mean square of the gradient's increments
  between a state and its proposal. For other proposals, `FisherAdaptation`
  goes around any that uses gradients.

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable, called as
      TFP calls it; returns [chains...].
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    preconditioner: A `preconditioners.cholesky()`, whose start is taken.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    settings: `'default'`: increments are forgotten, and the first factor with
      them. Or `'paper'`: none is, the regularization is 10, the scale is held
      by the trace, and the first factor is 0.1 / sqrt(d).
    step_size: First step size, which the adaptation moves.
    short_step_share: As of `gradient_adaptive_langevin`.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  References:
    Titsias (2023), Algorithm 1, https://arxiv.org/abs/2305.14442.
  """
  mala = _mala(
    target_log_prob_fn,
    preconditioner,
    preconditioners.cholesky,
    settings,
    step_size,
    short_step_share,
  )
  constants = {}
  if settings == 'paper':
    constants = dict(
      gain=1.0, regularization=10.0, max_shrinkage=None, normalize_trace=True
    )
  return FisherAdaptation(
    mala, num_adaptation_steps, target_accept_prob, **constants
  )


def fisher_divergence_langevin(
  target_log_prob_fn,
  num_adaptation_steps,
  preconditioner=None,
  target_accept_prob=0.574,
  settings='default',
  step_size=1.0,
  short_step_share=None,
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
    settings: `'default'`, or `'paper'`: start at 0.1 / sqrt(d), as the papers
      of the other builders do.
    step_size: First step size, which the adaptation moves.
    short_step_share: As of `gradient_adaptive_langevin`.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  References:
    Seyboldt, Carlson and Carpenter (2026), https://arxiv.org/abs/2603.18845.
  """
  mala = _mala(
    target_log_prob_fn,
    preconditioner,
    preconditioners.cholesky,
    settings,
    step_size,
    short_step_share,
  )
  return FisherDivergenceAdaptation(
    mala, num_adaptation_steps, target_accept_prob
  )


def variance_ratio_langevin(
  target_log_prob_fn,
  num_adaptation_steps,
  preconditioner=None,
  target_accept_prob=0.574,
  settings='default',
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
    preconditioner: A `preconditioners.diagonal()`, whose start is taken.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    settings: `'default'`, or `'paper'`: start at 0.1 / sqrt(d), as the papers
      of the other builders do.
    step_size: First step size, which the adaptation moves.
    short_step_share: As of `gradient_adaptive_langevin`.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  References:
    Seyboldt, Carlson and Carpenter (2026), https://arxiv.org/abs/2603.18845.
  """
  mala = _mala(
    target_log_prob_fn,
    preconditioner,
    preconditioners.diagonal,
    settings,
    step_size,
    short_step_share,
  )
  return VarianceRatioAdaptation(mala, num_adaptation_steps, target_accept_prob)


def _mala(
  target_log_prob_fn,
  preconditioner,
  structure,
  settings,
  step_size,
  short_step_share,
):
  """Returns MALA with the preconditioner, or with the structure's default."""
  _check_settings(settings)
  if preconditioner is None:
    preconditioner = structure(
      init_scale=_paper_scale if settings == 'paper' else None
    )
  return MetropolisHastings(
    UncalibratedPreconditionedLangevin(
      target_log_prob_fn,
      preconditioner,
      step_size,
      short_step_share=short_steps.share_of(settings, short_step_share),
    )
  )


def _check_settings(settings):
  if settings not in ('default', 'paper'):
    raise ValueError(
      "`settings` must be 'default' or 'paper', but got "
      f'{settings!r}. Single constants are arguments of '
      '`tfpa.adaptation.FisherAdaptation`.'
    )


def _paper_scale(event_size):
  return 0.1 * event_size**-0.5
