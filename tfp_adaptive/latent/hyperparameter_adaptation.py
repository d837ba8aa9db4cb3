"""Fits the steps of hyperparameters theta to their covariance in the chains.

    mu_t = (1 - w_t) mu_{t-1} + w_t theta_t,   w_t = 2 / (t + 2)
    S_t  = (1 - w_t) S_{t-1} + w_t (theta_t - mu_{t-1}) (theta_t - mu_{t-1})^T
    L L^T = S_t + (tr S_t / d) max(n_0 / (t B), d^2 eps) I,
            scaled to det L = 1

for d hyperparameters and B chains, over which terms are averaged. I counts as
n_0 states. Without d^2 eps, where eps is the spacing of floats at 1, a singular
S_t would have no Cholesky factor after many steps. A step of theta is
kappa L e with e ~ N(0, I). kappa is tuned by another wrapper.

Source: Haario, Saksman and Tamminen (2001), An adaptive Metropolis algorithm.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import arguments
from tfp_adaptive.core import short_steps
from tfp_adaptive.core import stack
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import step_sizes
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.interfaces import types
from tfp_adaptive.latent import latent_proposal
from tfp_adaptive.latent.auxiliary_gradient import UncalibratedAuxiliaryGradient
from tfp_adaptive.latent.crank_nicolson import UncalibratedCrankNicolson
from tfp_adaptive.latent.elliptical_slice import EllipticalSlice
from tfp_adaptive.latent.hyperparameters import LatentGaussianHyperparameters
from tfp_adaptive.latent.marginal_gradient import UncalibratedMarginalGradient

# w_t = 2 / (t + 2) gives the mean with weights proportional to t, which forgets
# the start of the chain.
_GAIN = 2.0
# n_0 / d, the weight of the identity in states per hyperparameter. This weight
# is large because the first states of a chain are strongly dependent.
_PRIOR_STATES = 5.0
# A distance from mu below this many units in the last place is a rounding error
# of mu.
_ROUNDING = 8.0


class HyperparameterAdaptationResults(NamedTuple):
  """Results of `HyperparameterAdaptation`."""

  # Results of the inner kernel; L is their innermost `hyper_factor`.
  inner_results: Any
  hyper_mean: tf.Tensor  # Running mean mu of unconstrained theta, [num_hyper].
  hyper_covariance: tf.Tensor  # Running covariance S, [num_hyper, num_hyper].
  step: tf.Tensor  # Steps taken, [] int32.


class HyperparameterAdaptation(adaptation_base.AdaptationWrapper):
  """Learns the shape L of the steps of hyperparameters.

  Amplitude and length scale of a field lie on a narrow ridge, where steps of
  one size in all directions are either rejected or short. The determinant of L
  stays 1, so that kappa remains the geometric mean standard deviation of a
  step. An outer wrapper can tune kappa at the same time.
  """

  def __init__(self, inner_kernel, num_adaptation_steps, name=None):
    """Builds the wrapper; no Tensor is created here.

    Args:
      inner_kernel: `tfpa.proposals.LatentGaussianHyperparameters`.
      num_adaptation_steps: Steps that adapt, a non-negative int; then L is
        fixed.
      name: Prefix of op names.
    """
    arguments.check_num_adaptation_steps(num_adaptation_steps)
    if stack.first_with(inner_kernel, 'constrain') is None:
      raise ValueError(
        'No kernel inside `inner_kernel` moves hyperparameters. Wrap '
        '`tfpa.proposals.LatentGaussianHyperparameters`; got '
        f'{type(inner_kernel).__name__}.'
      )
    self._keep(locals())

  def bootstrap_results(self, init_state):
    """Starts mu at the chains' mean and S at zero."""
    inner = self.inner_kernel.bootstrap_results(init_state)
    mean = tf.reduce_mean(_rows(init_state, inner), axis=0)
    return HyperparameterAdaptationResults(
      inner_results=inner,
      hyper_mean=mean,
      hyper_covariance=tf.zeros_like(mean[:, tf.newaxis] * mean),
      step=tf.zeros([], tf.int32),
    )

  def _is_adapting(self, previous, inner):
    """Returns whether this step adapts; short steps adapt, too."""
    del inner
    return previous.step < self.num_adaptation_steps

  def _adapt(self, states, previous_inner, results):
    """Updates mu, S and L with one state of every chain."""
    del previous_inner
    inner = results.inner_results
    mean, covariance, factor = _adapted(
      results.hyper_mean,
      results.hyper_covariance,
      _rows(states[1], inner),
      results.step,
    )
    return results._replace(
      inner_results=tfp_private.replace_innermost(inner, hyper_factor=factor),
      hyper_mean=mean,
      hyper_covariance=covariance,
    )


def _adapted(mean, covariance, rows, step):
  """Returns mu, S and L after the states `rows`, [num_chains, num_hyper]."""
  dtype = rows.dtype
  step = tf.cast(step, dtype)
  num_chains, num_hyper = [
    tf.cast(n, dtype) for n in tf.unstack(tf.shape(rows))
  ]
  weight = _GAIN / (step + _GAIN)
  centered = rows - mean
  eps = np.finfo(dtype.as_numpy_dtype).eps
  is_moved = tf.abs(centered) > _ROUNDING * eps * tf.abs(mean)
  centered = tf.where(is_moved, centered, 0.0)
  moment = tf.matmul(centered, centered, transpose_a=True) / num_chains
  covariance += weight * (moment - covariance)

  variance = tf.linalg.trace(covariance) / num_hyper
  least = num_hyper**2 * eps
  # The variance is zero until a move is accepted. A ridge that is not a normal
  # float would be flushed to zero.
  is_fixed = least * variance < np.finfo(dtype.as_numpy_dtype).tiny
  shrinkage = _PRIOR_STATES * num_hyper / (step * num_chains)
  shrinkage = tf.maximum(shrinkage, least)
  factor = tf.linalg.cholesky(
    covariance
    + tf.where(is_fixed, tf.ones_like(variance), shrinkage * variance)
    * tf.eye(ps.shape(rows)[-1], dtype=dtype)
  )
  log_scale = tf.reduce_mean(tf.math.log(tf.linalg.diag_part(factor)))
  return (
    mean + weight * tf.reduce_mean(centered, axis=0),
    covariance,
    factor * tf.exp(-log_scale),
  )


def _rows(state, inner):
  """Returns unconstrained theta of every chain, [num_chains, num_hyper]."""
  _, theta = tf.nest.map_structure(tf.convert_to_tensor, state)
  hyper_log_prob = tfp_private.get_innermost(inner, 'hyper_log_prob')
  return state_parts.as_rows(
    state_parts.flatten(theta, ps.rank(hyper_log_prob))
  )


def _under_metropolis_hastings(proposal, **options):
  return lambda *args: MetropolisHastings(proposal(*args, **options))


# name -> (log_likelihood_fn, prior, delta) -> kernel of a latent field.
_LATENT_KERNELS = dict(
  auxiliary_gradient=_under_metropolis_hastings(UncalibratedAuxiliaryGradient),
  marginal_gradient=_under_metropolis_hastings(UncalibratedMarginalGradient),
  crank_nicolson_langevin=_under_metropolis_hastings(
    UncalibratedCrankNicolson, langevin=True
  ),
  elliptical_slice=EllipticalSlice,
)


@arguments.by_keyword(
  'latent_gaussian_hyperparameters(log_likelihood_fn, 500, '
  'prior_fn=prior_fn, hyperprior=hyperprior)'
)
def latent_gaussian_hyperparameters(
  log_likelihood_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  prior_fn: Callable[..., interfaces.GaussianPrior],
  hyperprior: tfp.distributions.Distribution | types.LogProbFn,
  joint: bool = True,
  latent: str = 'auxiliary_gradient',
  num_latent_updates: int = 1,
  target_accept_prob: float = 0.55,
  hyper_target_accept_prob: float = 0.25,
  delta: float = 0.1,
  hyper_step_size: float = 0.1,
  bijector: tfp.bijectors.Bijector | None = None,
  short_step_share: float = 0.2,
  name: str | None = None,
) -> tfp.mcmc.TransitionKernel:
  """Builds a sampler of a latent field and its prior's hyperparameters.

  The state is `(x, theta)` with unconstrained theta. The hyperprior's default
  bijector, or `bijector`, maps theta to the argument of `prior_fn`.

  Args:
    log_likelihood_fn: f, see `marginal_gradient`.
    num_adaptation_steps: Steps that tune delta and kappa and learn L, which are
      then fixed. A step of unconstrained theta is kappa L e.
    prior_fn: theta -> `interfaces.GaussianPrior`; theta has chain dimensions,
      and so must the prior's params. The prior is decomposed once in a step. If
      the prior is dense, call `tfpa.sample` with `jit_compile=False` on a CPU,
      because XLA decomposes slowly there.
    hyperprior: A `tfp.distributions.Distribution` of theta, joint or not, or
      the log density of unconstrained theta, a function that returns
      [chains...].
    joint: Whether theta moves together with x, given a noisy copy of x
      (aGrad-z-joint). Otherwise theta moves at fixed x (Gibbs). Gibbs moves are
      slower by an order of magnitude or more, and C must have an inverse.
    latent: Sampler of x at fixed theta: `'auxiliary_gradient'`, and for
      `joint=False` also `'marginal_gradient'`, `'crank_nicolson_langevin'` or
      `'elliptical_slice'`.
    num_latent_updates: Updates of x in a step.
    target_accept_prob: Wanted mean acceptance of x, in (0, 1).
    hyper_target_accept_prob: Wanted mean acceptance of theta, in (0, 1).
    delta: First value, a variance in squared units of the state.
    hyper_step_size: First kappa, the standard deviation of a step of
      unconstrained theta; L starts as the identity.
    bijector: Unconstrained theta -> theta; by default the hyperprior's own, or
      the identity if `hyperprior` is a function.
    short_step_share: See `marginal_gradient`; not used by `'elliptical_slice'`.
    name: Prefix of the names of bootstrap ops.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the likelihood or the prior has the wrong type.
    ValueError: If a number is out of its range, or the prior does not suit the
      sampler.

  References:
    Titsias and Papaspiliopoulos (2018), section 4,
    https://arxiv.org/abs/1610.09641.

  Example:
    log_likelihood = lambda x: tf.reduce_sum(2.0 * x - tf.exp(x), axis=-1)
    kernel = tfpa.latent_gaussian_hyperparameters(
      log_likelihood,
      prior_fn=lambda scale: tfpa.gaussian_priors.random_walk(scale, 50, 1.0),
      hyperprior=tfp.distributions.LogNormal(-2.0, 0.5),
      num_adaptation_steps=500,
    )
    result = tfpa.sample(kernel, (tf.zeros([4, 50]), tf.zeros([4])), 500)
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
    delta=delta,
    hyper_step_size=hyper_step_size,
    bijector=bijector,
    latent_uses_gradient=latent != 'elliptical_slice',
    name=name,
  )
  has_step_size = latent != 'elliptical_slice'
  if has_step_size:
    kernel = latent_proposal.with_short_steps(
      kernel, num_adaptation_steps, short_step_share
    )
  kernel = step_sizes.tuned(
    HyperparameterAdaptation(kernel, num_adaptation_steps),
    num_adaptation_steps,
    hyper_target_accept_prob,
    'hyper_step_size',
    'hyper_log_accept_ratio',
  )
  if not has_step_size:
    return kernel
  return step_sizes.tuned(kernel, num_adaptation_steps, target_accept_prob)
