"""Densities, kernels and steps of the replicas of an exchange."""

import functools

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import arguments
from tfp_adaptive.core import kernel_base
from tfp_adaptive.core import stack
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import structures
from tfp_adaptive.core import tfp_private
from tfp_adaptive.tempering import exchange

# Fields of results that hold learned values.
_LEARNED = (
  'preconditioner_params',
  'surrogate_params',
  'walk_params',
  'step_size',
  'num_leapfrog_steps',
  'short_step_share',
  'share_lost',
)
# Fields of results that hold inner results.
_INNER = ('inner_results', 'accepted_results')
_NEVER = 2**30  # A step number after all adapting steps.
# A larger error of log pi by division is avoided by a call of the target.
_LARGEST_ERROR = 1e-3


def log_prob_of(reference):
  """Returns the log density function of a reference."""
  return reference.log_prob if is_law(reference) else reference


def is_law(reference):
  """Returns whether a reference is a distribution, which gives draws."""
  return isinstance(reference, tfp.distributions.Distribution)


def tempered(target_log_prob_fn, reference_log_prob_fn, inverse_temperature):
  """Returns the log density b log pi + (1 - b) log p_ref of a replica."""

  @functools.wraps(target_log_prob_fn)
  def log_prob(*parts, **named):
    if reference_log_prob_fn is None:
      found = tf.convert_to_tensor(target_log_prob_fn(*parts, **named))
      return tf.cast(inverse_temperature, found.dtype) * found
    # A function with weight zero counts neither by value nor by gradient.
    found, of_reference = (
      tf.convert_to_tensor(_called(function, weight != 0.0, parts, named))
      for function, weight in (
        (target_log_prob_fn, inverse_temperature),
        (reference_log_prob_fn, 1.0 - inverse_temperature),
      )
    )
    b = tf.cast(inverse_temperature, found.dtype)
    return tf.math.multiply_no_nan(found, b) + tf.math.multiply_no_nan(
      of_reference, 1.0 - b
    )

  return log_prob


def _called(function, has_gradient, parts, named):
  """Returns a function's value, with zero gradient unless `has_gradient`."""

  def held(part):
    part = tf.convert_to_tensor(part)
    return tf.where(has_gradient, part, tf.stop_gradient(part))

  parts, named = tf.nest.map_structure(held, (parts, named))
  return function(*parts, **named)


def densities(
  target_log_prob_fn,
  reference_log_prob_fn,
  inverse_temperature,
  state,
  results,
):
  """Returns `exchange.Densities` of one replica, without its leading axis.

  The results have b log pi + (1 - b) log p_ref. log p_ref is evaluated again,
  and log pi is computed from these two values. Where rounding would spoil this,
  as for small b in float32, and at b = 0, the target is evaluated instead.
  """
  log_prob = stack.target_log_prob(results)
  grads = stack.gradients(results)
  if reference_log_prob_fn is None:
    log_prob, grads = tf.nest.map_structure(
      lambda x: x / inverse_temperature, (log_prob, grads)
    )
    return exchange.Densities(log_prob, grads, [], [])
  of_reference = _evaluate(reference_log_prob_fn, state, grads)

  def evaluate():
    return _evaluate(target_log_prob_fn, state, grads)

  if not tf.is_tensor(inverse_temperature) and inverse_temperature == 0.0:
    return exchange.Densities(*evaluate(), *of_reference)
  left = 1.0 - inverse_temperature
  divided = tf.nest.map_structure(
    lambda x, u: (
      (x - tf.math.multiply_no_nan(u, tf.cast(left, u.dtype)))
      / inverse_temperature
    ),
    (log_prob, grads),
    of_reference,
  )
  of_target = tf.cond(
    is_evaluated(inverse_temperature, divided[0], of_reference[0]),
    evaluate,
    lambda: divided,
  )
  return exchange.Densities(*of_target, *of_reference)


def is_evaluated(inverse_temperature, log_prob, of_reference):
  """Returns whether the target of a replica is evaluated, [] bool.

  Division by b gives log pi an error of about eps (1 - b) |log p_ref| / b. It
  is too large if it exceeds `_LARGEST_ERROR` and eps |log pi|, the rounding of
  log pi itself.
  """
  b = tf.cast(inverse_temperature, of_reference.dtype)
  eps = np.finfo(of_reference.dtype.as_numpy_dtype).eps
  lost = eps * (1.0 - b) * tf.abs(of_reference)
  is_lost = (lost > b * _LARGEST_ERROR) & (lost > b * eps * tf.abs(log_prob))
  is_lost &= tf.math.is_finite(of_reference)
  return tf.reduce_any(is_lost) | tf.equal(b, 0.0)


def _evaluate(function, state, grads):
  if tf.nest.flatten(grads):
    return state_parts.value_and_gradient(function, state)
  return state_parts.value(function, state), []


def drawn(law, like, num_chains, seed):
  """Returns draws [*num_chains] in the structure and dtypes of `like`."""
  draws = law.sample(num_chains, seed=seed)
  if isinstance(like, dict):
    draws = structures.as_dict(draws)
  elif isinstance(draws, dict):
    # Parts are matched by position, as in a call of the density.
    draws = list(draws.values())
  return tf.nest.map_structure(
    lambda draw, part: tf.ensure_shape(tf.cast(draw, part.dtype), part.shape),
    tf.nest.pack_sequence_as(like, tf.nest.flatten(draws)),
    like,
  )


def joined(first, last):
  """Appends the Tensors of the last replica to those of the first ones."""
  return tf.nest.map_structure(
    lambda rows, row: tf.concat([rows, row[tf.newaxis]], axis=0), first, last
  )


def refreshed(results, log_prob, grads):
  """Returns results with new log densities and gradients."""
  fields = {'target_log_prob': log_prob}
  if tf.nest.flatten(grads):
    fields['grads_target_log_prob'] = grads
  return tfp_private.replace_innermost(results, **fields)


def step_each(step, given, like):
  """Returns the results of `step` for every replica, with a leading axis.

  Replicas step one after the other in a loop that is compiled once. Each
  replica may have its own number of leapfrog steps. `step` is a function of
  (state, results, b, seed) of one replica, and returns state, results,
  densities. `given` has its arguments for all replicas, with a leading axis.
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
  """Returns the learned values of the samplers, {field: numpy}."""
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
  """Returns results with the values of `learned`, and the adaptation ended."""
  if values is None:
    return results

  def visit(part):
    inner = [name for name in _INNER if name in part._fields]
    fields = {name: visit(getattr(part, name)) for name in inner}
    for name, value in values.items():
      if name in part._fields:
        fields[name] = tf.nest.map_structure(
          lambda old, new: tf.constant(new, old.dtype),
          getattr(part, name),
          value,
        )
    if 'step' in part._fields:
      fields['step'] = tf.zeros_like(part.step) + _NEVER
    # Dual averaging sets this step size.
    if 'new_step_size' in part._fields:
      fields['new_step_size'] = tf.nest.map_structure(
        lambda old: (
          tf.zeros_like(old) + tf.cast(values['step_size'], old.dtype)
        ),
        part.new_step_size,
      )
    return part._replace(**fields)

  return visit(results)


def check_callable(function, name):
  """Refuses a value that is not callable."""
  if not callable(function):
    raise TypeError(
      f'`{name}` must be callable, but got {type(function).__name__}. Pass a '
      'function.'
    )


def check_reference(reference):
  """Refuses a value that is no density, and batches of distributions."""
  check_callable(log_prob_of(reference), 'reference')
  if not is_law(reference) or isinstance(
    reference, tfp.distributions.JointDistribution
  ):
    return
  if reference.batch_shape.rank:
    raise ValueError(
      f'`reference` must be the distribution of one state, but has the '
      f'batch shape {tuple(reference.batch_shape)}. Write '
      f'`tfd.Independent(reference, {reference.batch_shape.rank})`.'
    )


def check_kernel(kernel):
  """Refuses a kernel that cannot sample a replica."""
  kernels = stack.kernels(kernel)
  proposal, name = kernels[-1], type(kernels[-1]).__name__
  is_ours = isinstance(proposal, kernel_base.Kernel)
  if not is_ours or not kernel.is_calibrated:
    raise ValueError(
      f'A replica must be sampled by a builder of `tfpa`, but got {name}. '
      'Write for example `kernel_fn=tfpa.fisher_divergence_hamiltonian`.'
    )
  if proposal.has_prior_apart:
    raise ValueError(
      f'{name} takes the prior and the likelihood separately, and cannot be '
      'tempered. Write for example '
      '`kernel_fn=tfpa.fisher_divergence_hamiltonian`, with the log posterior '
      'density.'
    )
  transformed = tfp.mcmc.TransformedTransitionKernel
  if any(isinstance(one, transformed) for one in kernels):
    raise ValueError(
      'A kernel that transforms its state keeps a copy of the state, which an '
      'exchange does not update. Write '
      '`tfp.mcmc.TransformedTransitionKernel` around `replica_exchange`, or '
      'the target in unconstrained space.'
    )


def check_finite(found):
  """Refuses starts where the reference is known to be zero."""
  values = (
    tf.get_static_value(found.reference)
    if tf.is_tensor(found.reference)
    else None
  )
  if values is not None and not np.all(np.isfinite(values)):
    raise ValueError(
      '`reference` is not finite at the start of some chain: its replicas '
      'would never move. Start where the reference has positive density.'
    )


def check_least(num_replicas, least, reference):
  """Refuses a number of replicas or a last temperature out of its range."""
  arguments.check_count(num_replicas, 'num_replicas', 10)
  if num_replicas < 2:
    raise ValueError(
      f'`num_replicas` must be at least 2, but got {num_replicas}: one for the '
      'target and one to exchange with. Write for example `num_replicas=10`.'
    )
  if least == 0.0 and reference is None:
    raise ValueError(
      '`min_inverse_temperature=0` leaves the last replica without a density. '
      'Pass `reference` as well, a prior for example, or write '
      '`min_inverse_temperature=0.01`.'
    )
  arguments.check_share(
    least, 'min_inverse_temperature', 'Write for example 0.01.'
  )
