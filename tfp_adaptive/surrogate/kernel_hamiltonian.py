"""Hamiltonian proposal whose forces are those of a learned surrogate.

A trajectory starts with v ~ N(0, I) and takes L leapfrog steps along the
surrogate (`surrogate_leapfrog.py`). The true target accepts its end y with the
log ratio

  r = log pi(y) - log pi(x) + (|v_0|^2 - |v_L|^2) / 2.

Any force gives a reversible map that preserves volume, so that the chain is
exact with any surrogate. A poor surrogate lowers the acceptance, and a force of
zero gives a random walk.

Source: Strathmann et al. (2015), Algorithm 1, https://arxiv.org/abs/1506.02564.
"""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import merging
from tfp_adaptive.core import proposal
from tfp_adaptive.core import random
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import stack
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import step_sizes
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.interfaces import types
from tfp_adaptive.preconditioners.per_part import as_preconditioner
from tfp_adaptive.surrogate import models as surrogates
from tfp_adaptive.surrogate import surrogate_leapfrog
from tfp_adaptive.surrogate import walk as walk_lib
from tfp_adaptive.surrogate.adaptation import ScoreMatchingAdaptation

_SHORTEST = 1.0 / 3.0  # Shortest trajectory, in units of the longest.


@arguments.by_keyword('kernel_hamiltonian(target_log_prob_fn, 500)')
def kernel_hamiltonian(
  target_log_prob_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  surrogate: interfaces.Surrogate | None = None,
  preconditioner: types.Preconditioners | None = None,
  num_leapfrog_steps: types.NumSteps | None = None,
  step_size: float = 0.3,
  history: np.ndarray | None = None,
  target_is_stochastic: bool = False,
  target_accept_prob: float | None = None,
  walk_share: float = 0.1,
  trajectory_length: float = 4.0,
  name: str | None = None,
) -> tfp.mcmc.TransitionKernel:
  """Builds HMC without gradients (KMC), with forces learned from past states.

  Use it for targets without gradients or with random estimates, such as
  pseudo-marginal targets and simulators. Every step calls the target once, for
  a trajectory of any length.

  Args:
    target_log_prob_fn: Log density up to a constant, called as TFP calls it;
      returns [chains...]. A stochastic target is called with `seed` too ([2]
      int32), and returns the log of an unbiased estimate of the density.
    num_adaptation_steps: Steps that learn; after them the kernel is fixed.
    surrogate: An `interfaces.Surrogate`;
      `tfpa.surrogates.kernel_exponential_family_finite()` by default.
    preconditioner: Structure of the momentum scale, or a list with one for
      each part of the state; dense by default.
    num_leapfrog_steps: L, or a pair (fewest, most), from which every step
      draws L. By default a step takes as many as `trajectory_length` needs,
      because leapfrog steps do not call the target.
    step_size: First step size, in units of the momentum scale. Every fit sets
      the largest step size with which trajectories keep the surrogate's energy.
      If `num_leapfrog_steps` is given, dual averaging adapts the step size
      instead.
    history: Draws known beforehand, numpy [k, event_size], to which the
      surrogate is fitted before the first step. Inside a
      `TransformedTransitionKernel`, give unconstrained draws.
    target_is_stochastic: Whether the target is an estimate. Accepted estimates
      are kept and never drawn again, so that the chain is exact.
    target_accept_prob: Wanted mean acceptance of the steps that follow the
      surrogate, in (0, 1), if `num_leapfrog_steps` is given; 0.65 by default,
      0.35 for a stochastic target. If the noise of estimates does not allow
      this acceptance, the step size goes to 0.
    walk_share: Smallest share of random-walk steps, in [0, 1). These steps find
      regions that the surrogate has not seen. If the share is not 0 and
      `num_leapfrog_steps` is not given, all steps are random-walk steps until
      the first fit, and at least half of the steps until the last fit. After
      the last fit, the mean jumps of both kinds of steps set the share, between
      `walk_share` and 0.9. Random-walk steps may have the larger jumps with one
      chain or in many dimensions.
    trajectory_length: Longest trajectory, in units of the momentum scale, if
      `num_leapfrog_steps` is not given. Every step draws a length from a third
      of this value up to this value. On a Gaussian, 3.1 is half a period.
      Longer trajectories are accepted about as often, because the log ratio has
      the surrogate's errors at both ends only.
    name: Prefix of the names of bootstrap ops.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the target or a part has the wrong type.
    ValueError: If a number is out of its range, or arguments exclude each
      other.

  References:
    Strathmann et al. (2015), Algorithm 1, https://arxiv.org/abs/1506.02564.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.kernel_hamiltonian(target.log_prob, 500)
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
  """
  walk_lib.check_share(walk_share)
  has_length = num_leapfrog_steps is None
  if has_length and target_accept_prob is not None:
    raise ValueError(
      f'`target_accept_prob={target_accept_prob!r}` has an effect only if '
      '`num_leapfrog_steps` is given. Write for example '
      '`num_leapfrog_steps=(1, 10)` as well, or leave `target_accept_prob` out.'
    )
  proposal = UncalibratedSurrogateHamiltonian(
    target_log_prob_fn,
    surrogate or surrogates.kernel_exponential_family_finite(),
    as_preconditioner(preconditioner, init_scale=1.0),
    (1, 10) if has_length else num_leapfrog_steps,
    step_size,
    walk_share=walk_share,
    target_is_stochastic=target_is_stochastic,
    trajectory_length=trajectory_length if has_length else None,
    name=name,
  )
  kernel = ScoreMatchingAdaptation(
    MetropolisHastings(proposal),
    num_adaptation_steps,
    history,
    learn_momentum_scale=True,
  )
  if has_length:
    return kernel
  if target_accept_prob is None:
    target_accept_prob = 0.35 if target_is_stochastic else 0.65
  return step_sizes.tuned(
    kernel,
    num_adaptation_steps,
    target_accept_prob,
    says_nothing_fn=_has_walked,
  )


# Whether the step was a random-walk step, [] bool, and y - x, [chains..., d].
Move = collections.namedtuple('Move', ['has_walked', 'displacement'])


class SurrogateHamiltonianResults(
  collections.namedtuple(
    'SurrogateHamiltonianResults',
    (*proposal.ProposalResults._fields, 'surrogate_params', 'walk_params'),
  ),
):
  """Results of `UncalibratedSurrogateHamiltonian`.

  Attributes are those of `ProposalResults`, and:
    surrogate_params: Params of the surrogate, shared by chains.
    walk_params: `surrogate.walk.Walk`, `[]` without random-walk steps.
  `noise` is the first velocity, `trajectory` a `Move`;
  `grads_target_log_prob` is `[]`.
  """

  __slots__ = ()
  merge_rules = dict(surrogate_params=merging.first, walk_params=merging.first)


class UncalibratedSurrogateHamiltonian(
  surrogate_leapfrog.FollowsSurrogate, proposal.UncalibratedProposal
):
  """Follows the surrogate's trajectory; calls the target once, at its end.

  Put `MetropolisHastings` around this kernel, and then an adaptation that
  learns the surrogate around the two. A leapfrog step costs two products with C
  per chain and one score of the surrogate.
  """

  def __init__(
    self,
    target_log_prob_fn,
    surrogate,
    preconditioner,
    num_leapfrog_steps=(1, 10),
    step_size=0.3,
    step_size_jitter=(1.0, 1.0),
    walk_share=0.0,
    target_is_stochastic=False,
    walk_step_size=None,
    walk_preconditioner=None,
    trajectory_length=None,
    name=None,
  ):
    """Builds the kernel; no Tensor is created here.

    Args:
      target_log_prob_fn: Called as TFP calls targets, with `seed=` if it is
        stochastic; returns [chains...]. Its gradient is never taken.
      surrogate: An `interfaces.Surrogate`.
      preconditioner: An `interfaces.Preconditioner`, C.
      num_leapfrog_steps: L, a positive int, or a pair (fewest, most), from
        which every step draws L for all chains.
      step_size: h, multiplies C; [] or [chains..., 1].
      step_size_jitter: Pair (low, high). Every step multiplies h by a uniform
        draw in between, the same for all chains.
      walk_share: Share of random-walk steps, in [0, 1), which have a scale and
        a covariance of their own. An adaptation may raise the share.
      target_is_stochastic: See `kernel_hamiltonian`.
      walk_step_size: First scale of random-walk steps, []; by default
        2.38 / sqrt(d).
      walk_preconditioner: Structure of the covariance of random-walk steps; by
        default `preconditioner`.
      trajectory_length: T, in units of C, positive. Every step draws a length
        between T / 3 and T for all chains, and takes as many leapfrog steps as
        h needs (1 to 64) instead of `num_leapfrog_steps`.
      name: Prefix of the names of bootstrap ops.

    Raises:
      TypeError: If the surrogate or the preconditioner has the wrong type.
      ValueError: If a range is empty, `walk_share` is not in [0, 1), the length
        is not positive, or the signature of the target does not fit
        `target_is_stochastic`.
    """
    if not isinstance(surrogate, interfaces.Surrogate):
      raise TypeError(
        f'`surrogate` must be an `interfaces.Surrogate`, but got {surrogate!r}.'
        ' Write for example '
        '`tfpa.surrogates.kernel_exponential_family_finite()` (with '
        'parentheses).'
      )
    super().__init__(
      target_log_prob_fn,
      preconditioner,
      step_size,
      name=name,
      target_is_stochastic=target_is_stochastic,
    )
    self._parameters.update(
      surrogate=surrogate,
      num_leapfrog_steps=num_leapfrog_steps,
      step_size_jitter=step_size_jitter,
      walk_share=walk_share,
      walk_step_size=walk_step_size,
      walk_preconditioner=walk_preconditioner,
      trajectory_length=trajectory_length,
    )
    self._step_range = arguments.check_num_leapfrog_steps(num_leapfrog_steps)
    self._jitter_range = surrogate_leapfrog.check_jitter(step_size_jitter)
    if walk_share != 1.0:  # A frozen kernel has 1.0 if no fit succeeded.
      walk_lib.check_share(walk_share)
    if trajectory_length is not None:
      arguments.check_positive(trajectory_length, 'trajectory_length', 4.0)

  @property
  def surrogate(self):
    return self._parameters['surrogate']

  @property
  def num_leapfrog_steps(self):
    return self._parameters['num_leapfrog_steps']

  @property
  def experimental_shard_axis_names(self):
    return None

  def experimental_with_shard_axes(self, shard_axis_names):
    if shard_axis_names:
      raise ValueError(
        'A surrogate sees the whole event, so the state cannot be sharded. '
        'Shard chains over devices instead.'
      )
    return self

  def learned_at(self, results):
    learned = super().learned_at(results) | dict(
      surrogate=constant_surrogate(self.surrogate, results.surrogate_params)
    )
    if not self.walk_share:
      return learned
    walk = results.walk_params
    return learned | dict(
      walk_share=float(walk.share),
      walk_step_size=np.asarray(walk.step_size),
      walk_preconditioner=proposal.constant(
        self.walk_preconditioner, walk.factor_params
      ),
    )

  def cost(self, adapting):
    del adapting
    return interfaces.Cost(target=1)

  def bootstrap_results(self, init_state):
    """Evaluates the target at `init_state`; the surrogate is not fitted yet."""
    results = super().bootstrap_results(init_state)
    params = self.surrogate.init(
      state_parts.event_size(results.noise),
      results.noise.dtype,
      random.sanitize(0),
    )
    return SurrogateHamiltonianResults(
      *results,
      surrogate_params=params,
      walk_params=self._init_walk(init_state, results),
    )

  def _init_walk(self, init_state, results):
    if not self.walk_share:
      return []
    part_sizes = state_parts.part_sizes(
      init_state, ps.rank(results.target_log_prob)
    )
    return walk_lib.start(
      self.walk_share,
      self._parameters['walk_step_size'],
      results.noise,
      self._init_params(results.noise, part_sizes, self.walk_preconditioner),
    )

  def _init_trajectory(self, flat):
    return Move(tf.zeros([], tf.bool), tf.zeros_like(flat))

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Runs one trajectory; the results carry the target at its end."""
    previous = previous_kernel_results
    num_chain_dims = ps.rank(previous.target_log_prob)
    seed = random.sanitize(seed)
    noise_seed, length_seed, scale_seed, walk_seed, target_seed = random.split(
      seed, 5
    )
    x = state_parts.flatten(current_state, num_chain_dims)

    # 1. Draw velocity, length and step size.
    velocity = self._draw_noise(x, noise_seed)
    low, high = self._jitter_range
    jitter = random.uniform([], x.dtype, scale_seed)
    step_size = previous.step_size * (low + (high - low) * jitter)
    num_steps = self._draw_steps(step_size, length_seed)

    # 2. Follow the surrogate, or make a random-walk step.
    walks = self._draw_walks(previous, walk_seed)
    num_steps = tf.where(walks, 0, num_steps)
    y, end_velocity = self._follow(previous, x, velocity, step_size, num_steps)
    if self.walk_share:
      walked = walk_lib.propose(
        previous.walk_params, self.walk_preconditioner, x, velocity
      )
      y = tf.where(walks, walked, y)
      end_velocity = tf.where(walks, velocity, end_velocity)

    # 3. Evaluate the target where the trajectory ended.
    proposed_state = state_parts.unflatten_like(
      y, current_state, num_chain_dims
    )
    log_prob = self._evaluate(
      proposed_state, target_seed, previous.target_log_prob.shape
    )
    return proposed_state, previous._replace(
      target_log_prob=log_prob,
      log_acceptance_correction=0.5
      * tf.reduce_sum(velocity**2 - end_velocity**2, axis=-1),
      noise=velocity,
      trajectory=Move(walks, y - x),
      seed=seed,
    )

  def _draw_walks(self, previous, seed):
    """Returns whether this step is a random-walk step, [] bool."""
    if not self.walk_share:
      return tf.zeros([], tf.bool)
    share = previous.walk_params.share
    return random.uniform([], share.dtype, seed) <= share

  def _draw_steps(self, step_size, seed):
    """Returns L, [] int32."""
    if self.trajectory_length is None:
      return surrogate_leapfrog.draw_num_steps(self._step_range, seed)
    unit = random.uniform([], step_size.dtype, seed)
    length = self.trajectory_length * (_SHORTEST + (1.0 - _SHORTEST) * unit)
    return surrogate_leapfrog.steps_of_length(length, step_size)

  def _follow(self, previous, x, velocity, step_size, num_steps):
    """Returns the end of the trajectory and the velocity there."""
    return surrogate_leapfrog.follow(
      lambda x: self.surrogate.score(previous.surrogate_params, x),
      scale_factor.at(self.preconditioner, previous.preconditioner_params),
      x,
      velocity,
      step_size,
      num_steps,
    )


def _has_walked(results):
  results = stack.metropolis_hastings_results(results)
  return results.proposed_results.trajectory.has_walked


def constant_surrogate(surrogate, params):
  """Returns a surrogate that starts at given params."""
  params = tf.nest.map_structure(np.asarray, params)

  def init(event_size, dtype, seed):
    # A surrogate may have Tensors of another dtype than the state.
    return tf.nest.map_structure(
      lambda p, first: tf.cast(p, first.dtype),
      params,
      surrogate.init(event_size, dtype, seed),
    )

  return surrogate._replace(init=init)
