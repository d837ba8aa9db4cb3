"""The replicas of an exchange: their densities, kernels, and a step of each."""

import functools

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import stack
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import tfp_private
from tfp_adaptive.tempering import exchange

__all__ = [
  'check_callable',
  'check_finite',
  'check_kernel',
  'densities',
  'learned',
  'refreshed',
  'step_each',
  'tempered',
  'with_learned',
]

# What the results of a sampler hold of what it learned ...
_LEARNED = (
  'preconditioner_params',
  'step_size',
  'num_leapfrog_steps',
  'short_step_share',
  'share_lost',
)
# ... and where.
_INNER = ('inner_results', 'accepted_results')
_NEVER = 2**30  # Of a step, after all that adapt.


def tempered(target_log_prob_fn, reference_log_prob_fn, inverse_temperature):
  """Returns b log pi + (1 - b) log p_ref as a log density.

  Args:
    target_log_prob_fn: log pi.
    reference_log_prob_fn: log p_ref; `None`: zero.
    inverse_temperature: b, float or [].
  """

  @functools.wraps(target_log_prob_fn)
  def log_prob(*parts, **named):
    found = tf.convert_to_tensor(target_log_prob_fn(*parts, **named))
    b = tf.cast(inverse_temperature, found.dtype)
    if reference_log_prob_fn is None:
      return b * found
    return b * found + (1.0 - b) * reference_log_prob_fn(*parts, **named)

  return log_prob


def densities(
  target_log_prob_fn,
  reference_log_prob_fn,
  inverse_temperature,
  state,
  results,
):
  """Returns `exchange.Densities` of one replica, without its leading axis.

  With a reference both functions are evaluated; without one the results say it
  all.

  Args:
    target_log_prob_fn: log pi.
    reference_log_prob_fn: log p_ref, or `None`.
    inverse_temperature: b, [].
    state: Of the replica, [chains..., event...].
    results: Of its kernel there.
  """
  grads = tfp_private.get_innermost(
    results, 'grads_target_log_prob', default=[]
  )
  if reference_log_prob_fn is None:
    log_prob = tfp_private.get_innermost(results, 'target_log_prob')
    log_prob, grads = tf.nest.map_structure(
      lambda x: x / inverse_temperature, (log_prob, grads)
    )
    return exchange.Densities(log_prob, grads, [], [])
  evaluate = state_parts.value_and_gradient
  if not tf.nest.flatten(grads):
    evaluate = _value_alone
  of_target = evaluate(target_log_prob_fn, state)
  untempered, grads_untempered = evaluate(reference_log_prob_fn, state)
  log_prob, grads = tf.nest.map_structure(
    tf.subtract, of_target, (untempered, grads_untempered)
  )
  return exchange.Densities(log_prob, grads, untempered, grads_untempered)


def _value_alone(function, state):
  return state_parts.value(function, state), []


def refreshed(results, log_prob, grads):
  """Returns results of samplers at states that were not their own."""
  fields = {'target_log_prob': log_prob}
  if tf.nest.flatten(grads):
    fields['grads_target_log_prob'] = grads
  return tfp_private.replace_innermost(results, **fields)


def step_each(step, given, like):
  """Returns what the step of every replica returns, with a leading axis.

  One after the other, so that each may have another number of leapfrog steps,
  in a loop that is compiled once.

  Args:
    step: Function of (state, results, b, seed) of one replica; returns state,
      results, densities.
    given: Those of all, with a leading axis.
    like: The densities of before.
  """
  states, results, *_ = given
  signature = tf.nest.map_structure(
    lambda leaf: tf.TensorSpec(leaf.shape[1:], leaf.dtype),
    (states, results, like),
  )
  return tf.map_fn(
    lambda args: step(*args),
    given,
    fn_output_signature=signature,
    parallel_iterations=1,
  )


def learned(results):
  """Returns what samplers have learned, {field: numpy}."""
  found = {
    name: tfp_private.get_innermost(results, name, default=[])
    for name in _LEARNED
  }
  return {
    name: tf.nest.map_structure(np.asarray, value)
    for name, value in found.items()
    if tf.nest.flatten(value)
  }


def with_learned(results, values):
  """Returns results that begin with what was learned, and learn no more.

  Args:
    results: Of new samplers.
    values: As of `learned`; `None`: the results as they are.
  """
  if values is None:
    return results

  def visit(part):
    fields = {
      name: visit(getattr(part, name))
      for name in _INNER
      if (hasattr(part, name))
    }
    for name, value in values.items():
      if hasattr(part, name):
        fields[name] = tf.nest.map_structure(
          lambda old, new: tf.constant(new, old.dtype),
          getattr(part, name),
          value,
        )
    if hasattr(part, 'step'):
      fields['step'] = tf.zeros_like(part.step) + _NEVER
    return part._replace(**fields)

  return visit(results)


def check_callable(function, name):
  """Refuses what is no function."""
  if not callable(function):
    raise TypeError(
      f'`{name}` must be callable, but got {type(function).__name__}. Pass a '
      'function.'
    )


def check_kernel(kernel):
  """Refuses samplers whose results hold what an exchange does not refresh."""
  name = type(stack.kernels(kernel)[-1]).__name__
  proposal = stack.first_with(kernel, 'cost')
  if proposal is None or not kernel.is_calibrated:
    raise ValueError(
      f'A replica must be sampled by a builder of `tfpa`, but got {name}. '
      'Write for example `kernel_fn=tfpa.fisher_divergence_hamiltonian`.'
    )
  if 'target_log_prob_fn' not in proposal.parameters:
    raise ValueError(
      f'{name} takes a prior apart from the likelihood, and cannot be '
      'tempered. Write for example '
      '`kernel_fn=tfpa.fisher_divergence_hamiltonian`, with the log posterior '
      'density.'
    )


def check_finite(found):
  """Refuses starts outside of the reference, where that is known."""
  values = (
    tf.get_static_value(found.untempered)
    if tf.is_tensor(found.untempered)
    else None
  )
  if values is not None and not np.all(np.isfinite(values)):
    raise ValueError(
      '`reference_log_prob_fn` is not finite at the start of some chain: its '
      'replicas would never move. Start where the reference has positive '
      'density.'
    )
