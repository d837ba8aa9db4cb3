"""The samplers of four papers, with the constants that they print.

The builders of the library have been improved since; `docs/results` has the
comparisons. The docstring of each sampler here says what differs from the paper
or from the authors' code.

  gadrwm, gadmala, adaptive_metropolis
      Titsias and Dellaportas (2019), Gradient-based adaptive Markov chain
      Monte Carlo, https://arxiv.org/abs/1911.01373.
  entropy_hmc
      Hirt, Titsias and Dellaportas (2021), Entropy-based adaptive Hamiltonian
      Monte Carlo, https://arxiv.org/abs/2110.14625.
  kmc
      Strathmann et al. (2015), Gradient-free Hamiltonian Monte Carlo with
      efficient kernel exponential families, https://arxiv.org/abs/1506.02564.
  agrad, mgrad, pcn, pcnl
      Titsias and Papaspiliopoulos (2018), Auxiliary gradient-based sampling
      algorithms, https://arxiv.org/abs/1610.09641.
"""

from typing import Literal

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.interfaces import types
from tfp_adaptive.latent.auxiliary_gradient import auxiliary_gradient
from tfp_adaptive.latent.crank_nicolson import crank_nicolson
from tfp_adaptive.latent.marginal_gradient import marginal_gradient
from tfp_adaptive.linear import adaptive_metropolis as am
from tfp_adaptive.linear import criteria
from tfp_adaptive.linear import optimizers
from tfp_adaptive.linear.hamiltonian import entropy_adaptive_hamiltonian
from tfp_adaptive.linear.langevin import gradient_adaptive_langevin
from tfp_adaptive.linear.random_walk import gradient_adaptive_random_walk
from tfp_adaptive.preconditioners.cholesky import cholesky
from tfp_adaptive.preconditioners.diagonal import diagonal
from tfp_adaptive.surrogate import models as surrogates
from tfp_adaptive.surrogate.adaptation import ScoreMatchingAdaptation
from tfp_adaptive.surrogate.kernel_hamiltonian import (
  UncalibratedSurrogateHamiltonian,
)

__all__ = [
  'adaptive_metropolis',
  'agrad',
  'entropy_hmc',
  'gadmala',
  'gadrwm',
  'kmc',
  'mgrad',
  'pcn',
  'pcnl',
]

_MIN_SCALE = 1e-3  # Least diagonal entry of the factor, in the authors' code.


def _first_scale(event_size):
  return 0.1 * event_size**-0.5


@arguments.by_keyword('papers.gadrwm(target_log_prob_fn, 20_000)')
def gadrwm(
  target_log_prob_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  target_accept_prob: float = 0.25,
  learning_rate: float = 5e-5,
  preconditioner: types.Preconditioners | None = None,
  criterion: interfaces.Criterion | None = None,
) -> tfp.mcmc.TransitionKernel:
  """Builds gadRWM of Titsias and Dellaportas (2019), Tables 1 to 6.

  It is Algorithm 1 with the proposal of section 2.2.

  Args:
    target_log_prob_fn: See `gradient_adaptive_random_walk`.
    num_adaptation_steps: Steps that adapt, 20,000 in the paper.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    learning_rate: eta of RMSProp, section 4.
    preconditioner: L; by default dense. It starts at (0.1 / sqrt(d)) I, and its
      diagonal is at least 1e-3 as in the authors' code.
    criterion: The generalized speed measure by default.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the target or a part has the wrong type.
    ValueError: If a number is out of its range.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.papers.gadrwm(target.log_prob, 500)
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
  """
  return gradient_adaptive_random_walk(
    target_log_prob_fn,
    num_adaptation_steps,
    preconditioner=preconditioner or _dense_factor(),
    criterion=criterion or _speed_measure(target_accept_prob),
    optimizer=optimizers.rmsprop(learning_rate),
    target_accept_prob=target_accept_prob,
  )


@arguments.by_keyword('papers.gadmala(target_log_prob_fn, 20_000)')
def gadmala(
  target_log_prob_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  exact_gradient: bool = False,
  target_accept_prob: float = 0.55,
  learning_rate: float = 1.5e-4,
  preconditioner: types.Preconditioners | None = None,
  criterion: interfaces.Criterion | None = None,
  short_step_share: float = 0.0,
) -> tfp.mcmc.TransitionKernel:
  """Builds gadMALAf, gadMALAe of Titsias and Dellaportas (2019), Tables 1 to 7.

  It is Algorithm 1 with the proposal of section 2.3.

  Args:
    target_log_prob_fn: See `gradient_adaptive_langevin`.
    num_adaptation_steps: Steps that adapt: 20,000 in the paper, 50,000 in
      Table 7.
    exact_gradient: Whether to build gadMALAe, which differentiates through the
      gradient at the proposal.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    learning_rate: eta of RMSProp, section 4; 1e-5 for the 785 weights of
      Table 7.
    preconditioner: L; by default dense. It starts at (0.1 / sqrt(d)) I, and its
      diagonal is at least 1e-3 as in the authors' code.
    criterion: The generalized speed measure by default.
    short_step_share: Share of shorter steps, 0 in the paper.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the target or a part has the wrong type.
    ValueError: If a number is out of its range.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.papers.gadmala(target.log_prob, 500)
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
  """
  return gradient_adaptive_langevin(
    target_log_prob_fn,
    num_adaptation_steps,
    preconditioner=preconditioner or _dense_factor(),
    exact_gradient=exact_gradient,
    criterion=criterion or _speed_measure(target_accept_prob),
    optimizer=optimizers.rmsprop(learning_rate),
    target_accept_prob=target_accept_prob,
    short_step_share=short_step_share,
  )


@arguments.by_keyword('papers.adaptive_metropolis(target_log_prob_fn, 20_000)')
def adaptive_metropolis(
  target_log_prob_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  target_accept_prob: float = 0.25,
  target_is_stochastic: bool = False,
) -> tfp.mcmc.TransitionKernel:
  """Builds AM, the baseline in Tables 1 to 6 of Titsias and Dellaportas (2019).

  The factor moves as in supplement B, L <- L + rho L [w w^T - I]_lower with
  w = L^-1 (x - mu) and the running mean mu. The rate rho = 5e-4 / (1 + 4 t /
  num_adaptation_steps) and the scale s of the noise are those of the authors'
  code. The paper prints twice that rate and no s. Here mu is updated after the
  factor, and in the authors' code before the factor.

  Args:
    target_log_prob_fn: See `tfpa.adaptive_metropolis`.
    num_adaptation_steps: Steps that adapt, 20,000 in the paper.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    target_is_stochastic: See `tfpa.adaptive_metropolis`.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the target has the wrong type.
    ValueError: If a number is out of its range.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.papers.adaptive_metropolis(target.log_prob, 500)
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
  """
  own = _dense_factor()

  # The library's move changes entries below the diagonal by twice as much.
  def move(factor, tangent):
    lower = tf.linalg.band_part(tangent, -1, 0)
    return own.project(factor + tf.matmul(factor, lower))

  return am.adaptive_metropolis(
    target_log_prob_fn,
    num_adaptation_steps,
    preconditioner=own._replace(move=move),
    target_accept_prob=target_accept_prob,
    target_is_stochastic=target_is_stochastic,
    shape_rate=1e-3,
  )


@arguments.by_keyword(
  'papers.entropy_hmc(target_log_prob_fn, 20_000, num_leapfrog_steps=5)'
)
def entropy_hmc(
  target_log_prob_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  num_leapfrog_steps: types.NumSteps,
  target_accept_prob: float = 0.67,
  learning_rate: float = 1e-3,
  clip_value: float | None = None,
  entropy_weight_rate: float = 0.1,
  penalty_threshold: float = 0.75,
  preconditioner: types.Preconditioners | None = None,
  criterion: interfaces.Criterion | None = None,
  hessian_product: Literal['autodiff', 'finite_difference'] = 'autodiff',
) -> tfp.mcmc.TransitionKernel:
  """Builds GSM HMC of Hirt, Titsias and Dellaportas (2021), Tables 1 and 2.

  It is Algorithm 1 with equations (13) and (15). As in the authors' code, the
  first n_0 = 3 terms of the log-det series are always computed, and the weight
  gamma of the penalty changes in proportion to gamma. The authors' code differs
  in a random first factor, no momentum of Adam for stochastic volatility, a
  wanted acceptance of 0.65 and a lower bound of 1e-3 for beta.

  Args:
    target_log_prob_fn: See `entropy_adaptive_hamiltonian`.
    num_adaptation_steps: Steps that adapt.
    num_leapfrog_steps: L, or a pair (fewest, most).
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    learning_rate: Rate of Adam, which the paper leaves open. The authors' code
      has 0.05 for the ill-conditioned Gaussian and stochastic volatility, 1e-3
      for the other Gaussians, and 1e-4 for the regressions, the Cox process and
      the banana.
    clip_value: Largest size of an entry of the gradient, summed over chains.
      The paper has none. The authors' code has 1000 for the Gaussians, 10,000
      for the regressions and the Cox process, and 50 for stochastic volatility.
    entropy_weight_rate: Rate of beta and of gamma; 0.5 for stochastic
      volatility in the authors' code.
    penalty_threshold: delta; 0.95 for stochastic volatility.
    preconditioner: C; by default dense. It starts at (0.1 / sqrt(d)) I.
    criterion: The generalized speed measure by default.
    hessian_product: See `entropy_adaptive_hamiltonian`.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the target or a part has the wrong type.
    ValueError: If a number is out of its range.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.papers.entropy_hmc(target.log_prob, 500, num_leapfrog_steps=5)
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
  """
  kernel = entropy_adaptive_hamiltonian(
    target_log_prob_fn,
    num_adaptation_steps,
    num_leapfrog_steps=num_leapfrog_steps,
    preconditioner=preconditioner or _dense_factor(),
    criterion=criterion
    or _without_control_variates(
      criteria.generalized_speed_measure(
        target_accept_prob,
        'acceptance',
        entropy_weight_rate=entropy_weight_rate,
        min_entropy_weight=1e-2,
        max_entropy_weight=1e2,
        penalty_threshold=penalty_threshold,
        penalty_weights=(1e4, 1e5),
        penalty_rate=entropy_weight_rate,
      )
    ),
    optimizer=optimizers.adam(learning_rate, clip_value=clip_value),
    target_accept_prob=target_accept_prob,
    hessian_product=hessian_product,
  )
  proposal = kernel.proposal.copy(num_fixed_terms=3)
  return kernel.copy(inner_kernel=MetropolisHastings(proposal))


@arguments.by_keyword('papers.kmc(target_log_prob_fn, 2000)')
def kmc(
  target_log_prob_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  surrogate: interfaces.Surrogate | None = None,
  num_leapfrog_steps: types.NumSteps = (1, 10),
  step_size: float = 0.1,
  history: np.ndarray | None = None,
  target_is_stochastic: bool = False,
) -> tfp.mcmc.TransitionKernel:
  """Builds kernel HMC of Strathmann et al. (2015), Algorithm 1, section 5.

  Momenta have unit scale, step sizes are drawn from [0.01, 0.1] and leapfrog
  steps from 1 to 10, and there are no random-walk steps. Here fits follow a
  geometric schedule and end with the adaptation. The paper refits forever, with
  a falling probability a_t.

  Args:
    target_log_prob_fn: See `kernel_hamiltonian`.
    num_adaptation_steps: Steps that learn.
    surrogate: KMC finite by default; KMC lite is
      `tfpa.surrogates.kernel_exponential_family_lite()`.
    num_leapfrog_steps: L, or a pair (fewest, most).
    step_size: The largest step size; the smallest is a tenth of it.
    history: See `kernel_hamiltonian`.
    target_is_stochastic: See `kernel_hamiltonian`.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the target or the surrogate has the wrong type.
    ValueError: If a number is out of its range.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.papers.kmc(target.log_prob, 500)
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
  """
  proposal = UncalibratedSurrogateHamiltonian(
    target_log_prob_fn,
    surrogate or surrogates.kernel_exponential_family_finite(),
    diagonal(init_scale=1.0),
    num_leapfrog_steps,
    step_size,
    step_size_jitter=(0.1, 1.0),
    walk_share=0.0,
    target_is_stochastic=target_is_stochastic,
  )
  return ScoreMatchingAdaptation(
    MetropolisHastings(proposal),
    num_adaptation_steps,
    history,
    learn_momentum_scale=False,
  )


@arguments.by_keyword('papers.mgrad(log_likelihood_fn, 5000, prior=prior)')
def mgrad(
  log_likelihood_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  prior: interfaces.GaussianPrior,
  target_accept_prob: float = 0.55,
) -> tfp.mcmc.TransitionKernel:
  """Builds mGrad of Titsias and Papaspiliopoulos (2018), equations (12), (13).

  It is Algorithm 3 of the supplement, with two products with the prior's basis
  instead of the paper's three. The paper tunes delta to an acceptance of 50 to
  60 % and does not say how. Here dual averaging tunes delta.

  Args:
    log_likelihood_fn: See `marginal_gradient`.
    num_adaptation_steps: Steps that tune delta.
    prior: See `marginal_gradient`.
    target_accept_prob: Wanted mean acceptance, in (0, 1).

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the likelihood or the prior has the wrong type.
    ValueError: If a number is out of its range.

  Example:
    prior = tfpa.gaussian_priors.random_walk(0.1, 50, initial_scale=1.0)
    log_likelihood = lambda x: tf.reduce_sum(2.0 * x - tf.exp(x), axis=-1)
    kernel = tfpa.papers.mgrad(log_likelihood, 500, prior=prior)
    result = tfpa.sample(kernel, tf.zeros([4, 50]), num_results=500)
  """
  return marginal_gradient(
    log_likelihood_fn,
    num_adaptation_steps,
    prior=prior,
    target_accept_prob=target_accept_prob,
    short_step_share=0.0,
  )


@arguments.by_keyword('papers.agrad(log_likelihood_fn, 5000, prior=prior)')
def agrad(
  log_likelihood_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  prior: interfaces.GaussianPrior,
  auxiliary: Literal['z', 'u'] = 'z',
  target_accept_prob: float = 0.55,
) -> tfp.mcmc.TransitionKernel:
  """Builds aGrad-z or aGrad-u of Titsias and Papaspiliopoulos (2018).

  They are Algorithms 1 and 2 of the supplement. Equations (6) and (7) give the
  acceptance ratio of aGrad-u. Here dual averaging tunes delta.

  Args:
    log_likelihood_fn: See `marginal_gradient`.
    num_adaptation_steps: Steps that tune delta.
    prior: See `marginal_gradient`.
    auxiliary: `'z'` for aGrad-z, `'u'` for aGrad-u.
    target_accept_prob: Wanted mean acceptance, in (0, 1).

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the likelihood or the prior has the wrong type.
    ValueError: If a number is out of its range.

  Example:
    prior = tfpa.gaussian_priors.random_walk(0.1, 50, initial_scale=1.0)
    log_likelihood = lambda x: tf.reduce_sum(2.0 * x - tf.exp(x), axis=-1)
    kernel = tfpa.papers.agrad(log_likelihood, 500, prior=prior, auxiliary='u')
    result = tfpa.sample(kernel, tf.zeros([4, 50]), num_results=500)
  """
  return auxiliary_gradient(
    log_likelihood_fn,
    num_adaptation_steps,
    prior=prior,
    auxiliary=auxiliary,
    target_accept_prob=target_accept_prob,
    short_step_share=0.0,
  )


@arguments.by_keyword('papers.pcnl(log_likelihood_fn, 5000, prior=prior)')
def pcnl(
  log_likelihood_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  prior: interfaces.GaussianPrior,
  target_accept_prob: float = 0.5,
) -> tfp.mcmc.TransitionKernel:
  """Builds pCNL of Titsias and Papaspiliopoulos (2018), equations (2) and (3).

  In the paper, k of equation (3) lacks the term in y . grad f(y). The term is
  added here, because the posterior would otherwise not be invariant. Dual
  averaging tunes delta.

  Args:
    log_likelihood_fn: See `crank_nicolson`.
    num_adaptation_steps: Steps that tune delta.
    prior: See `marginal_gradient`.
    target_accept_prob: Wanted mean acceptance, in (0, 1).

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the likelihood or the prior has the wrong type.
    ValueError: If a number is out of its range.

  Example:
    prior = tfpa.gaussian_priors.random_walk(0.1, 50, initial_scale=1.0)
    log_likelihood = lambda x: tf.reduce_sum(2.0 * x - tf.exp(x), axis=-1)
    kernel = tfpa.papers.pcnl(log_likelihood, 500, prior=prior)
    result = tfpa.sample(kernel, tf.zeros([4, 50]), num_results=500)
  """
  return crank_nicolson(
    log_likelihood_fn,
    num_adaptation_steps,
    prior=prior,
    langevin=True,
    target_accept_prob=target_accept_prob,
    short_step_share=0.0,
  )


@arguments.by_keyword('papers.pcn(log_likelihood_fn, 5000, prior=prior)')
def pcn(
  log_likelihood_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  prior: interfaces.GaussianPrior,
  target_accept_prob: float = 0.3,
) -> tfp.mcmc.TransitionKernel:
  """Builds pCN of Titsias and Papaspiliopoulos (2018), equation (4).

  Here dual averaging tunes delta. The paper wants an acceptance of about 30 %
  (supplement).

  Args:
    log_likelihood_fn: See `crank_nicolson`; it needs no gradient.
    num_adaptation_steps: Steps that tune delta.
    prior: See `marginal_gradient`.
    target_accept_prob: Wanted mean acceptance, in (0, 1).

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the likelihood or the prior has the wrong type.
    ValueError: If a number is out of its range.

  Example:
    prior = tfpa.gaussian_priors.random_walk(0.1, 50, initial_scale=1.0)
    log_likelihood = lambda x: tf.reduce_sum(2.0 * x - tf.exp(x), axis=-1)
    kernel = tfpa.papers.pcn(log_likelihood, 500, prior=prior)
    result = tfpa.sample(kernel, tf.zeros([4, 50]), num_results=500)
  """
  return crank_nicolson(
    log_likelihood_fn,
    num_adaptation_steps,
    prior=prior,
    target_accept_prob=target_accept_prob,
    short_step_share=0.0,
  )


def _speed_measure(target_accept_prob):
  """Returns the criterion of gadRWM and gadMALA, with the 0/1 accept flag."""
  return _without_control_variates(
    criteria.generalized_speed_measure(
      target_accept_prob, 'acceptance', use_accept_flag=True
    )
  )


def _without_control_variates(criterion):
  """Returns the criterion with the plain estimator of its gradient."""

  def value(state, transition):
    zero = tf.zeros_like(transition.log_accept_ratio)
    return criterion.value(state, transition._replace(control_variate=zero))

  return criterion._replace(value=value)


def _dense_factor():
  return cholesky(_first_scale, min_scale=_MIN_SCALE)
