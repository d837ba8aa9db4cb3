"""The sampler of a latent field and its prior's hyperparameters, assembled.

DualAveragingStepSizeAdaptation       TFP's; learns delta, then freezes it
 └ DualAveragingStepSizeAdaptation    learns kappa
    └ HyperparameterAdaptation        learns the shape of steps of theta
       └ ShortStepsWhileAdapting      brings far starts home meanwhile
          └ LatentGaussianHyperparameters    moves the field and theta

Builders of samplers at fixed hyperparameters are in `latent/builders.py`.
"""

from tfp_adaptive.core import arguments
from tfp_adaptive.core import short_steps
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.latent import builders
from tfp_adaptive.latent.auxiliary_gradient import UncalibratedAuxiliaryGradient
from tfp_adaptive.latent.crank_nicolson import UncalibratedCrankNicolson
from tfp_adaptive.latent.elliptical_slice import EllipticalSlice
from tfp_adaptive.latent.hyperparameter_adaptation import (
  HyperparameterAdaptation,
)
from tfp_adaptive.latent.hyperparameters import LatentGaussianHyperparameters
from tfp_adaptive.latent.marginal_gradient import UncalibratedMarginalGradient
from tfp_adaptive.latent.short_steps_while_adapting import (
  ShortStepsWhileAdapting,
)

__all__ = ['latent_gaussian_hyperparameters']


def _under_metropolis_hastings(proposal, **options):
  return lambda *args: MetropolisHastings(proposal(*args, **options))


# name -> (log_likelihood_fn, prior, step_size) -> kernel of a latent field.
_LATENT_KERNELS = dict(
  auxiliary_gradient=_under_metropolis_hastings(UncalibratedAuxiliaryGradient),
  marginal_gradient=_under_metropolis_hastings(UncalibratedMarginalGradient),
  crank_nicolson_langevin=_under_metropolis_hastings(
    UncalibratedCrankNicolson, langevin=True
  ),
  elliptical_slice=EllipticalSlice,
)


def latent_gaussian_hyperparameters(
  log_likelihood_fn,
  prior_fn,
  hyperprior,
  num_adaptation_steps,
  joint=True,
  latent='auxiliary_gradient',
  num_latent_updates=1,
  target_accept_prob=0.55,
  hyper_target_accept_prob=0.25,
  step_size=0.1,
  hyper_step_size=0.1,
  bijector=None,
  short_step_share=0.2,
):
  """Builds a sampler of a latent field and its prior's hyperparameters.

  The state is `(x, theta)`, theta unconstrained; the hyperprior's default
  bijector, or `bijector`, maps it to what `prior_fn` takes.

  Args:
    log_likelihood_fn: f, as in `marginal_gradient`.
    prior_fn: theta -> `interfaces.GaussianPrior`; theta has chain dimensions,
      and so must the prior's params. Decomposed once in a step. A dense prior
      is decomposed fastest without XLA on a CPU: `jit_compile=False`.
    hyperprior: A `tfp.distributions.Distribution` of theta, joint or not.
    num_adaptation_steps: Steps that tune delta and kappa and learn L, the
      shape of the steps kappa L e of unconstrained theta; then all are fixed.
    joint: Whether theta moves together with x, given a noisy copy of it
      (aGrad-z-joint). Else theta moves at fixed x (Gibbs), slower by an order
      of magnitude or more, and C must have an inverse.
    latent: What updates x at fixed theta: `'auxiliary_gradient'`, and for
      `joint=False` also `'marginal_gradient'`, `'crank_nicolson_langevin'` or
      `'elliptical_slice'`.
    num_latent_updates: Updates of x in a step.
    target_accept_prob: Wanted mean acceptance of x, in (0, 1).
    hyper_target_accept_prob: Wanted mean acceptance of theta, in (0, 1).
    step_size: First delta, a variance in units of the state.
    hyper_step_size: First kappa, the standard deviation of a step of
      unconstrained theta; L starts as the identity.
    bijector: Unconstrained theta -> theta; by default the hyperprior's own.
    short_step_share: As in `marginal_gradient`; `'elliptical_slice'` has no
      steps to shorten.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  References:
    Titsias and Papaspiliopoulos (2018), section 4,
    https://arxiv.org/abs/1610.09641.
  """
  short_steps.check_share(short_step_share)
  arguments.check_accept_prob(
    hyper_target_accept_prob, 'hyper_target_accept_prob'
  )
  allowed = ['auxiliary_gradient'] if joint else sorted(_LATENT_KERNELS)
  if latent not in allowed:
    raise ValueError(
      f'`latent` must be one of {allowed} with `joint={joint}`, but got '
      f'{latent!r}. The joint move shares the auxiliary variable of '
      "'auxiliary_gradient'."
    )
  kernel = LatentGaussianHyperparameters(
    log_likelihood_fn,
    prior_fn,
    hyperprior,
    _LATENT_KERNELS[latent],
    joint=joint,
    num_latent_updates=num_latent_updates,
    step_size=step_size,
    hyper_step_size=hyper_step_size,
    bijector=bijector,
  )
  has_step_size = latent != 'elliptical_slice'
  if has_step_size:
    kernel = ShortStepsWhileAdapting(
      kernel, num_adaptation_steps, short_step_share
    )
  tuned = builders.tuned(
    HyperparameterAdaptation(kernel, num_adaptation_steps),
    num_adaptation_steps,
    hyper_target_accept_prob,
    'hyper_step_size',
    'hyper_log_accept_ratio',
  )
  if not has_step_size:
    return tuned
  return builders.tuned(tuned, num_adaptation_steps, target_accept_prob)
