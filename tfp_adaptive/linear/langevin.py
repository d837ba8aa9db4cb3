"""Preconditioned Langevin proposal: y = x + 1/2 C C^T g(x) + C noise.

Source: Titsias and Dellaportas (2019), Gradient-based adaptive Markov chain
Monte Carlo, section 2.3, https://arxiv.org/abs/1911.01373.
"""

import collections

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import proposal
from tfp_adaptive.core import random
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import short_steps
from tfp_adaptive.core import state_parts
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.interfaces import types
from tfp_adaptive.linear import checks
from tfp_adaptive.linear import control_variates
from tfp_adaptive.linear import hessian_product
from tfp_adaptive.linear import optimizers
from tfp_adaptive.linear.criteria.generalized_speed_measure import default_rule
from tfp_adaptive.linear.criteria.generalized_speed_measure import (
  generalized_speed_measure,
)
from tfp_adaptive.linear.gradient_adaptation import GradientBasedAdaptation
from tfp_adaptive.preconditioners.per_part import as_preconditioner


@arguments.by_keyword('gradient_adaptive_langevin(target_log_prob_fn, 500)')
def gradient_adaptive_langevin(
  target_log_prob_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  preconditioner: types.Preconditioners | None = None,
  exact_gradient: bool = False,
  criterion: interfaces.Criterion | None = None,
  optimizer: interfaces.Optimizer | None = None,
  target_accept_prob: float = 0.55,
  short_step_share: float | None = None,
  experimental_shard_axis_names: types.Structure = None,
  name: str | None = None,
) -> tfp.mcmc.TransitionKernel:
  """Builds MALA whose covariance is learned by gradient (gadMALA).

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable, called as
      TFP calls it; returns [chains...].
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    preconditioner: Structure of the scale factor, or a list with one for each
      part of the state; dense by default.
    exact_gradient: Whether to differentiate through the gradient at the
      proposal, with one Hessian-vector product per adapting step (gadMALAe).
      The fast form (gadMALAf) holds this gradient constant.
    criterion: What to maximize; the generalized speed measure by default.
    optimizer: How the factor moves; `relative_gradient` by default.
    target_accept_prob: Wanted mean acceptance, in (0, 1), of the steps that are
      not short.
    short_step_share: Share of steps, in [0, 1), that are 0.1 to 1 times as
      long, at random. Short steps bring chains out of narrow regions. By
      default a fifth if the adaptation finds such regions, else none.
    experimental_shard_axis_names: As in TFP; the same for all parts.
    name: Prefix of the names of bootstrap ops.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the target or a part has the wrong type.
    ValueError: If a number is out of its range, or parts do not go together.

  References:
    Titsias and Dellaportas (2019), section 2.3,
    https://arxiv.org/abs/1911.01373.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(target.log_prob, 500)
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
  """
  # The exact gradient is noisier, and a smaller gain averages more.
  gain = 2.0 if exact_gradient else 4.0
  optimizer = optimizer or optimizers.relative_gradient(gain)
  checks.check_optimizer(optimizer)
  uncalibrated = UncalibratedPreconditionedLangevin(
    target_log_prob_fn,
    as_preconditioner(preconditioner),
    exact_gradient=exact_gradient,
    experimental_shard_axis_names=experimental_shard_axis_names,
    name=name,
  )
  return GradientBasedAdaptation(
    short_steps.around(
      MetropolisHastings(uncalibrated), num_adaptation_steps, short_step_share
    ),
    criterion
    or generalized_speed_measure(
      target_accept_prob, default_rule(optimizer), bound_log_ratio=True
    ),
    optimizer,
    num_adaptation_steps,
  )


# s C^T g at both ends of the step, [chains..., d].
Pulls = collections.namedtuple('Pulls', ['start', 'end'])


class UncalibratedPreconditionedLangevin(proposal.UncalibratedProposal):
  """Proposes along the gradient, with the scale factor C of a preconditioner.

  With s = step_size, e ~ N(0, I) and g the gradient of the log target,

    y = x + 1/2 s^2 C C^T g(x) + s C e
    log q(x|y) - log q(y|x) = -1/2 (|1/2 s C^T (g(x) + g(y)) + e|^2 - |e|^2)

  One step makes one gradient call and three products with C, none with its
  inverse. Put `MetropolisHastings` around this kernel. The proposal of
  `linear/hamiltonian.py` with one leapfrog step must stay equal to this one.
  """

  uses_gradient = True

  def __init__(
    self,
    target_log_prob_fn,
    preconditioner,
    step_size=1.0,
    exact_gradient=False,
    experimental_shard_axis_names=None,
    name=None,
  ):
    """Builds the kernel; no Tensor is created here.

    Args:
      target_log_prob_fn: As in TFP.
      preconditioner: An `interfaces.Preconditioner`.
      step_size: Multiplies C.
      exact_gradient: Whether a replay differentiates through g(y) too, with one
        Hessian-vector product. With False, g(y) is constant, and the gradient
        has less noise and a small bias.
      experimental_shard_axis_names: As in TFP; the same for all parts.
      name: Prefix of the names of bootstrap ops.
    """
    super().__init__(
      target_log_prob_fn,
      preconditioner,
      step_size,
      experimental_shard_axis_names,
      name,
    )
    self._parameters['exact_gradient'] = exact_gradient

  def cost(self, adapting):
    """Returns the cost of a step; if adapting, with its replay."""
    exact = adapting and self._parameters['exact_gradient']
    # A step makes 3 products with C: the pulls at x and y, and the push. A
    # replay makes 4, and its derivative 1, or 4 if it is exact.
    products = 3
    if adapting:
      products += 8 if exact else 5
    return interfaces.Cost(1, 1, int(exact), products)

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Draws y; the results carry its log density, gradient and correction."""
    previous = previous_kernel_results
    num_chain_dims = ps.rank(previous.target_log_prob)
    seed = random.sanitize(seed)
    x = state_parts.flatten(current_state, num_chain_dims)
    grad_x = state_parts.flatten(previous.grads_target_log_prob, num_chain_dims)
    factor = self._factor(previous)

    # 1. Draw and move.
    noise = self._draw_noise(x, seed)
    pull_x = factor.apply_adjoint(grad_x)
    y = x + factor.apply(noise + 0.5 * pull_x)

    # 2. Evaluate the target where the proposal landed.
    proposed_state = state_parts.unflatten_like(
      y, current_state, num_chain_dims
    )
    log_prob, grads = state_parts.value_and_gradient(
      self.target_log_prob_fn, proposed_state
    )

    # 3. Correct for the asymmetry of the proposal.
    grad_y = state_parts.flatten(grads, num_chain_dims)
    pull_y = factor.apply_adjoint(grad_y)
    return proposed_state, previous._replace(
      target_log_prob=log_prob,
      grads_target_log_prob=grads,
      log_acceptance_correction=self._correction(pull_x, pull_y, noise),
      noise=noise,
      trajectory=Pulls(pull_x, pull_y),
      seed=seed,
    )

  def _init_trajectory(self, flat):
    return Pulls(tf.zeros_like(flat), tf.zeros_like(flat))

  def init_replay_cache(self, proposed_results):
    """Returns 0, the first `control_variates.mean_slope`; `[]` if exact."""
    if self._parameters['exact_gradient']:
      return []
    return tf.zeros([], proposed_results.noise.dtype)

  def replay(self, cache, previous, proposed, proposed_state, mh_results):
    """Returns the step just taken as a function of the scale factor.

    log pi(y) is replaced by g(y) . y with a constant g(y). This term has the
    exact derivative with respect to C, and needs no target call. Only the exact
    form of the gradient adds a Hessian product.
    """
    num_chain_dims = ps.rank(previous.target_log_prob)
    grad_x = state_parts.flatten(previous.grads_target_log_prob, num_chain_dims)
    grad_y = state_parts.flatten(proposed.grads_target_log_prob, num_chain_dims)
    is_finite = tf.math.is_finite(mh_results.log_accept_ratio) & tf.reduce_all(
      tf.math.is_finite(grad_x) & tf.math.is_finite(grad_y), axis=-1
    )

    def kept(rows):
      return tf.where(is_finite[..., tf.newaxis], rows, 0.0)

    grad_x, grad_y = kept(grad_x), kept(grad_y)
    value = tf.where(is_finite, mh_results.log_accept_ratio, 0.0)

    pull_x, pull_y = map(kept, proposed.trajectory)
    noise = proposed.noise

    def transition(factor):
      factor = scale_factor.scaled(factor, proposed.step_size)
      live_x = factor.apply_adjoint(grad_x)
      live_y = factor.apply_adjoint(grad_y)
      push = noise + 0.5 * live_x
      displacement = factor.apply(push)
      # g(y) . C v is computed as (C^T g(y)) . v, without a product with C.
      fit = self.event_sum(live_y * push)
      if self._parameters['exact_gradient']:
        end = factor.apply_adjoint(
          hessian_product.live_gradient(
            self.target_log_prob_fn, proposed_state, grad_y, displacement
          )
        )
        change = fit + self._correction(live_x, end, noise)
        variate = control_variates.state_balance(
          value, live_x, live_y, self.event_sum
        )
      else:
        change, variate = self._fast_change(
          factor, cache, value, grad_x - grad_y, (pull_x, pull_y), noise
        )
      return interfaces.Transition(
        log_accept_ratio=value + change - tf.stop_gradient(change),
        proposal_entropy=factor.log_abs_det,
        log_jacobian=tf.zeros_like(value),
        displacement=displacement,
        proposed_log_prob=fit - tf.stop_gradient(fit),
        control_variate=variate,
        is_finite=is_finite,
        is_accepted=mh_results.is_accepted,
      )

    next_cache = cache
    if not self._parameters['exact_gradient']:
      next_cache = control_variates.mean_slope(
        cache, value, pull_x, pull_y, noise
      )
    return interfaces.Replay(transition=transition, cache=next_cache)

  def _fast_change(self, factor, slope, ratio, grad_change, pulls, noise):
    """Returns a term with the gradient of the log ratio, and control variates.

    With g(x) and g(y) constant, the term has the gradient of
    `fit + self._correction(...)` at the present C. The term uses C only in
    C^T (g(x) - g(y)), so its gradient is one outer product instead of two. This
    holds for normal noise only. A subclass with other noise must override this
    method, or take the exact gradient.
    """
    difference = pulls[0] - pulls[1]
    live = factor.apply_adjoint(grad_change)
    change = -0.5 * self.event_sum(live * (noise + 0.5 * difference))
    return change, control_variates.fast_control_variate(
      slope, factor, ratio, live, pulls, noise, self.event_sum
    )

  def _correction(self, pull_x, pull_y, noise):
    """Returns log q(x | y) - log q(y | x), multiplied out for normal noise."""
    half = 0.5 * (pull_x + pull_y)
    return -0.5 * self.event_sum(half * (half + 2.0 * noise))
