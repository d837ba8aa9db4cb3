"""Adapts a proposal by the gradient of a criterion, from every proposed move.

Source: Titsias and Dellaportas (2019), Algorithm 1,
https://arxiv.org/abs/1911.01373.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import control_flow
from tfp_adaptive.core import merging
from tfp_adaptive.core import run_warnings
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import stack
from tfp_adaptive.core import tfp_private
from tfp_adaptive.linear import checks
from tfp_adaptive.linear import scale_search


class GradientBasedAdaptationResults(NamedTuple):
  """Results of `GradientBasedAdaptation`."""

  # Results of the inner kernel. Their innermost `preconditioner_params` are
  # the learned params.
  inner_results: Any
  criterion_state: Any
  optimizer_state: Any
  replay_cache: Any  # Values that a replay keeps for the next; `[]` for none.
  scale_search: scale_search.ScaleSearch
  step: tf.Tensor  # Steps taken, [] int32.
  # Mean of min(1, exp(r)) in the last adapting step, [].
  mean_accept_prob: tf.Tensor
  # Gradients of single chains that were dropped so far, because the chain
  # diverged or the mean gradient was not finite, [] int32.
  num_dropped_gradients: tf.Tensor

  merge_rules = dict(num_dropped_gradients=merging.counted)


class GradientBasedAdaptation(adaptation_base.AdaptationWrapper):
  """Learns the scale factor of the innermost proposal while it samples.

  Each of the first `num_adaptation_steps` steps is replayed as a function of
  the scale factor. The mean gradient of the criterion over all chains moves the
  shared params once. After these steps the params are constant, and the kernel
  leaves the target invariant.
  """

  replays = True

  def __init__(
    self,
    inner_kernel,
    criterion,
    optimizer,
    num_adaptation_steps,
    name=None,
  ):
    """Builds the wrapper; no Tensor is created here.

    Args:
      inner_kernel: A calibrated kernel around a proposal with a `replay`, for
        example `tfpa.MetropolisHastings(UncalibratedPreconditionedLangevin())`.
      criterion: An `interfaces.Criterion`.
      optimizer: An `interfaces.Optimizer`.
      num_adaptation_steps: Steps that adapt, a non-negative int.
      name: Prefix of op names.

    Raises:
      TypeError: If `criterion` or `optimizer` has the wrong type.
      ValueError: If a number is out of its range, if criterion, optimizer and
        proposal do not go together, or if the target is stochastic.
    """
    super().__init__(inner_kernel, num_adaptation_steps)
    self._keep(locals())
    checks.check_gradient_adaptation(
      criterion, optimizer, self.proposal, type(self).__name__
    )

  @property
  def criterion(self):
    return self._parameters['criterion']

  @property
  def optimizer(self):
    return self._parameters['optimizer']

  def scalars_at(self, results):
    return dict(
      mean_accept_prob=results.mean_accept_prob,
      num_dropped_gradients=results.num_dropped_gradients,
      **self.criterion.trace(results.criterion_state),
    )

  def warnings_after(self, results, trace):
    if self.num_adaptation_steps:
      yield from run_warnings.at_bounds(
        self.criterion,
        results.criterion_state,
        self.problem(results.inner_results),
        trace.get('is_accepted'),
      )
      yield from run_warnings.acceptance(
        trace,
        self.criterion.target_accept_prob,
        self.criterion.may_exceed_target,
      )

  def bootstrap_results(self, init_state):
    """Starts the inner kernel, the criterion, the optimizer and the search."""
    inner = self.inner_kernel.bootstrap_results(init_state)
    problem = self.problem(inner)
    params = stack.proposal_results(inner).preconditioner_params
    inner, search = scale_search.begin(self.proposal, inner)
    return GradientBasedAdaptationResults(
      inner_results=inner,
      criterion_state=self.criterion.init(problem),
      optimizer_state=self.optimizer.init(params, problem),
      replay_cache=self.proposal.init_replay_cache(
        self._mh_results(inner).proposed_results
      ),
      scale_search=search,
      step=tf.zeros([], tf.int32),
      mean_accept_prob=tf.zeros([], problem.dtype),
      num_dropped_gradients=tf.zeros([], tf.int32),
    )

  def _adapt(self, states, previous_inner, results):
    """Replays the step, differentiates the criterion, moves the params."""
    del states
    inner = results.inner_results
    mh_results = self._mh_results(inner)
    replay = self.proposal.replay(
      results.replay_cache,
      stack.metropolis_hastings_results(previous_inner).accepted_results,
      mh_results.proposed_results,
      mh_results.proposed_state,
      mh_results,
    )
    params = stack.proposal_results(inner).preconditioner_params
    alive = adaptation_base.is_alive(mh_results)
    value_grads, entropy_grads, transition = self._gradients(
      replay, params, results.criterion_state, alive
    )
    is_usable = self._is_usable(params, value_grads)
    is_usable &= self._is_usable(params, entropy_grads)
    is_searching = results.scale_search.is_searching
    problem = self.problem(inner)
    criterion_state = self.criterion.update(
      results.criterion_state,
      transition,
      interfaces.Slopes(
        *(
          adaptation_base.per_alive(
            alive, self._slope(params, grads, is_usable, problem)
          )
          for grads in (value_grads, entropy_grads)
        ),
        is_searching=is_searching,
      ),
      problem,
    )

    accept_prob = adaptation_base.mean_accept_prob(mh_results)
    search = scale_search.update(
      results.scale_search, accept_prob, self.criterion.target_accept_prob
    )
    # In the paper's Algorithm 1 the params move first, by the last beta. A
    # criterion that needs slopes computes beta from this step's slopes.
    weight = self.criterion.entropy_weight(
      criterion_state
      if self.criterion.needs_slopes
      else results.criterion_state
    )
    grads = tf.nest.map_structure(
      lambda v, h: adaptation_base.per_alive(
        alive, tf.where(is_usable, v + weight * h, 0.0)
      ),
      value_grads,
      entropy_grads,
    )
    feedback = self.criterion.feedback(criterion_state, transition)
    params, optimizer_state = self._move(
      params, results, search, grads, feedback, problem
    )
    return results._replace(
      inner_results=tfp_private.replace_innermost(
        inner, preconditioner_params=params
      ),
      criterion_state=criterion_state,
      optimizer_state=optimizer_state,
      replay_cache=replay.cache,
      scale_search=search,
      mean_accept_prob=accept_prob,
      num_dropped_gradients=adaptation_base.counted(
        results.num_dropped_gradients, _num_dropped(transition, is_usable)
      ),
    )

  def _move(self, params, results, search, grads, feedback, problem):
    """Returns params and optimizer state after the step.

    Until the scale search ends, only the search changes the params.
    """
    is_searching = results.scale_search.is_searching
    params, optimizer_state = control_flow.apply_if(
      ~is_searching,
      lambda params, state: self.optimizer.update(
        grads, state, params, self.preconditioner, feedback, problem
      ),
      params,
      results.optimizer_state,
    )
    (params,) = control_flow.apply_if(
      is_searching,
      lambda params: [
        self.preconditioner.rescale(
          params, search.scale / results.scale_search.scale
        )
      ],
      params,
    )
    return params, optimizer_state

  def _gradients(self, replay, params, criterion_state, alive):
    """Returns gradients of the mean value and entropy, and the transition.

    The means count chains that can never move as 0. They have not diverged,
    and would shrink the proposal at every step.
    """
    is_relative = self.optimizer.is_relative
    variable = scale_factor.zero_tangent(params) if is_relative else params
    with tf.GradientTape(
      persistent=True, watch_accessed_variables=False
    ) as tape:
      tape.watch(variable)
      factor = (
        scale_factor.around(self.preconditioner, params, variable)
        if is_relative
        else scale_factor.at(self.preconditioner, variable)
      )
      transition = replay.transition(factor)._replace(is_alive=alive)
      value = self.criterion.value(criterion_state, transition)
      value = tf.reduce_mean(tf.where(alive, value, tf.zeros_like(value)))
      # The entropy of a chain that diverged counts with a negative sign.
      sign = tf.where(transition.is_finite, tf.ones_like(value), -1.0)
      sign = tf.where(alive, sign, 0.0)
      entropy = tf.reduce_mean(
        sign * self.criterion.entropy(criterion_state, transition)
      )
    # The entropy does not depend on some params, such as superdiagonals.
    value_grads, entropy_grads = (
      tape.gradient(
        objective,
        variable,
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
      )
      for objective in (value, entropy)
    )
    return value_grads, entropy_grads, transition

  def _is_usable(self, params, grads):
    """Returns whether a mean gradient is finite, [] bool.

    If a term in the sum of a relative gradient is not finite, the slope is not
    finite either.
    """
    if self.optimizer.is_relative:
      total = self.preconditioner.slope(params, grads)
    else:
      total = tf.add_n([tf.reduce_sum(g**2) for g in tf.nest.flatten(grads)])
    return tf.math.is_finite(total)

  def _slope(self, params, grads, is_usable, problem):
    """Returns (derivative in the log scale) / d, or 0 if it is unusable, []."""
    if not self.optimizer.is_relative:
      return tf.zeros([], problem.dtype)
    slope = self.preconditioner.slope(params, grads)
    size = tf.cast(problem.event_size, problem.dtype)
    return tf.where(is_usable, slope / size, 0.0)


def _num_dropped(transition, is_usable):
  """Counts chains whose gradient was dropped: all if the mean is unusable."""
  num_diverged = tf.math.count_nonzero(~transition.is_finite, dtype=tf.int32)
  return tf.where(is_usable, num_diverged, tf.size(transition.is_finite))
