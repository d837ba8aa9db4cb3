"""Refuses bad starts, and warns before and after a run of `tfpa.sample`."""

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import kernel_base
from tfp_adaptive.core import run_warnings
from tfp_adaptive.core import stack
from tfp_adaptive.core import step_sizes
from tfp_adaptive.core import target_call
from tfp_adaptive.driver import convergence


def kernel_names(kernel):
  """Returns the class names of a stack of kernels, outermost first."""
  return [type(k).__name__ for k in stack.kernels(kernel)]


def has_prior_apart(kernel):
  """Returns whether the kernel's `target_log_prob` is the likelihood alone."""
  innermost = stack.kernels(kernel)[-1]
  return isinstance(innermost, kernel_base.Kernel) and innermost.has_prior_apart


def check_starts(results):
  """Refuses starts without a finite log density or a finite gradient."""
  log_prob = stack.target_log_prob(results)
  if not tf.is_tensor(log_prob):
    return
  _check_finite(np.asarray(log_prob), '', 'positive density')
  grads = stack.gradients(results)
  num_chain_dims = log_prob.shape.rank
  for part in filter(tf.is_tensor, tf.nest.flatten(grads)):
    part = np.asarray(tf.convert_to_tensor(part))
    if part.ndim >= num_chain_dims:
      events = tuple(range(num_chain_dims, part.ndim))
      is_finite = np.all(np.isfinite(part), axis=events)
      values = np.where(is_finite, 0.0, np.nan)
      _check_finite(values, 'The gradient of ', 'a gradient')


def _check_finite(values, of, wanted):
  bad = np.argwhere(~np.isfinite(values))
  if not len(bad):  # A bad value without chain axes has one empty index.
    return
  shown = ', '.join(
    f'{run_warnings.chain_name(index)} ({values[tuple(index)]})'
    for index in bad[:10]
  )
  more = f' and {len(bad) - 10} more' if len(bad) > 10 else ''
  raise ValueError(
    f'{of}`target_log_prob_fn` is not finite at the start of {shown}{more}: a '
    'chain that starts there never moves. Start every chain where the target '
    f'has {wanted}, and check its support and parameters.'
  )


def warnings_before(kernel, state, results):
  """Yields warnings about a kernel, a density or a start, before the run."""
  if not kernel.is_calibrated:
    yield (
      f'{type(kernel).__name__} is not calibrated: its draws do not have the '
      'target distribution. Put it inside of `tfp.mcmc.MetropolisHastings`.'
    )
  if not tf.is_tensor(stack.target_log_prob(results)):
    yield (
      'The kernel results have no log density that tells which axes are '
      'chains, so R-hat and effective sizes will not be computed. Judge the '
      'draws yourself, for example with ArviZ.'
    )
  yield from _shape_warnings(state, results)
  yield from _mixing_warnings(kernel, state, results)
  yield from _likelihood_warnings(kernel, state, results)
  for one, own_state, own in stack.ours(kernel, state, results):
    yield from one.warnings_before(own_state, own)


def _shape_warnings(state, results):
  """Yields a warning if axes of chains and of coordinates seem confused."""
  log_prob = stack.target_log_prob(results)
  if not tf.is_tensor(log_prob):
    return
  shapes = [tuple(part.shape) for part in tf.nest.flatten(state)]
  shown = ', '.join(map(str, shapes))
  firsts = {shape[0] for shape in shapes if len(shape) > 1}
  is_like_chains = len(firsts) == 1 and all(len(shape) > 1 for shape in shapes)
  if not log_prob.shape.rank and is_like_chains and firsts != {1}:
    yield (
      f'The log density of the start {shown} is one number, so all of it is '
      'one chain. If the first axis is chains, sum over the others only: '
      '`tf.reduce_sum(..., axis=-1)`.'
    )
  elif log_prob.shape.rank > 1 and [tuple(log_prob.shape)] == shapes:
    yield (
      f'The log density has the shape {shown} of the start, so every number of '
      'it is a chain of its own. If the last axis is coordinates, sum over it: '
      '`tf.reduce_sum(..., axis=-1)`; else write the chains as one axis.'
    )


def _mixing_warnings(kernel, state, results):
  """Yields a warning if the density of a chain depends on other chains."""
  parameters = stack.parameters(stack.kernels(kernel)[-1])
  function = parameters.get('target_log_prob_fn')
  if function is None or parameters.get('target_is_stochastic'):
    return
  log_prob = stack.target_log_prob(results)
  is_row = tf.is_tensor(log_prob) and log_prob.shape.rank == 1
  if not is_row or log_prob.shape[0] < 2:
    return
  state = stack.inner_state(state, results)
  # Only the first chain moves. All other densities must not change.
  moved = tf.nest.map_structure(
    lambda x: tf.concat([_elsewhere(x), x[1:]], axis=0), state
  )
  try:
    found = target_call.call(function, moved)
  except target_call.TargetError:  # The target fails only at the moved state.
    return
  if found.shape == log_prob.shape and not _are_close(found[1:], log_prob[1:]):
    yield (
      'The log density of a chain changes when another chain moves: it mixes '
      'chains, or is random. If it mixes chains, the draws have another '
      'distribution. Sum and multiply only over the last axes, those of an '
      'event. The first axis is chains.'
    )


def _are_close(found, expected):
  """Whether log densities differ by less than rounding of sums explains."""
  found, expected = np.asarray(found), np.asarray(expected)
  rounding = 256.0 * np.finfo(expected.dtype).eps
  return np.allclose(found, expected, rtol=rounding, atol=1e-3, equal_nan=True)


def _elsewhere(x):
  """Returns the row farthest from the first, or the first + 1 if all agree."""
  apart = np.sum(np.reshape(x - x[:1], [len(x), -1]) ** 2, axis=-1)
  far = int(np.argmax(apart))
  return x[far : far + 1] if apart[far] > 0.0 else x[:1] + 1


def _likelihood_warnings(kernel, state, results):
  if not has_prior_apart(kernel):
    return
  innermost = stack.kernels(kernel)[-1]
  first, second = (
    np.asarray(stack.target_log_prob(r))
    for r in (results, innermost.bootstrap_results(state))
  )
  if not _are_close(second, first):
    yield (
      '`log_likelihood_fn` returned other values when it was called again at '
      f'the starts ({second.flat[0]:.6g} after {first.flat[0]:.6g}): draws '
      'would have another distribution than the posterior. Draw its random '
      'numbers once, outside of it. If it estimates a density, use '
      '`tfpa.adaptive_metropolis` with `target_is_stochastic=True`.'
    )


def accept_rate(structure, block):
  """Returns the mean acceptance of a block, or None if it is not recorded."""
  _, trace = tf.nest.pack_sequence_as(structure, block)
  accepted = trace.get('is_accepted')
  return None if accepted is None else float(np.mean(accepted))


def worst_coordinates(states, trace):
  """Returns (`convergence.worst` of the draws, thinning of these draws).

  The dict is empty if there are too few draws, or if no coordinate moved.
  """
  log_prob = trace.get('target_log_prob')
  if log_prob is None or len(log_prob) < convergence.FEWEST_DRAWS:
    return {}, 1  # Without log densities, chain axes are not known.
  num_chain_dims = log_prob.ndim - 1
  parts = tf.nest.flatten(states)
  return (
    convergence.worst(states, num_chain_dims),
    max(convergence.thinning_of(part, num_chain_dims) for part in parts),
  )


def warnings_after(kernel, states, trace, results, worst):
  """Yields warnings that a user should read before using the draws."""
  accepted = trace.get('is_accepted')
  if accepted is not None and len(accepted):
    yield from _still_warnings(states, accepted)
  diverging = trace.get('diverging')
  if diverging is not None and np.mean(diverging) > 0.01:
    yield (
      f'{np.mean(diverging):.1%} of the recorded proposals diverged (log ratio '
      'below -1000, or a density that is NaN or infinite, or that changes '
      'between calls at one state). Outside of the support this is right, and '
      'a bijector to unconstrained space avoids it. Inside the support, expect '
      'bias near the regions that proposals could not enter: reparameterize '
      'the target.'
    )
  for one, _, own in stack.ours(kernel, None, results):
    yield from one.warnings_after(own, trace)
  if has_prior_apart(kernel):
    # The outer step size wrapper tunes moves of the field. The inner wrapper
    # tunes moves of the hyperparameters.
    kernels = stack.kernels(kernel)
    tuners = [k for k in kernels if 'target_accept_prob' in k.parameters]
    for k, prefix in zip(tuners, ('', 'hyper_')):
      yield from run_warnings.acceptance(
        trace,
        float(k.parameters['target_accept_prob']),
        name=f'{prefix}is_accepted',
        may_exceed_target=_is_at_its_largest(trace.get(f'{prefix}step_size')),
      )
  if worst:
    yield from _convergence_warnings(worst)


def _still_warnings(states, accepted):
  """Yields warnings of chains, and of coordinates, whose draws are one point.

  A step that was not recorded may have moved a chain. An accepted step may be
  too small for the dtype to change a coordinate.
  """
  is_stuck = ~_has_moved(states, accepted.ndim)
  if not np.any(is_stuck):
    yield from _still_coordinates(states, accepted.ndim - 1)
    return
  for words, way_out, is_named in (
    (
      'No move was accepted',
      'adapt longer, or start elsewhere',
      is_stuck & ~np.any(accepted, axis=0),
    ),
    (
      'Moves changed no coordinate',
      'its steps are smaller than the rounding of its dtype. Use float64, or '
      'centre and rescale the state',
      # The first draw may be where its step has moved the chain.
      is_stuck & np.any(accepted[1:], axis=0),
    ),
  ):
    indices = np.argwhere(is_named)
    if indices.size or (accepted.ndim == 1 and is_named):
      yield (
        f'{words} in {len(accepted)} draws by '
        f'{run_warnings.chain_names(indices) or "the chain"}. Its draws are '
        f'one point: {way_out}.'
      )


def _still_coordinates(states, num_chain_dims):
  """Yields a warning of coordinates that no chain has moved."""
  still = convergence.still(states, num_chain_dims)
  if still:
    more = f' and {len(still) - 10} more' if len(still) > 10 else ''
    yield (
      'Some coordinates have one value in all draws of all chains, although '
      f'others moved: {", ".join(still[:10])}{more}. Their spread may be '
      'smaller than the rounding of their dtype: use float64, or centre and '
      'rescale them.'
    )


def _has_moved(states, num_leading_dims):
  """Returns whether a chain has more than one point, [chains...] bool."""
  moved = False
  for part in tf.nest.flatten(states):
    event_dims = tuple(range(num_leading_dims, part.ndim))
    first = part[:1]
    # Draws on disk are read only if some first and last draws agree.
    moved = moved | np.any(part[-1:] != first, axis=(0, *event_dims))
    for rows in [part] if isinstance(part, np.ndarray) else part.blocks():
      if np.all(moved):
        return moved
      moved = moved | np.any(rows != first, axis=(0, *event_dims))
  return moved


def _convergence_warnings(worst):
  rhat, place = worst['rhat']
  if rhat > convergence.LARGEST_RHAT:
    yield (
      f'R-hat is {min(rhat, 1000.0):.3f} in {place}, above '
      f'{convergence.LARGEST_RHAT}: chains, or their halves, disagree. Do not '
      'rely on averages over the draws. Adapt and sample longer. If that does '
      'not help, reparameterize the target, or try another sampler.'
    )
    return
  small = [
    f'{worst[field][0]:.0f} {words} in {worst[field][1]}'
    for field, words in (
      ('ess_bulk', 'for averages'),
      ('ess_tail', 'for the quantiles at 5 % and 95 %'),
    )
    if worst[field][0] < convergence.LEAST_ESS
  ]
  if small:
    yield (
      f'Few effective draws: {", ".join(small)}, below '
      f'{convergence.LEAST_ESS:.0f}, so that R-hat is not reliable either. '
      'Sample longer.'
    )


def _is_at_its_largest(tuned):
  """Returns whether a step size is at its bound and cannot grow further."""
  if tuned is None or not len(tuned):
    return False
  return tuned[-1] > 0.5 * step_sizes.largest(tuned.dtype)
