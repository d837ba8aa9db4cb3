"""Fits that are made on the host, between two blocks of steps.

A kernel whose fit is no part of its step names the steps after which the fit is
due (`Kernel.fit_steps`) and makes it (`Kernel.fitted_at`). Whoever runs the
kernel in blocks promises to end blocks there and to ask for the fits. A kernel
that starts without this promise refuses: its steps would run behind a map that
nobody ever fits.
"""

import contextlib
import contextvars

from tfp_adaptive.core import stack

__all__ = ['check_promised', 'code', 'fitted', 'promised', 'steps']

_PROMISED = contextvars.ContextVar('promised', default=())


def steps(kernel):
  """Returns the steps after which a kernel, or one inside, is fitted, ints."""
  found = {step for one in stack.ours_of(kernel) for step in one.fit_steps}
  return sorted(found)


def code(kernel):
  """Returns what the fits of a kernel run beside its own results, a list."""
  return [one.fit_code for one in stack.ours_of(kernel) if one.fit_steps]


def fitted(kernel, state, results, step):
  """Returns the kernel results after the fits that are due.

  Args:
    kernel: The kernel.
    state: Its state.
    results: Its results.
    step: How many steps were taken, int.
  """
  for one, place, own in stack.ours(kernel, state, results):
    if step in one.fit_steps:
      results = stack.replaced(results, own, one.fitted_at(place, own))
  return results


@contextlib.contextmanager
def promised(kernel):
  """Promises the fits of a kernel, for as long as the context is open."""
  token = _PROMISED.set(tuple(steps(kernel)))
  try:
    yield
  finally:
    _PROMISED.reset(token)


def check_promised(kernel):
  """Refuses to start a kernel whose fits are not promised."""
  if not set(kernel.fit_steps) <= set(_PROMISED.get()):
    raise ValueError(
      'The map of this kernel is fitted between blocks of steps, which only '
      '`tfpa.sample` does: here it would never be fitted. Write '
      '`run = tfpa.sample(kernel, state, num_results)`; for steps of '
      '`tfp.mcmc.sample_chain` take its map as it was fitted, '
      '`tfpa.frozen(kernel, run.final_kernel_results)`.'
    )
