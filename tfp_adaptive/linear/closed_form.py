"""Adaptations whose factor is a formula of the gradients seen so far.

The first scale is searched (`scale_search`). Then a subclass moves the params
at every step, and the step size s follows the acceptance:

  log s <- log s + rate_t (accept - target),
  rate_t = max(_RATE, _FIRST_RATE (1 + t)^-0.6), after t steps with this shape.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import arguments
from tfp_adaptive.core import control_flow
from tfp_adaptive.core import merging
from tfp_adaptive.core import run_warnings
from tfp_adaptive.core import stack
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import step_sizes
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.proposal import UncalibratedProposal
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linear import checks
from tfp_adaptive.linear import num_steps
from tfp_adaptive.linear import scale_search
from tfp_adaptive.linear import trajectory_length

_RATE = 0.0075  # Least rate of log s; 0.015 for log s^2, as in Titsias (2023).
_FIRST_RATE = 0.5


class Gradients(NamedTuple):
  """Gradients of a step at x and y, and its log acceptance ratio r."""

  current: tf.Tensor  # [num_chains, d].
  proposed: tf.Tensor  # [num_chains, d].
  log_accept_ratio: tf.Tensor  # [num_chains].


class ClosedFormAdaptationResults(NamedTuple):
  """Results of the adaptations by closed forms."""

  # Results of the inner kernel. Their innermost `preconditioner_params` are
  # the learned shape, and `step_size` is the learned scale.
  inner_results: Any
  statistics: Any  # What the formula needs; each subclass has its own form.
  scale_search: scale_search.ScaleSearch
  trajectory_length: Any  # `trajectory_length.Lengths`; `[]` if not learned.
  step: tf.Tensor  # Steps taken, [] int32.
  num_updates: tf.Tensor  # Steps from which the shape was learned, [] int32.
  # Mean of min(1, exp(r)) in the last adapting step, [].
  mean_accept_prob: tf.Tensor
  # Gradients of single chains that were dropped so far, because they or the
  # ratio were not finite, [] int32.
  num_dropped_gradients: tf.Tensor

  merge_rules = dict(
    num_updates=merging.largest, num_dropped_gradients=merging.counted
  )


class ClosedFormAdaptation(adaptation_base.AdaptationWrapper):
  """Base of the wrappers that learn a factor by a formula of gradients.

  A subclass passes its parameters to the constructor, and implements

    _start(params, state, inner) -> statistics
    _learn(params, statistics, gradients, next_state, inner)
      -> (params, statistics, factor of the step size).
  """

  def __init__(
    self, inner_kernel, num_adaptation_steps, target_accept_prob, **others
  ):
    super().__init__(inner_kernel, num_adaptation_steps)
    arguments.check_accept_prob(target_accept_prob)
    arguments.check_gain(others.get('gain', 1.0))
    self._parameters = dict(
      inner_kernel=inner_kernel,
      num_adaptation_steps=num_adaptation_steps,
      target_accept_prob=target_accept_prob,
      **others,
    )
    proposal = stack.first_with(inner_kernel, 'preconditioner')
    if not proposal.uses_gradient:
      raise ValueError(
        f'{type(self).__name__} learns from the gradients that a step has '
        f'already, but {type(proposal).__name__} has none. Wrap '
        '`tfpa.proposals.UncalibratedPreconditionedLangevin` or '
        '`UncalibratedPreconditionedHamiltonian`, or take '
        '`tfpa.adaptation.MomentBasedAdaptation`.'
      )
    self._check_params(proposal)
    checks.check_is_exact(proposal, type(self).__name__)

  def _check_params(self, proposal):
    """Refuses a proposal whose params cannot be learned in this way."""
    checks.check_has_tangent(proposal, type(self).__name__)

  def scalars_at(self, results):
    return dict(
      mean_accept_prob=results.mean_accept_prob,
      num_dropped_gradients=results.num_dropped_gradients,
    )

  def warnings_after(self, results, trace):
    del results
    if self.num_adaptation_steps:
      yield from run_warnings.acceptance(
        trace, self._parameters['target_accept_prob']
      )

  def bootstrap_results(self, init_state):
    """Starts the inner kernel, the search and the statistics."""
    inner = self.inner_kernel.bootstrap_results(init_state)
    inner, search = scale_search.begin(self.proposal, inner)
    params = stack.proposal_results(inner).preconditioner_params
    zero = tf.zeros([], tf.int32)
    return ClosedFormAdaptationResults(
      inner_results=inner,
      statistics=self._start(params, init_state, inner),
      scale_search=search,
      trajectory_length=self._start_length(init_state, inner),
      step=zero,
      num_updates=zero,
      mean_accept_prob=tf.zeros([], search.scale.dtype),
      num_dropped_gradients=zero,
    )

  def _adapt(self, states, previous_inner, results):
    """Searches the first scale, then learns shape and step size."""
    inner, next_state = results.inner_results, states[1]
    mh_results = self._mh_results(inner)
    accept_prob = self._mean_accept_prob(mh_results)
    target = self._parameters['target_accept_prob']
    search = scale_search.update(results.scale_search, accept_prob, target)
    is_searching = results.scale_search.is_searching
    gradients, num_dropped = self._gradients(previous_inner, mh_results)

    def learn(params, step_size, statistics):
      params, statistics, factor = self._learn(
        params, statistics, gradients, next_state, inner
      )
      rate = _step_size_rate(
        self._num_updates_of_steps(results, statistics), step_size.dtype
      )
      factor *= step_sizes.change(accept_prob, target, rate)
      return params, step_sizes.bounded(step_size * factor), statistics

    def rescale(params, statistics):
      by = search.scale / results.scale_search.scale
      params = self.preconditioner.rescale(params, by)
      start = self._start(params, next_state, inner)
      return params, self._rescale(start, statistics, by)

    params, step_size, statistics = control_flow.apply_if(
      ~is_searching,
      learn,
      stack.proposal_results(inner).preconditioner_params,
      stack.proposal_results(inner).step_size,
      results.statistics,
    )
    params, statistics = control_flow.apply_if(
      is_searching, rescale, params, statistics
    )
    lengths, learned = self._learn_length(
      states, previous_inner, results, statistics, params
    )
    return results._replace(
      inner_results=tfp_private.replace_innermost(
        inner, preconditioner_params=params, step_size=step_size, **learned
      ),
      statistics=statistics,
      scale_search=search,
      trajectory_length=lengths,
      num_updates=results.num_updates + tf.cast(~is_searching, tf.int32),
      mean_accept_prob=accept_prob,
      num_dropped_gradients=adaptation_base.counted(
        results.num_dropped_gradients, num_dropped
      ),
    )

  def cost_at(self, results, kind):
    if kind.is_adapting and results is not None and results.trajectory_length:
      lengths = results.trajectory_length
      taken = int(lengths.num_taken) / max(1, int(lengths.num_steps))
      kind = kind._replace(mean_num_steps=taken)
    return super().cost_at(results, kind)

  def _mean_accept_prob(self, mh_results):
    """Returns the acceptance that the step size follows, []."""
    if isinstance(self.proposal, UncalibratedProposal):
      return self.proposal.mean_accept_prob(mh_results)
    return adaptation_base.mean_accept_prob(mh_results)

  def _start_length(self, state, inner):
    """Returns empty `Lengths`, or `[]` if no length is learned."""
    draws = isinstance(self.proposal, num_steps.DrawsNumSteps)
    most = self.proposal.max_num_leapfrog_steps if draws else None
    if most is None:
      return []
    rows, _, is_finite = self._states_and_gradients(state, inner)
    first = tf.constant(self.proposal.bounds, tf.int32)
    params = stack.proposal_results(inner).preconditioner_params
    places = self._turning(rows, params)
    return trajectory_length.start(first, most, places, is_finite)

  def _learn_length(self, states, previous_inner, results, statistics, params):
    """Returns the next `Lengths`, and a dict of innermost results to replace.

    `statistics` and `params` are those after this adaptation, and `results` are
    those before.
    """
    lengths = results.trajectory_length
    if not lengths:
      return [], {}
    inner = results.inner_results
    mh_results = self._mh_results(inner)
    before = self._states_and_gradients(states[0], previous_inner)[0]
    rows, _, is_finite = self._states_and_gradients(states[1], inner)
    ratio = mh_results.log_accept_ratio
    proposed = state_parts.as_rows(
      state_parts.flatten(mh_results.proposed_state, ps.rank(ratio))
    )
    places = self._turning(
      tf.concat([before, proposed, rows], axis=0),
      stack.proposal_results(inner).preconditioner_params,
    )
    lengths = trajectory_length.add(
      lengths,
      mh_results.proposed_results.trajectory.num_steps,
      tf.split(places, 3),
      tf.reshape(tf.exp(tf.minimum(ratio, 0.0)), [-1]),
      is_finite,
      results.scale_search.is_searching,
    )
    lengths, drawn = trajectory_length.choose(
      lengths,
      self.proposal.event_sum,
      results.step,
      self.num_adaptation_steps,
      self.proposal.settled,
    )
    lengths = self._forget_lengths(
      lengths, rows, is_finite, results.statistics, statistics, params
    )
    return lengths, {'num_leapfrog_steps': drawn}

  def _forget_lengths(
    self, lengths, rows, is_finite, before, statistics, params
  ):
    """Returns `Lengths`, which a subclass restarts if the shape is new."""
    del rows, is_finite, before, statistics, params
    return lengths

  def _turning(self, rows, params):
    """Returns states [n, d] in the coordinates in which trajectories run."""
    del params
    return rows

  def _num_updates_of_map(self, results, statistics):
    """Returns the number of steps with the present shape."""
    del statistics
    return results.num_updates

  def _num_updates_of_steps(self, results, statistics):
    """Returns the number of steps with the present shape and kind of steps.

    The kind changes if momenta are kept as soon as the lengths are learned.
    """
    of_map = self._num_updates_of_map(results, statistics)
    if not (results.trajectory_length and self.proposal.keeps_momentum):
      return of_map
    settled = trajectory_length.num_steps_settled(
      results.step, self.num_adaptation_steps
    )
    of_steps = tf.cast(settled, results.mean_accept_prob.dtype)
    of_map = tf.cast(of_map, of_steps.dtype)
    return tf.where(of_steps > 0.0, tf.minimum(of_map, of_steps), of_map)

  def _rescale(self, start, statistics, by):
    """Returns statistics for C times `by`, []; by default the new `start`."""
    del statistics, by
    return start

  def _gradients(self, previous_inner, mh_results):
    """Returns `Gradients` and the number of chains that diverged, [] int32.

    A chain that diverged has zero gradients and ratio -inf.
    """
    ratio = mh_results.log_accept_ratio
    num_chain_dims = ps.rank(ratio)
    current, proposed = (
      state_parts.flatten(results.grads_target_log_prob, num_chain_dims)
      for results in (
        self._mh_results(previous_inner).accepted_results,
        mh_results.proposed_results,
      )
    )
    is_finite = tf.math.is_finite(ratio) & tf.reduce_all(
      tf.math.is_finite(current) & tf.math.is_finite(proposed), axis=-1
    )
    gradients = Gradients(
      *(
        state_parts.as_rows(tf.where(is_finite[..., tf.newaxis], rows, 0.0))
        for rows in (current, proposed)
      ),
      tf.reshape(tf.where(is_finite, ratio, -float('inf')), [-1]),
    )
    return gradients, tf.reduce_sum(tf.cast(~is_finite, tf.int32))

  def _states_and_gradients(self, state, inner):
    """Returns states, gradients, [num_chains, d], and whether both are usable.

    Rows that are not finite, or whose squares overflow, are set to zero.
    Otherwise one such row would stay in all moments. So would a chain that can
    never move, although its state and gradient may be finite.
    """
    states = state_parts.as_rows(self._flat_state(state, inner))
    accepted = self._mh_results(inner).accepted_results
    gradients = state_parts.as_rows(
      state_parts.flatten(
        accepted.grads_target_log_prob, ps.rank(accepted.target_log_prob)
      )
    )
    squares = tf.reduce_sum(states**2 + gradients**2, axis=-1, keepdims=True)
    is_finite = tf.math.is_finite(
      squares * tf.cast(ps.shape(states)[0], squares.dtype)
    )
    alive = adaptation_base.is_alive(self._mh_results(inner))
    is_finite &= tf.reshape(alive, [-1, 1])
    return (
      tf.where(is_finite, states, 0.0),
      tf.where(is_finite, gradients, 0.0),
      is_finite,
    )


def _step_size_rate(num_updates, dtype):
  time = tf.cast(num_updates, dtype)
  return tf.maximum(tf.cast(_RATE, dtype), _FIRST_RATE * (1.0 + time) ** -0.6)
