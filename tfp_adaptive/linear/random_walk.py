"""Preconditioned random walk proposal: y = x + C noise.

Source: Titsias and Dellaportas (2019), Gradient-based adaptive Markov chain
Monte Carlo, section 2.2, https://arxiv.org/abs/1911.01373.
"""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import proposal
from tfp_adaptive.core import random
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import stochastic_target
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.interfaces import types
from tfp_adaptive.linear import checks
from tfp_adaptive.linear import optimizers
from tfp_adaptive.linear.criteria.generalized_speed_measure import default_rule
from tfp_adaptive.linear.criteria.generalized_speed_measure import (
  generalized_speed_measure,
)
from tfp_adaptive.linear.gradient_adaptation import GradientBasedAdaptation
from tfp_adaptive.preconditioners.per_part import as_preconditioner


@arguments.by_keyword('gradient_adaptive_random_walk(target_log_prob_fn, 500)')
def gradient_adaptive_random_walk(
  target_log_prob_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  preconditioner: types.Preconditioners | None = None,
  criterion: interfaces.Criterion | None = None,
  optimizer: interfaces.Optimizer | None = None,
  target_accept_prob: float = 0.25,
  experimental_shard_axis_names: types.Structure = None,
  name: str | None = None,
) -> tfp.mcmc.TransitionKernel:
  """Builds a random walk whose covariance is learned by gradient (gadRWM).

  Args:
    target_log_prob_fn: Log density up to a constant, called as TFP calls it;
      returns [chains...].
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    preconditioner: Structure of the scale factor, or a list with one for each
      part of the state; dense by default.
    criterion: What to maximize; the generalized speed measure by default.
    optimizer: How the factor moves; `relative_gradient` by default.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    experimental_shard_axis_names: As in TFP; the same for all parts.
    name: Prefix of the names of bootstrap ops.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the target or a part has the wrong type.
    ValueError: If a number is out of its range, or parts do not go together.

  References:
    Titsias and Dellaportas (2019), section 2.2,
    https://arxiv.org/abs/1911.01373.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_random_walk(target.log_prob, 500)
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
  """
  optimizer = optimizer or optimizers.relative_gradient(4.0)
  checks.check_optimizer(optimizer)
  proposal = UncalibratedPreconditionedRandomWalk(
    target_log_prob_fn,
    as_preconditioner(preconditioner),
    experimental_shard_axis_names=experimental_shard_axis_names,
    name=name,
  )
  return GradientBasedAdaptation(
    MetropolisHastings(proposal),
    criterion
    or generalized_speed_measure(target_accept_prob, default_rule(optimizer)),
    optimizer,
    num_adaptation_steps,
  )


class UncalibratedPreconditionedRandomWalk(proposal.UncalibratedProposal):
  """Proposes y = x + step_size * C e with e ~ N(0, I), which is symmetric.

  One step makes one target call and one product with C; an adapting step adds
  one gradient, at y. Put `MetropolisHastings` around this kernel.
  """

  def __init__(
    self,
    target_log_prob_fn,
    preconditioner,
    step_size=1.0,
    target_is_stochastic=False,
    experimental_shard_axis_names=None,
    name=None,
  ):
    """Builds the kernel; no Tensor is created here.

    Args:
      target_log_prob_fn: As in TFP. A stochastic target is also called with
        `seed`, [2] int32, one for all chains.
      preconditioner: An `interfaces.Preconditioner`.
      step_size: Multiplies C.
      target_is_stochastic: Whether the target returns the log of an unbiased
        random estimate of the density. The estimate of an accepted state is
        kept in `target_log_prob` and never drawn again, so that the states have
        the exact distribution. The estimate at the start has the same seed in
        every run. Gradient-based adaptation refuses such a target.
      experimental_shard_axis_names: As in TFP; the same for all parts.
      name: Prefix of the names of bootstrap ops.

    Raises:
      ValueError: If a number or the signature of the target is not allowed.
    """
    super().__init__(
      target_log_prob_fn,
      preconditioner,
      step_size,
      experimental_shard_axis_names,
      name,
      target_is_stochastic,
    )

  def cost(self, adapting):
    return interfaces.Cost(
      target=1 + int(adapting),
      gradient=int(adapting),
      matrix_product=6 if adapting else 1,
    )

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Draws y; the results carry its log density."""
    previous = previous_kernel_results
    num_chain_dims = ps.rank(previous.target_log_prob)
    seed = random.sanitize(seed)
    x = state_parts.flatten(current_state, num_chain_dims)
    factor = scale_factor.at(
      self.preconditioner, previous.preconditioner_params
    )
    noise_seed, target_seed = stochastic_target.split_seed(
      seed, self.target_is_stochastic
    )
    noise = self._draw_noise(x, noise_seed)
    proposed_state = state_parts.unflatten_like(
      x + previous.step_size * factor.apply(noise),
      current_state,
      num_chain_dims,
    )
    log_prob = self._evaluate(
      proposed_state, target_seed, previous.target_log_prob.shape
    )
    return proposed_state, previous._replace(
      target_log_prob=log_prob, noise=noise, seed=seed
    )

  def init_replay_cache(self, proposed_results):
    """Returns 0, which means that the gradient at the state is not known."""
    return tf.zeros_like(proposed_results.noise)

  def replay(self, cache, previous, proposed, proposed_state, mh_results):
    """Returns the step just taken as a function of the scale factor.

    The replay evaluates the gradient at the proposal, which the step did not
    need. The gradient at the current state is cached.
    """
    num_chain_dims = ps.rank(previous.target_log_prob)
    _, grads = state_parts.value_and_gradient(
      self.target_log_prob_fn, proposed_state
    )
    grad_x, grad_y = cache, state_parts.flatten(grads, num_chain_dims)
    is_finite = tf.math.is_finite(mh_results.log_accept_ratio) & tf.reduce_all(
      tf.math.is_finite(grad_y), axis=-1
    )
    grad_y = tf.where(is_finite[..., tf.newaxis], grad_y, 0.0)
    ratio = tf.where(is_finite, mh_results.log_accept_ratio, 0.0)
    balance = _balance(ratio, grad_x, grad_y)

    def change_along(factor, grads):
      # g . C e minus its value, computed as (C^T g) . e.
      pull = proposed.step_size * factor.apply_adjoint(grads)
      return self.event_sum((pull - tf.stop_gradient(pull)) * proposed.noise)

    def transition(factor):
      fit = change_along(factor, grad_y)
      return interfaces.Transition(
        log_accept_ratio=ratio + fit,
        proposal_entropy=factor.log_abs_det,
        log_jacobian=tf.zeros_like(ratio),
        displacement=proposed.step_size * factor.apply(proposed.noise),
        proposed_log_prob=fit,
        control_variate=change_along(factor, balance),
        is_finite=is_finite,
        is_accepted=mh_results.is_accepted,
      )

    return interfaces.Replay(
      transition=transition,
      cache=tf.where(mh_results.is_accepted[..., tf.newaxis], grad_y, grad_x),
    )


def _balance(ratio, grad_x, grad_y):
  """Returns v with E[v e^T] = 0 that cancels most noise of 1{r < 0} g(y) e^T.

  1{r < 0} g(y) e^T is the gradient of min(0, r) in C. Most of its noise is that
  of g(x) e^T. In whitened units, with steps of size l / sqrt(d), this noise has
  entries of size l / sqrt(d), and the mean has entries of size l^2 / d. With
  the logistic function sigma,

    v = sigma(r) (g(y) - g(x)) / 2 - sigma(-r) g(x)
      = sigma(r) (g(x) + g(y)) / 2 - g(x).

  E[v e^T] is 0 in the stationary chain. A swap of x and y turns e into -e and r
  into -r, and multiplies the density of (x, y) by exp(r). This gives
  E[sigma(r) (g(x) + g(y)) e^T] = 0, and E[g(x) e^T] = 0 as well. Near r = 0,
  where 1{r < 0} is 1/2 on average, the mean of 1{r < 0} g(y) + v is a multiple
  of g(y) - g(x).
  """
  accept = tf.sigmoid(ratio)[..., tf.newaxis]
  is_known = tf.reduce_any(grad_x != 0.0, axis=-1, keepdims=True)
  vector = 0.5 * accept * (grad_y - grad_x) - (1.0 - accept) * grad_x
  return tf.where(is_known, vector, 0.0)
