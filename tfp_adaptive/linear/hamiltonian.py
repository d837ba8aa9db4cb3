"""Preconditioned Hamiltonian proposal: L leapfrog steps with scale factor C.

Source: Hirt, Titsias and Dellaportas (2021), Entropy-based adaptive Hamiltonian
Monte Carlo, https://arxiv.org/abs/2110.14625.
"""

from typing import Literal

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import proposal
from tfp_adaptive.core import random
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import state_parts
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.interfaces import types
from tfp_adaptive.linear import checks
from tfp_adaptive.linear import control_variates
from tfp_adaptive.linear import hessian_product as hessian
from tfp_adaptive.linear import log_det
from tfp_adaptive.linear import num_steps
from tfp_adaptive.linear import optimizers
from tfp_adaptive.linear import trajectory
from tfp_adaptive.linear.criteria import generalized_speed_measure
from tfp_adaptive.linear.criteria.generalized_speed_measure import default_rule
from tfp_adaptive.linear.gradient_adaptation import GradientBasedAdaptation
from tfp_adaptive.preconditioners.per_part import as_preconditioner


@arguments.by_keyword(
  'entropy_adaptive_hamiltonian(target_log_prob_fn, 500, num_leapfrog_steps=3)',
)
def entropy_adaptive_hamiltonian(
  target_log_prob_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  num_leapfrog_steps: types.NumSteps,
  preconditioner: types.Preconditioners | None = None,
  criterion: interfaces.Criterion | None = None,
  optimizer: interfaces.Optimizer | None = None,
  target_accept_prob: float = 0.67,
  hessian_product: Literal['autodiff', 'finite_difference'] = 'autodiff',
  experimental_shard_axis_names: types.Structure = None,
  name: str | None = None,
) -> tfp.mcmc.TransitionKernel:
  """Builds HMC whose inverse mass matrix is learned by gradient.

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable (twice if
      L > 1 and `hessian_product='autodiff'`), called as TFP calls it; returns
      [chains...].
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    num_leapfrog_steps: L, the number of gradients of every step, or a pair
      (fewest, most) from which each step draws it. L = 1 gives MALA.
    preconditioner: Structure of the scale factor C, or a list with one for each
      part of the state; dense by default. C C^T is the inverse mass matrix.
    criterion: What to maximize. The default is the generalized speed measure.
      With L > 1 and an optimizer on tangents, such as the default one, its rule
      is `'constraint'`: the greatest entropy at which the acceptance reaches
      `target_accept_prob`. The paper's energy error has no part in it.
    optimizer: How the factor moves; `relative_gradient` by default.
    target_accept_prob: Wanted mean acceptance, in (0, 1). With L > 1 and the
      default optimizer, it is the smallest wanted one. If the entropy is
      greatest at a scale below the one with this acceptance, that smaller scale
      is learned, and more steps are accepted.
    hessian_product: `'autodiff'`, or `'finite_difference'` of gradients for
      targets that are costly or cannot be differentiated twice.
    experimental_shard_axis_names: As in TFP; the same for all parts.
    name: Prefix of the names of bootstrap ops.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the target or a part has the wrong type, or if
      `num_leapfrog_steps` is not given by keyword.
    ValueError: If a number is out of its range, or parts do not go together.

  References:
    Hirt et al. (2021), https://arxiv.org/abs/2110.14625. Their Algorithm 1 is
    `tfpa.papers.entropy_hmc`.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.entropy_adaptive_hamiltonian(
      target.log_prob, 500, num_leapfrog_steps=3
    )
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
  """
  optimizer = optimizer or optimizers.relative_gradient(4.0)
  checks.check_optimizer(optimizer)
  if criterion is None and np.all(np.equal(num_leapfrog_steps, 1)):
    # One leapfrog step has D = 0, so that no log det is needed.
    criterion = generalized_speed_measure(
      target_accept_prob, default_rule(optimizer), bound_log_ratio=True
    )
  elif criterion is None:
    rule = default_rule(optimizer, 'constraint')
    criterion = generalized_speed_measure(
      target_accept_prob, rule, penalty_threshold=0.75
    )
  proposal = UncalibratedPreconditionedHamiltonian(
    target_log_prob_fn,
    as_preconditioner(preconditioner),
    num_leapfrog_steps,
    hessian_product=hessian_product,
    experimental_shard_axis_names=experimental_shard_axis_names,
    name=name,
  )
  return GradientBasedAdaptation(
    MetropolisHastings(proposal), criterion, optimizer, num_adaptation_steps
  )


class UncalibratedPreconditionedHamiltonian(
  num_steps.DrawsNumSteps, proposal.UncalibratedProposal
):
  """Proposes the end of a leapfrog trajectory with inverse mass matrix C C^T.

  In velocities, with s = step_size, v ~ N(0, I) and g the gradient of the log
  target:

    w <- v + 1/2 s C^T g(x)
    L times:  x <- x + s C w;   w <- w + s C^T g(x)   (with s / 2 the last time)
    log ratio = log pi(x_L) - log pi(x) - 1/2 (|w_L|^2 - |v|^2)

  One step makes L gradient calls and 2 L + 1 products with C. L = 1 gives the
  Langevin proposal. Put `MetropolisHastings` around this kernel.
  """

  uses_gradient = True

  def __init__(
    self,
    target_log_prob_fn,
    preconditioner,
    num_leapfrog_steps,
    step_size=1.0,
    hessian_product='autodiff',
    num_fixed_terms=2,
    max_num_leapfrog_steps=None,
    experimental_shard_axis_names=None,
    name=None,
  ):
    """Builds the kernel; no Tensor is created here.

    Args:
      target_log_prob_fn: As in TFP.
      preconditioner: An `interfaces.Preconditioner`.
      num_leapfrog_steps: L, a positive int, or a pair (fewest, most), from
        which every step draws one number for all chains.
      step_size: Multiplies C.
      hessian_product: `'autodiff'` (exact, about three gradients each) or
        `'finite_difference'` (one gradient each), for the proposal's entropy.
      num_fixed_terms: Fewest terms of the series of log det (I + D).
      max_num_leapfrog_steps: Bound of a pair that an adaptation learns; `None`
        if L is not learned.
      experimental_shard_axis_names: As in TFP; the same for all parts.
      name: Prefix of the names of bootstrap ops.

    Raises:
      ValueError: If an argument is not one of those allowed.
    """
    super().__init__(
      target_log_prob_fn,
      preconditioner,
      step_size,
      experimental_shard_axis_names,
      name,
    )
    num_steps.check(num_leapfrog_steps, max_num_leapfrog_steps)
    trajectory.check_hessian_product(hessian_product)
    self._parameters.update(
      num_leapfrog_steps=num_leapfrog_steps,
      hessian_product=hessian_product,
      num_fixed_terms=num_fixed_terms,
      max_num_leapfrog_steps=max_num_leapfrog_steps,
    )

  def cost(self, adapting, mean_num_steps=None):
    """Returns the mean cost of a step; if adapting, with its replay.

    A finite difference counts as a gradient. `mean_num_steps` is the mean L, if
    L is learned.
    """
    steps = mean_num_steps or self.mean_num_steps
    products = gradients = 0.0
    pushes = 2 * steps + 1
    if adapting and self.bounds[1] > 1:
      products, gradients = self._series.mean_cost(
        self._parameters['hessian_product']
      )
      # The replay makes 7 products, and each of the N powers of D makes 2. The
      # series makes N + 1 Hessian products.
      pushes += 5 + 2 * (products + gradients)
    elif adapting:
      pushes += 7
    return interfaces.Cost(
      target=steps + gradients,
      gradient=steps + gradients,
      hessian_vector=products,
      matrix_product=pushes,
    )

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Runs the trajectory; the results carry what a replay needs."""
    previous = previous_kernel_results
    num_chain_dims = ps.rank(previous.target_log_prob)
    seed = random.sanitize(seed)
    x = state_parts.flatten(current_state, num_chain_dims)
    grad_x = state_parts.flatten(previous.grads_target_log_prob, num_chain_dims)
    noise = self._draw_velocity(x, previous, seed)
    end, path = trajectory.run(
      state_parts.of_flat(
        self.target_log_prob_fn, current_state, num_chain_dims
      ),
      self._factor(previous),
      trajectory.Point(x, noise, previous.target_log_prob, grad_x),
      self._draw_num_steps(previous, seed),
    )
    proposed_state, grads = (
      state_parts.unflatten_like(flat, current_state, num_chain_dims)
      for flat in (end.position, end.gradient)
    )
    kinetic = 0.5 * self.event_sum(noise**2 - end.velocity**2)
    return proposed_state, previous._replace(
      target_log_prob=end.log_prob,
      grads_target_log_prob=grads,
      log_acceptance_correction=kinetic,
      noise=noise,
      trajectory=self._taken(previous, path, end.velocity),
      seed=seed,
    )

  def init_replay_cache(self, proposed_results):
    """Returns the first value of `mean_slope`, [], for the control variates."""
    return tf.zeros([], proposed_results.noise.dtype)

  def replay(self, cache, previous, proposed, proposed_state, mh_results):
    """Returns the step just taken as a function of the scale factor.

    With all gradients held constant, the end of the trajectory is quadratic in
    C (Appendix E of the paper). The energy error then needs no target call. The
    entropy, a series of N terms, adds N + 1 Hessian products at the midpoint.
    """
    is_finite, step = self._kept_step(previous, proposed, mh_results)
    ratio = tf.where(is_finite, mh_results.log_accept_ratio, 0.0)
    entropy = self._estimate_log_det(
      previous, proposed, proposed_state, step, is_finite
    )
    # With L = 1 this is MALA, and the control variates of MALA apply.
    pulls = None
    if entropy is None:
      adjoint = self._factor(previous).apply_adjoint
      pulls = adjoint(step.grad_start), adjoint(step.grad_end)

    def transition(factor):
      factor = scale_factor.scaled(factor, proposed.step_size)
      displacement, fit, change = trajectory.change(
        factor, step, self.event_sum
      )
      log_jacobian = eigenvalue = tf.zeros_like(ratio)
      if entropy:
        log_jacobian, eigenvalue = trajectory.log_det(
          factor, step, entropy, cache, self.event_sum
        )
      return interfaces.Transition(
        log_accept_ratio=ratio + change - tf.stop_gradient(change),
        proposal_entropy=factor.log_abs_det + log_jacobian,
        log_jacobian=log_jacobian,
        displacement=displacement,
        proposed_log_prob=fit - tf.stop_gradient(fit),
        control_variate=self._control_variate(
          factor, cache, ratio, step, pulls
        ),
        is_finite=is_finite,
        is_accepted=mh_results.is_accepted,
        jacobian_eigenvalue=eigenvalue,
        num_log_det_terms=entropy.num_terms if entropy else 0,
      )

    if entropy:
      next_cache = trajectory.mean_slope(
        cache, self._factor(previous), step, entropy
      )
    else:
      next_cache = control_variates.mean_slope(cache, ratio, *pulls, step.noise)
    return interfaces.Replay(transition=transition, cache=next_cache)

  def _kept_step(self, previous, proposed, mh_results):
    """Returns which chains did not diverge, and the step, 0 for the others."""
    num_chain_dims = ps.rank(previous.target_log_prob)
    step = trajectory.Step(
      grad_start=state_parts.flatten(
        previous.grads_target_log_prob, num_chain_dims
      ),
      grad_end=state_parts.flatten(
        proposed.grads_target_log_prob, num_chain_dims
      ),
      noise=proposed.noise,
      trajectory=proposed.trajectory,
    )
    is_finite = trajectory.has_converged(step, mh_results.log_accept_ratio)
    return is_finite, trajectory.keep(is_finite, step)

  def _control_variate(self, factor, slope, ratio, step, pulls):
    if not pulls:
      return tf.zeros_like(ratio)
    live = factor.apply_adjoint(step.grad_start - step.grad_end)
    return control_variates.fast_control_variate(
      slope, factor, ratio, live, pulls, step.noise, self.event_sum
    )

  def _init_trajectory(self, flat):
    return trajectory.start_trajectory(flat)

  def _estimate_log_det(
    self, previous, proposed, proposed_state, step, is_finite
  ):
    """Returns the estimate of log det(I + D) at the midpoint; None for L = 1.

    Chains that diverged get D = 0.
    """
    if self.bounds[1] == 1:
      return None
    product = hessian.hessian_product(
      self.target_log_prob_fn,
      proposed_state,
      step.trajectory.midpoint,
      step.trajectory.midpoint_gradient,
      step.noise.shape.rank - 1,
      self._parameters['hessian_product'],
    )
    return log_det.estimate(
      self._factor(previous),
      lambda rows, sizes: tf.where(
        is_finite[..., tf.newaxis], product(rows, sizes), 0.0
      ),
      trajectory.curvature_weight(step.trajectory.num_steps, step.noise.dtype),
      *self._series.draw(step.noise, proposed.seed, self._shard_seed),
    )

  @property
  def _series(self):
    return log_det.Series(self._parameters['num_fixed_terms'])
