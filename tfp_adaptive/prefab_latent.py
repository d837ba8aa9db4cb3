"""Samplers of latent Gaussian models, assembled.

Every builder returns an ordinary `tfp.mcmc.TransitionKernel`:

  DualAveragingStepSizeAdaptation   TFP's; learns delta, then freezes it
   └ MetropolisHastings             accepts or rejects
      └ Uncalibrated...             proposes, in the prior's coordinates

The target is exp f(x) N(x | mean, C): f is `log_likelihood_fn`, the prior an
`interfaces.GaussianPrior` from `tfpa.gaussian_priors`. `target_log_prob` in
their results is f, without the prior.
"""

import tensorflow_probability as tfp

from tfp_adaptive.internal.metropolis_hastings import MetropolisHastings
from tfp_adaptive.proposals import UncalibratedAuxiliaryGradient
from tfp_adaptive.proposals import UncalibratedCrankNicolson
from tfp_adaptive.proposals import UncalibratedMarginalGradient
from tfp_adaptive.proposals import UncalibratedPriorLangevin

__all__ = [
  'auxiliary_gradient',
  'crank_nicolson',
  'marginal_gradient',
  'prior_preconditioned_langevin',
]


def marginal_gradient(
  log_likelihood_fn,
  prior,
  num_adaptation_steps,
  target_accept_prob=0.55,
  step_size=0.1,
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
  )


def auxiliary_gradient(
  log_likelihood_fn,
  prior,
  num_adaptation_steps,
  auxiliary='z',
  target_accept_prob=0.55,
  step_size=0.1,
):
  """Builds an auxiliary gradient sampler (aGrad-z, aGrad-u).

  Args:
    log_likelihood_fn: As in `marginal_gradient`.
    prior: As in `marginal_gradient`.
    num_adaptation_steps: Steps that tune delta; after them it is fixed.
    auxiliary: `'z'` or `'u'`: the variable that a move is conditioned on.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    step_size: First delta, a variance in units of the state.

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
  )


def crank_nicolson(
  log_likelihood_fn,
  prior,
  num_adaptation_steps,
  langevin=False,
  preconditioned=True,
  target_accept_prob=None,
  step_size=0.1,
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
  )


def prior_preconditioned_langevin(
  log_likelihood_fn,
  prior,
  num_adaptation_steps,
  target_accept_prob=0.55,
  step_size=0.01,
):
  """Builds MALA preconditioned by the prior covariance (pMALA), a baseline.

  Args:
    log_likelihood_fn: As in `marginal_gradient`.
    prior: As in `marginal_gradient`.
    num_adaptation_steps: Steps that tune delta; after them it is fixed.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    step_size: First delta, without unit.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  References:
    Titsias and Papaspiliopoulos (2018), section 3.2,
    https://arxiv.org/abs/1610.09641.
  """
  return _adapted(
    UncalibratedPriorLangevin(log_likelihood_fn, prior, step_size),
    num_adaptation_steps,
    target_accept_prob,
  )


def _adapted(proposal, num_adaptation_steps, target_accept_prob):
  """Puts Metropolis-Hastings and TFP's dual averaging around a proposal."""
  return tfp.mcmc.DualAveragingStepSizeAdaptation(
    MetropolisHastings(proposal),
    num_adaptation_steps=num_adaptation_steps,
    target_accept_prob=target_accept_prob,
  )
