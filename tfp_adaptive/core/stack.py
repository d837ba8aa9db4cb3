"""Functions of nested kernels and of their results.

Only this module knows under which names TFP's wrappers keep inner kernels and
their results.
"""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import kernel_base
from tfp_adaptive.core import structures
from tfp_adaptive.core import tfp_private

# Fields that hold the results of the kernel inside.
_INNER = ('accepted_results', 'inner_results')


def kernels(kernel):
  """Returns the kernel and all kernels inside, a list, outermost first.

  A `TransformedTransitionKernel` steps a copy of its inner kernel with the
  transformed target, and this copy is returned. A kernel with several inner
  kernels, such as `ReplicaExchangeMC`, ends the list.
  """
  stack = [kernel]
  while True:
    inner = _inner(stack[-1])
    if inner is None:
      return stack
    stack.append(inner)


def levels(kernel, results):
  """Returns a list of (kernel, its own results or `None`), outermost first."""
  found = []
  for one in kernels(kernel):
    if found and results is not None:
      results = inner_results(results)
    found.append((one, results))
  return found


def inner_results(results):
  """Returns the results of the kernel inside a wrapper, or `None`."""
  # Results of a kernel that is not TFP's need not be a namedtuple.
  for name in _INNER:
    if name in structures.fields(results):
      return getattr(results, name)
  return None


def ours(kernel, state, results):
  """Yields (kernel, state, results) of this library's kernels.

  An inner kernel gets the state in its own space.
  """
  for one, own in levels(kernel, results):
    if own is None:
      return
    if isinstance(one, kernel_base.Kernel):
      yield one, state, own
    if isinstance(one, tfp.mcmc.TransformedTransitionKernel):
      state = own.transformed_state


def ours_of(kernel):
  """Returns this library's kernels, a list, outermost first."""
  return [k for k in kernels(kernel) if isinstance(k, kernel_base.Kernel)]


def parameters(kernel):
  """Returns the constructor's arguments of a kernel that knows them, or {}."""
  # A user's kernel may lack what TFP's and this library's kernels have.
  return getattr(kernel, 'parameters', {})


def num_adaptation_steps(kernel):
  """Returns the largest number of adapting steps of a kernel in the stack."""
  steps = (getattr(k, 'num_adaptation_steps', None) for k in kernels(kernel))
  return max((int(s) for s in steps if s is not None), default=0)


def replaced(results, old, new):
  """Returns results in which `old`, the results of one kernel, become `new`."""
  if results is old:
    return new
  for name in _INNER:
    if name in results._fields:
      inner = replaced(getattr(results, name), old, new)
      return results._replace(**{name: inner})
  return results


def proposal_results(results):
  """Returns the results of the innermost kernel."""
  while (inner := inner_results(results)) is not None:
    results = inner
  return results


def inner_state(state, results):
  """Returns the state in the space of the innermost kernel."""
  while results is not None:
    if 'transformed_state' in structures.fields(results):
      state = results.transformed_state
    results = inner_results(results)
  return state


def is_short(results):
  """Returns whether the last step was short, [] bool or False."""
  while results is not None:
    if 'is_short' in structures.fields(results):
      return results.is_short
    results = inner_results(results)
  return False


def target_log_prob(results):
  """Returns the innermost `target_log_prob`, or `None` if there is none."""
  return tfp_private.find_innermost(results, 'target_log_prob')


def gradients(results):
  """Returns the gradients that a kernel keeps, `[]` if it keeps none.

  Samplers that are given the prior keep gradients in the prior's coordinates.
  """
  for name in ('grads_coordinates', 'grads_target_log_prob'):
    found = tfp_private.find_innermost(results, name)
    if found is not None:
      return found
  return []


def recorded(results):
  """Returns the recorded fields that results have: name -> [chains...]."""
  found = {}
  for name in (
    'target_log_prob',
    'is_accepted',
    'log_accept_ratio',
    'hyper_is_accepted',
    'prior_has_failed',
    'has_divergence',
  ):
    value = tfp_private.find_innermost(results, name)
    if tf.is_tensor(value):
      found[name] = value
  return found


def scalars(kernel, results):
  """Returns a dict of [] Tensors that describe the adaptation."""
  found = {}
  for one, _, own in ours(kernel, None, results):
    for name, value in one.scalars_at(own).items():
      found.setdefault(name, value)
  return found


def first_with(kernel, attribute):
  """Returns the outermost kernel that has an attribute; None if none has."""
  found = (k for k in kernels(kernel) if hasattr(k, attribute))
  return next(found, None)


def metropolis_hastings_results(results):
  """Returns the inner results that hold accepted and proposed results."""
  while 'proposed_results' not in results._fields:
    results = results.inner_results
  return results


def frozen(kernel, results):
  """Returns a kernel with the values that `kernel` has learned.

  TFP's adaptation wrappers are removed, and TFP's other wrappers stay.
  """
  if isinstance(kernel, kernel_base.Kernel):
    return kernel.frozen_at(results)
  if 'inner_kernel' not in kernel.parameters:
    raise kernel_base.nothing_learned(kernel)
  inner = frozen(kernel.inner_kernel, inner_results(results))
  if 'num_adaptation_steps' in kernel.parameters:
    return inner
  return kernel.copy(inner_kernel=inner)


def cost(kernel, results, kind):
  """Returns the `interfaces.Cost` of a step, `None` if it is unknown."""
  if isinstance(kernel, kernel_base.Kernel):
    return kernel.cost_at(results, kind)
  inner = _inner(kernel)
  if inner is None:
    return None
  return cost(inner, None if results is None else inner_results(results), kind)


def _inner(kernel):
  """Returns the kernel that `kernel` steps, or `None`."""
  inner = getattr(kernel, '_inner_kernel', None)
  if inner is None:
    inner = getattr(kernel, 'inner_kernel', None)
  return None if isinstance(inner, list) else inner
