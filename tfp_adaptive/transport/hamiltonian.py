"""Hamiltonian proposal in the coordinates z = f^-1(q) of a learned map f.

Source: Hirt, Titsias and Dellaportas (2021), section 4.5 and Appendix C,
https://arxiv.org/abs/2110.14625.
"""

from typing import Literal

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import proposal
from tfp_adaptive.core import random
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import xla_gradients
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.interfaces import types
from tfp_adaptive.linear import hessian_product as hessian
from tfp_adaptive.linear import kept_momentum
from tfp_adaptive.linear import log_det
from tfp_adaptive.linear import num_steps
from tfp_adaptive.linear import optimizers
from tfp_adaptive.linear import trajectory
from tfp_adaptive.linear.criteria import generalized_speed_measure
from tfp_adaptive.linear.gradient_adaptation import GradientBasedAdaptation
from tfp_adaptive.transport import map_params
from tfp_adaptive.transport import maps as transports
from tfp_adaptive.transport import transported_curvature as curvature
from tfp_adaptive.transport import transported_leapfrog as leapfrog
from tfp_adaptive.transport.adaptation import FisherTransportAdaptation

_DIVERGENCE = 1000.0  # Energy error above which a trajectory has diverged.


@arguments.by_keyword(
  'transport_adaptive_hamiltonian(target_log_prob_fn, 500, '
  'num_leapfrog_steps=3)',
)
def transport_adaptive_hamiltonian(
  target_log_prob_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  num_leapfrog_steps: types.NumSteps | None = None,
  transport: interfaces.Transport | None = None,
  criterion: interfaces.Criterion | None = None,
  optimizer: interfaces.Optimizer | None = None,
  target_accept_prob: float | None = None,
  hessian_product: Literal['autodiff', 'finite_difference'] = 'autodiff',
  step_size: float = 1.0,
  max_num_leapfrog_steps: int | None = None,
  keep_momentum: bool = False,
  name: str | None = None,
) -> tfp.mcmc.TransitionKernel:
  """Builds HMC in the coordinates of a map f that is learned.

  A transport with a `fit`, such as `transports.conditional_gaussian()`, is
  fitted to pairs of states and gradients by the least Fisher divergence. By
  default each step then draws its number of leapfrog steps from a range that is
  learned. `tfpa.sample` makes the fits between blocks of steps. In
  `tfp.mcmc.sample_chain`, which makes no fits, the kernel raises an error. Run
  `tfpa.sample` first, and pass `tfpa.frozen(kernel, run.final_kernel_results)`
  to `sample_chain`, where `run` is the result. Other transports are learned by
  gradient, from trajectories of one length.

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable (twice for
      maps learned by gradient), called as TFP calls it; returns [chains...].
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    num_leapfrog_steps: L, the number of gradients of every step, or a pair
      (fewest, most) from which each step draws it. By default the pair with the
      most effective draws per gradient is learned. A map learned by gradient
      needs one number.
    transport: Form of f; `transports.real_nvp()` by default.
    criterion: What to maximize by gradient; by default the generalized speed
      measure with rule `'acceptance'`, because a transport has no tangent.
    optimizer: Optimizer of the raw params; Adam by default.
    target_accept_prob: Wanted mean acceptance, in (0, 1); 0.8 by default. For a
      map learned by gradient, the smallest wanted acceptance, 0.67 by default.
    hessian_product: `'autodiff'`, or `'finite_difference'` of gradients for
      targets that are costly or cannot be differentiated twice; not used for a
      fitted map.
    step_size: First step size in z; the adaptation changes it, or scales f.
    max_num_leapfrog_steps: Largest number that may be learned; 32 by default.
    keep_momentum: See `fisher_divergence_hamiltonian`; not for a map learned by
      gradient.
    name: Prefix of the names of bootstrap ops.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the target or a part has the wrong type.
    ValueError: If a number is out of its range, missing or not needed, or the
      optimizer works on tangents.

  References:
    Hirt et al. (2021), section 4.5, https://arxiv.org/abs/2110.14625.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.transport_adaptive_hamiltonian(
      target.log_prob, 500, transport=tfpa.transports.conditional_gaussian()
    )
  """
  transport = transport or transports.real_nvp()
  map_params.check(transport)
  if transport.fit is not None:
    map_params.check_fitted(criterion, optimizer)
    first, most = num_steps.resolve(num_leapfrog_steps, max_num_leapfrog_steps)
    proposal = _HAMILTONIANS[bool(keep_momentum)](
      *(target_log_prob_fn, transport, first, step_size),
      hessian_product=hessian_product,
      max_num_leapfrog_steps=most,
      name=name,
    )
    return FisherTransportAdaptation(
      kept_momentum.accepted(proposal),
      num_adaptation_steps,
      0.8 if target_accept_prob is None else target_accept_prob,
    )
  map_params.check_momentum(transport, keep_momentum)
  if criterion is None:
    criterion = generalized_speed_measure(
      0.67 if target_accept_prob is None else target_accept_prob,
      entropy_weight_rule='acceptance',
      min_entropy_weight=1e-2,
      max_entropy_weight=1e2,
      penalty_threshold=0.75,
    )._replace(may_exceed_target=True)
  proposal = UncalibratedTransportedHamiltonian(
    target_log_prob_fn,
    transport,
    num_leapfrog_steps,
    step_size,
    hessian_product=hessian_product,
    max_num_leapfrog_steps=max_num_leapfrog_steps,
    name=name,
  )
  return GradientBasedAdaptation(
    MetropolisHastings(proposal),
    criterion,
    optimizer or optimizers.adam(1e-3),
    num_adaptation_steps,
  )


class UncalibratedTransportedHamiltonian(
  num_steps.DrawsNumSteps, proposal.UncalibratedProposal
):
  """Proposes the end of a leapfrog trajectory in z = f^-1(q), with unit mass.

  Let s = step_size, v ~ N(0, I), and let g be the gradient of the log target.
  With F(z) = Df(z)^T g(f(z)) + grad log |det Df(z)|:

    w <- v + 1/2 s F(z)
    L times:  z <- z + s w;   w <- w + s F(z)   (with s / 2 the last time)
    log ratio = log pi(q_L) - log pi(q) - 1/2 (|w_L|^2 - |v|^2)
                + log |det Df(z_L)| - log |det Df(z)|,    q_L = f(z_L)

  The state of the chain is q, because f may change between steps. One step
  makes L gradient calls. Put `MetropolisHastings` around this kernel.
  f(z) = C z gives `UncalibratedPreconditionedHamiltonian`.
  """

  uses_gradient = True

  def __init__(
    self,
    target_log_prob_fn,
    transport,
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
      transport: An `interfaces.Transport`, f.
      num_leapfrog_steps: L, a positive int, or a pair (fewest, most), from
        which every step draws one number for all chains. Pairs are for fitted
        transports, because a replay needs one length.
      step_size: Step size in z. Adaptation by gradient scales f instead.
      hessian_product: `'autodiff'` (exact, about three gradients each) or
        `'finite_difference'` (one gradient each), for the proposal's entropy.
      num_fixed_terms: Fewest terms of the series of log det (I + D).
      max_num_leapfrog_steps: Bound of a pair that an adaptation learns; `None`
        if L is not learned.
      experimental_shard_axis_names: Must be `None`: f needs the whole state.
      name: Prefix of the names of bootstrap ops.

    Raises:
      TypeError: If `transport` is not an `interfaces.Transport`.
      ValueError: If an argument is not one of those allowed.
    """
    map_params.check(transport)
    lengths = num_leapfrog_steps, max_num_leapfrog_steps
    map_params.check_one_length(transport, *lengths)
    num_steps.check(*lengths)
    trajectory.check_hessian_product(hessian_product)
    if tf.nest.flatten(experimental_shard_axis_names or []):
      raise ValueError(
        'A transport maps the whole state at once, so that its events cannot '
        'be sharded. Shard the chains, or use a preconditioner.'
      )
    super().__init__(
      target_log_prob_fn,
      map_params.as_learned(transport),
      step_size,
      None,
      name,
    )
    self._parameters.update(
      transport=transport,
      num_leapfrog_steps=num_leapfrog_steps,
      hessian_product=hessian_product,
      num_fixed_terms=num_fixed_terms,
      max_num_leapfrog_steps=max_num_leapfrog_steps,
    )

  @property
  def transport(self):
    return self._parameters['transport']

  @property
  def preconditioner(self):
    """The `interfaces.MapParams` of f, the functions that adaptations use."""
    return map_params.as_learned(self.transport)

  def learned_at(self, results):
    learned = super().learned_at(results)
    del learned['preconditioner']
    params = results.preconditioner_params
    return learned | dict(transport=proposal.constant(self.transport, params))

  def operator_at(self, results):
    raise ValueError(
      'A transport is no matrix, so there is no covariance to return. Use '
      '`tfpa.frozen(kernel, results)`, or the params in its results.'
    )

  def scalars_at(self, results):
    scales = self.transport.scales(results.preconditioner_params)
    return dict(log_scale=tf.reduce_mean(tf.math.log(scales)))

  def cost(self, adapting, mean_num_steps=None):
    """Returns the mean cost of a step, at the mean L if L is learned."""
    steps = mean_num_steps or self.mean_num_steps
    products = gradients = 0.0
    if adapting and steps > 1 and self.transport.fit is None:
      products, gradients = self._series.mean_cost(
        self._parameters['hessian_product']
      )
    return interfaces.Cost(
      target=steps + gradients,
      gradient=steps + gradients,
      hessian_vector=products,
    )

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Runs the trajectory; the results carry what a replay needs."""
    previous = previous_kernel_results
    num_chain_dims = ps.rank(previous.target_log_prob)
    seed = random.sanitize(seed)
    flat = state_parts.flatten(current_state, num_chain_dims)
    noise = self._draw_velocity(flat, previous, seed)
    end, path = leapfrog.run(
      lambda: self.transport.bijector(previous.preconditioner_params),
      state_parts.of_flat(
        self.target_log_prob_fn, current_state, num_chain_dims
      ),
      flat,
      state_parts.flatten(previous.grads_target_log_prob, num_chain_dims),
      noise,
      previous.step_size,
      self._draw_num_steps(previous, seed),
      self._num_kept,
    )
    proposed_state, grads = (
      state_parts.unflatten_like(rows, current_state, num_chain_dims)
      for rows in (end.position, end.gradient)
    )
    return proposed_state, previous._replace(
      target_log_prob=end.log_prob,
      grads_target_log_prob=grads,
      log_acceptance_correction=end.correction,
      noise=noise,
      trajectory=self._taken(previous, path, end.velocity),
      seed=seed,
    )

  def init_replay_cache(self, proposed_results):
    """Returns `[]`, because a replay keeps nothing between steps."""
    del proposed_results
    return []

  def replay(self, cache, previous, proposed, proposed_state, mh_results):
    """Returns the step just taken as a function of the params of f.

    Gradients of the target along the trajectory are held constant, and f is
    differentiated. The energy error then needs no target call. The entropy, a
    series of N terms, adds N + 1 Hessian products at the midpoint.
    """
    xla_gradients.register()
    num_chain_dims = ps.rank(previous.target_log_prob)
    gradient = state_parts.flatten(
      previous.grads_target_log_prob, num_chain_dims
    )
    is_finite, path, noise = _keep_finite(proposed, mh_results.log_accept_ratio)
    ratio = tf.where(is_finite, mh_results.log_accept_ratio, 0.0)
    gradient = tf.where(is_finite[..., tf.newaxis], gradient, 0.0)
    kappa = trajectory.curvature_weight(self.num_leapfrog_steps, noise.dtype)
    middle = curvature.Point(
      path.midpoint,
      path.gradients[max(1, self.num_leapfrog_steps // 2) - 1],
    )
    estimated = self._estimate(
      previous, proposed, proposed_state, middle, kappa
    )
    # The entropy of a chain that diverged is log |det Df| alone.
    estimated = estimated and curvature.keep(is_finite, estimated)

    def transition(factor):
      def bijector_fn():
        return self.transport.bijector(factor.params)

      end = leapfrog.replay(
        bijector_fn, path, gradient, noise, proposed.step_size
      )
      change = end.log_prob + end.correction
      log_jacobian = eigenvalue = tf.zeros_like(ratio)
      if estimated:
        log_jacobian, eigenvalue = curvature.log_jacobian(
          bijector_fn, middle, estimated, kappa, proposed.step_size
        )
      return interfaces.Transition(
        log_accept_ratio=ratio + change - tf.stop_gradient(change),
        proposal_entropy=end.log_det[0] + log_jacobian,
        log_jacobian=log_jacobian,
        displacement=end.position - path.start,
        proposed_log_prob=end.log_prob - tf.stop_gradient(end.log_prob),
        control_variate=tf.zeros_like(ratio),
        is_finite=is_finite,
        is_accepted=mh_results.is_accepted,
        jacobian_eigenvalue=eigenvalue,
        num_log_det_terms=estimated.num_terms if estimated else 0,
      )

    return interfaces.Replay(transition=transition, cache=cache)

  def _init_trajectory(self, flat):
    return leapfrog.start_trajectory(flat, self._num_kept)

  @property
  def _num_kept(self):
    """Number of gradients that a replay needs, 0 for a fitted map."""
    return 0 if self.transport.fit else self.num_leapfrog_steps

  def _estimate(self, previous, proposed, proposed_state, middle, kappa):
    """Returns the estimate of log det(I + D) at the midpoint, None if L = 1."""
    if self.num_leapfrog_steps == 1:
      return None
    return curvature.estimate(
      lambda: self.transport.bijector(previous.preconditioner_params),
      hessian.hessian_product(
        self.target_log_prob_fn,
        proposed_state,
        middle.position,
        middle.gradient,
        middle.position.shape.rank - 1,
        self._parameters['hessian_product'],
      ),
      middle,
      kappa,
      proposed.step_size,
      *self._series.draw(middle.position, proposed.seed, self._shard_seed),
    )

  @property
  def _series(self):
    return log_det.Series(self._parameters['num_fixed_terms'])


class UncalibratedMomentumTransportedHamiltonian(
  kept_momentum.KeepsMomentum, UncalibratedTransportedHamiltonian
):
  """Proposes from a given momentum in z, for a fitted map.

  Put `MomentumMetropolisHastings` around this kernel.
  """


_HAMILTONIANS = (
  UncalibratedTransportedHamiltonian,
  UncalibratedMomentumTransportedHamiltonian,
)


def _keep_finite(proposed, log_accept_ratio):
  """Returns which chains did not diverge, the trajectory and the noise.

  A chain that diverged is replayed with zero noise and zero gradients of the
  target.
  """
  path = proposed.trajectory
  is_finite = tf.math.is_finite(log_accept_ratio)
  is_finite &= log_accept_ratio > -_DIVERGENCE
  is_finite &= tf.reduce_all(tf.math.is_finite(path.gradients), axis=[0, -1])
  keep = is_finite[..., tf.newaxis]
  start = tf.where(tf.math.is_finite(path.start), path.start, 0.0)
  return (
    is_finite,
    path._replace(
      # A state that is not finite would make the gradients of all chains so.
      start=start,
      gradients=tf.where(keep, path.gradients, 0.0),
      midpoint=tf.where(keep, path.midpoint, start),
    ),
    tf.where(keep, proposed.noise, 0.0),
  )
