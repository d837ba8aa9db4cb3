"""The one walk down nested kernels, and down their results."""

__all__ = ['first_with', 'kernels', 'metropolis_hastings_results']


def kernels(kernel):
  """Returns the kernel and all kernels inside, a list, outermost first.

  Of a `TransformedTransitionKernel` it is the inner kernel that steps, the one
  rebuilt around the transformed target. A kernel of several, such as
  `ReplicaExchangeMC`, ends the walk.
  """
  stack = [kernel]
  while True:
    inner = getattr(stack[-1], '_inner_kernel', None)
    if inner is None:
      inner = getattr(stack[-1], 'inner_kernel', None)
    if inner is None or isinstance(inner, list):
      return stack
    stack.append(inner)


def first_with(kernel, attribute):
  """Returns the outermost kernel that has an attribute; None if none has."""
  found = (k for k in kernels(kernel) if hasattr(k, attribute))
  return next(found, None)


def metropolis_hastings_results(results):
  """Returns the results, inside of others, that hold accepted and proposed."""
  while not hasattr(results, 'proposed_results'):
    results = results.inner_results
  return results
