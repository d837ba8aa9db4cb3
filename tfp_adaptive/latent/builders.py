"""Samplers of latent Gaussian models, assembled.

Every builder returns an ordinary `tfp.mcmc.TransitionKernel`:

  DualAveragingStepSizeAdaptation   TFP's; learns delta, then freezes it
   └ ShortStepsWhileAdapting        brings far starts home meanwhile
      └ MetropolisHastings          accepts or rejects
         └ Uncalibrated...          proposes, in the prior's coordinates

The target is exp f(x) N(x | mean, C): f is `log_likelihood_fn`, the prior an
`interfaces.GaussianPrior` from `tfpa.gaussian_priors`. `target_log_prob` in
their results is f, without the prior. While delta is tuned a fifth of the steps
is smaller, so that no chain stays for good where it started.
"""

import tensorflow_probability as tfp

from tfp_adaptive.core import arguments
from tfp_adaptive.core import step_size_range
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.latent.auxiliary_gradient import UncalibratedAuxiliaryGradient
from tfp_adaptive.latent.auxiliary_langevin import UncalibratedAuxiliaryLangevin
from tfp_adaptive.latent.crank_nicolson import UncalibratedCrankNicolson
from tfp_adaptive.latent.elliptical_slice import EllipticalSlice
from tfp_adaptive.latent.marginal_gradient import UncalibratedMarginalGradient
from tfp_adaptive.latent.second_order_gradient import (
  UncalibratedSecondOrderGradient,
)
from tfp_adaptive.latent.short_steps_while_adapting import (
  ShortStepsWhileAdapting,
)

__all__ = [
  'auxiliary_gradient',
  'auxiliary_langevin',
  'crank_nicolson',
  'elliptical_slice',
  'marginal_gradient',
  'second_order_gradient',
  'tuned',
]


def marginal_gradient(
  log_likelihood_fn,
  prior,
  num_adaptation_steps,
  target_accept_prob=0.55,
  step_size=0.1,
  short_step_share=0.2,
):
  """Builds the marginal gradient sampler (mGrad): the one to start with.

  Args:
    log_likelihood_fn: f, differentiable, called as TFP calls targets; returns
      [chains...], without the prior.
    prior: An `interfaces.GaussianPrior`; the state is
      [chains..., *prior.event_shape].
    num_adaptation_steps: Steps that tune delta; after them it is fixed.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    step_size: First delta, a variance in units of the state; the adaptation
      finds its order of magnitude.
    short_step_share: Share of the adapting steps, in [0, 1), that are much
      smaller, so that no chain stays where the target is far steeper.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  References:
    Titsias and Papaspiliopoulos (2018), section 3.3,
    https://arxiv.org/abs/1610.09641.
  """
  return _adapted(
    UncalibratedMarginalGradient(log_likelihood_fn, prior, step_size),
    num_adaptation_steps,
    target_accept_prob,
    short_step_share,
  )


def auxiliary_gradient(
  log_likelihood_fn,
  prior,
  num_adaptation_steps,
  auxiliary='z',
  target_accept_prob=0.55,
  step_size=0.1,
  short_step_share=0.2,
):
  """Builds an auxiliary gradient sampler (aGrad-z, aGrad-u).

  Args:
    log_likelihood_fn: As in `marginal_gradient`.
    prior: As in `marginal_gradient`.
    num_adaptation_steps: Steps that tune delta; after them it is fixed.
    auxiliary: `'z'` or `'u'`: the variable that a move is conditioned on.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    step_size: First delta, a variance in units of the state.
    short_step_share: As in `marginal_gradient`.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  References:
    Titsias and Papaspiliopoulos (2018), section 3.3,
    https://arxiv.org/abs/1610.09641.
  """
  return _adapted(
    UncalibratedAuxiliaryGradient(
      log_likelihood_fn, prior, step_size, auxiliary
    ),
    num_adaptation_steps,
    target_accept_prob,
    short_step_share,
  )


def crank_nicolson(
  log_likelihood_fn,
  prior,
  num_adaptation_steps,
  langevin=False,
  preconditioned=True,
  target_accept_prob=None,
  step_size=0.1,
  short_step_share=0.2,
):
  """Builds a Crank-Nicolson sampler (pCN, pCNL, CNL).

  Args:
    log_likelihood_fn: As in `marginal_gradient`; needs no gradient for pCN.
    prior: As in `marginal_gradient`.
    num_adaptation_steps: Steps that tune delta; after them it is fixed.
    langevin: Whether to use the gradient of the log-likelihood.
    preconditioned: Whether the noise has the prior's covariance. CNL and CN,
      without, need a prior with an inverse.
    target_accept_prob: Wanted mean acceptance, in (0, 1); 0.55 with gradient,
      0.25 without, by default.
    step_size: First delta; without unit if preconditioned, else a variance.
    short_step_share: As in `marginal_gradient`.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  References:
    Cotter, Roberts, Stuart and White (2013); Titsias and Papaspiliopoulos
    (2018), section 3.2, https://arxiv.org/abs/1610.09641.
  """
  if target_accept_prob is None:
    target_accept_prob = 0.55 if langevin else 0.25
  return _adapted(
    UncalibratedCrankNicolson(
      log_likelihood_fn, prior, step_size, langevin, preconditioned
    ),
    num_adaptation_steps,
    target_accept_prob,
    short_step_share,
  )


def elliptical_slice(log_likelihood_fn, prior):
  """Builds TFP's elliptical slice sampler, on a prior of this library.

  Args:
    log_likelihood_fn: As in `marginal_gradient`; needs no gradient.
    prior: As in `marginal_gradient`.

  Returns:
    A `tfp.mcmc.TransitionKernel`; it has nothing to tune.

  References:
    Murray, Adams and MacKay (2010), Elliptical slice sampling.
  """
  return EllipticalSlice(log_likelihood_fn, prior)


def auxiliary_langevin(
  target_log_prob_fn,
  num_adaptation_steps,
  auxiliary='u',
  target_accept_prob=0.55,
  step_size=0.1,
  short_step_share=0.2,
):
  """Builds auxiliary MALA, which MALA beats: for comparison.

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable, called as
      TFP calls it; returns [chains...].
    num_adaptation_steps: Steps that tune delta; after them it is fixed.
    auxiliary: `'z'` or `'u'`: the variable that a move is conditioned on.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    step_size: First delta, a variance in units of the state.
    short_step_share: As in `marginal_gradient`.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  References:
    Titsias and Papaspiliopoulos (2018), section 2.2,
    https://arxiv.org/abs/1610.09641.
  """
  return _adapted(
    UncalibratedAuxiliaryLangevin(target_log_prob_fn, step_size, auxiliary),
    num_adaptation_steps,
    target_accept_prob,
    short_step_share,
  )


def second_order_gradient(
  log_likelihood_fn,
  prior,
  num_adaptation_steps,
  target_accept_prob=0.55,
  step_size=0.1,
  short_step_share=0.2,
):
  """Builds the second-order marginal sampler, for likelihoods that factorise.

  It knows the curvature of the likelihood, so that delta need not follow the
  information in the data: with a quadratic log-likelihood any delta is accepted
  always.

  Args:
    log_likelihood_fn: As in `marginal_gradient`, of the form sum_i f_i(x_i),
      twice differentiable; where f_i is convex its curvature is taken as 0.
    prior: A prior with banded precision: `tfpa.gaussian_priors.markov`,
      `autoregression`, `random_walk` or `state_space`.
    num_adaptation_steps: Steps that tune delta; after them it is fixed.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    step_size: First delta, a variance in units of the state.
    short_step_share: As in `marginal_gradient`.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  References:
    Titsias and Papaspiliopoulos (2018), discussion,
    https://arxiv.org/abs/1610.09641.
  """
  return _adapted(
    UncalibratedSecondOrderGradient(log_likelihood_fn, prior, step_size),
    num_adaptation_steps,
    target_accept_prob,
    short_step_share,
  )


def _adapted(
  proposal, num_adaptation_steps, target_accept_prob, short_step_share
):
  """Puts Metropolis-Hastings and the adaptation of delta around a proposal."""
  kernel = ShortStepsWhileAdapting(
    MetropolisHastings(proposal), num_adaptation_steps, short_step_share
  )
  return tuned(kernel, num_adaptation_steps, target_accept_prob)


def tuned(
  kernel,
  num_adaptation_steps,
  target_accept_prob,
  step_size='step_size',
  log_accept_ratio='log_accept_ratio',
):
  """Puts TFP's dual averaging of a step size around a kernel.

  Args:
    kernel: One whose results hold the two names below; short steps inside it
      do not count.
    num_adaptation_steps: Steps that tune.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    step_size: Name of the innermost result that is tuned, within the bounds
      of `core.step_size_range`.
    log_accept_ratio: Name of the innermost result that says how it does.

  Returns:
    A `tfp.mcmc.DualAveragingStepSizeAdaptation`.
  """
  arguments.check_accept_prob(target_accept_prob)
  get = ShortStepsWhileAdapting.log_accept_prob_getter
  return tfp.mcmc.DualAveragingStepSizeAdaptation(
    kernel,
    num_adaptation_steps=num_adaptation_steps,
    target_accept_prob=target_accept_prob,
    step_size_setter_fn=step_size_range.setter(step_size),
    step_size_getter_fn=lambda results: tfp_private.get_innermost(
      results, step_size
    ),
    log_accept_prob_getter_fn=get(target_accept_prob, log_accept_ratio),
  )
