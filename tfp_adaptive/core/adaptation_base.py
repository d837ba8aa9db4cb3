"""The base class of wrappers that step an inner kernel and then adapt."""

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import control_flow
from tfp_adaptive.core import kernel_base
from tfp_adaptive.core import random
from tfp_adaptive.core import stack
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.tfp_private import prefer_static as ps

_MOST_COUNTED = 2**30


class AdaptationWrapper(kernel_base.Wrapper):
  """Base of the wrappers that adapt the proposal inside.

  A subclass sets `_parameters` and implements `bootstrap_results`. It also
  implements `_adapt(states, previous_inner, results) -> results` or overrides
  `one_step`. `states` is the pair of the states before and after the step, and
  `previous_inner` the inner results before the step. The results have the
  fields `inner_results` and `step`.
  """

  replays = False  # Whether adapting steps replay the proposal.

  def __init__(self, inner_kernel, num_adaptation_steps):
    arguments.check_num_adaptation_steps(num_adaptation_steps)
    if stack.first_with(inner_kernel, 'preconditioner') is None:
      raise ValueError(
        'No kernel inside `inner_kernel` has a preconditioner to adapt. Wrap '
        'one of `tfpa.proposals` in `tfpa.MetropolisHastings`; got '
        f'{type(inner_kernel).__name__}.'
      )

  @property
  def num_adaptation_steps(self):
    return self._parameters['num_adaptation_steps']

  @property
  def proposal(self):
    """The innermost kernel, which has the preconditioner."""
    return stack.first_with(self.inner_kernel, 'preconditioner')

  @property
  def preconditioner(self):
    return self.proposal.preconditioner

  @property
  def adapting_cost(self):
    """Cost that adaptation adds to a step, except a replay of the proposal."""
    return interfaces.Cost(matrix_product=0)

  def frozen_at(self, results):
    return stack.frozen(self.inner_kernel, results.inner_results)

  def cost_at(self, results, kind):
    if kind.is_adapting:
      kind = kind._replace(
        is_replayed=kind.is_replayed or self.replays,
        beside=kind.beside.plus(self.adapting_cost),
      )
    inner = None if results is None else results.inner_results
    return stack.cost(self.inner_kernel, inner, kind)

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Steps the inner kernel; adapts for the first `num_adaptation_steps`."""
    with tf.name_scope(self.name):
      previous = previous_kernel_results
      next_state, inner = self.inner_kernel.one_step(
        current_state, previous.inner_results, seed=random.sanitize(seed)
      )
      stepped = previous._replace(inner_results=inner, step=previous.step + 1)
      if self.num_adaptation_steps == 0:
        return next_state, stepped
      (results,) = control_flow.apply_if(
        self._is_adapting(previous, inner),
        lambda results: [
          self._adapt(
            (current_state, next_state), previous.inner_results, results
          )
        ],
        stepped,
      )
      return next_state, results

  def _is_adapting(self, previous, inner):
    """Returns whether this step adapts, [] bool; a short step does not."""
    is_short = stack.is_short(inner)
    is_adapting = previous.step < self.num_adaptation_steps
    return is_adapting & ~tf.convert_to_tensor(is_short)

  def _flat_state(self, state, inner):
    """Returns the state in the space of the proposal, [chains..., d]."""
    state = stack.inner_state(state, inner)
    state = tf.nest.map_structure(tf.convert_to_tensor, state)
    accepted = self._mh_results(inner).accepted_results
    return state_parts.flatten(state, ps.rank(accepted.target_log_prob))

  def _mh_results(self, inner):
    """Returns the results of the Metropolis-Hastings kernel inside."""
    return stack.metropolis_hastings_results(inner)

  def problem(self, inner):
    """Returns the size of the problem."""
    proposed = self._mh_results(inner).proposed_results
    params = stack.proposal_results(inner).preconditioner_params
    return interfaces.ProblemSize(
      event_size=ps.shape(proposed.noise)[-1],
      num_chains=state_parts.num_chains(proposed.target_log_prob),
      num_params=sum(ps.size(p) for p in tf.nest.flatten(params)),
      dtype=proposed.noise.dtype,
    )


def choose(predicate, if_true, if_false):
  """Selects one of two structures of Tensors by a [] bool."""
  return tf.nest.map_structure(
    lambda yes, no: tf.where(predicate, yes, no), if_true, if_false
  )


def is_finite(structure):
  """Returns whether all floating Tensors of a structure are finite, []."""
  return tf.reduce_all(
    tf.stack(
      [
        tf.reduce_all(tf.math.is_finite(leaf))
        for leaf in tf.nest.flatten(structure)
        if leaf.dtype.is_floating
      ]
    )
  )


def mean_accept_prob(mh_results):
  """Returns the mean over chains of min(1, exp(r)), [].

  Chains whose density or gradient is not finite never move. They are left out,
  because no step size helps them.
  """
  ratio = mh_results.log_accept_ratio
  alive = is_alive(mh_results)
  accept_prob = tf.where(alive, tf.exp(tf.minimum(ratio, 0.0)), 0.0)
  num_alive = tf.reduce_sum(tf.cast(alive, ratio.dtype))
  return tf.math.divide_no_nan(tf.reduce_sum(accept_prob), num_alive)


def is_alive(results):
  """Returns whether a chain's density and gradient are finite, [chains...].

  `results` are those of Metropolis-Hastings or of a kernel around it. If the
  state has hyperparameters, their density counts as well.
  """
  log_prob = stack.target_log_prob(results)
  alive = tf.math.is_finite(log_prob)
  grads = stack.gradients(results)
  if tf.nest.flatten(grads):
    rows = state_parts.flatten(grads, ps.rank(log_prob))
    alive &= tf.reduce_all(tf.math.is_finite(rows), axis=-1)
  hyper_log_prob = tfp_private.find_innermost(results, 'hyper_log_prob')
  if hyper_log_prob is not None:
    alive &= tf.math.is_finite(hyper_log_prob)
  return alive


def mean_of_alive(alive, values, axis=None):
  """Returns the mean of `values`, [chains..., ...], over the live chains.

  `alive`, bool, broadcasts to `values`. The mean is 0 if no chain is alive.
  Dead chains get the mean of the others, so that the bits of a run without dead
  chains are those of `tf.reduce_mean`.
  """
  total = tf.reduce_sum(
    tf.where(alive, values, tf.zeros_like(values)), axis, keepdims=True
  )
  num_alive = tf.reduce_sum(tf.cast(alive, values.dtype))
  mean = total / tf.maximum(num_alive, 1.0)
  return tf.reduce_mean(tf.where(alive, values, mean), axis)


def per_alive(alive, mean, then=lambda mean: mean):
  """Returns `then` of the mean over live chains.

  In the given `mean` over all chains, dead chains are 0. If all are alive, the
  bits are those of `then(mean)`. XLA fuses `then` with the mean and rounds once
  less, so that a mean that was selected or multiplied before has other bits.
  """
  num_alive = tf.reduce_sum(tf.cast(alive, mean.dtype))
  factor = tf.cast(ps.size(alive), mean.dtype) / tf.maximum(num_alive, 1.0)
  return tf.where(tf.reduce_all(alive), then(mean), then(mean * factor))


def counted(count, new):
  """Returns `min(count, 2**30) + new`, int32, which does not overflow."""
  return tf.minimum(count, _MOST_COUNTED) + new
