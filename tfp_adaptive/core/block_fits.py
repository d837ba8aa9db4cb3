"""Fits that are made on the host, between two blocks of steps.

`Kernel.fit_steps` names the steps after which `Kernel.fitted_at` is due. A
driver promises to end a block at each of these steps and to call the fit there.
A kernel that starts without this promise raises an error, because its map would
never be fitted.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import tensorflow_probability as tfp

from tfp_adaptive.core import kernel_base
from tfp_adaptive.core import stack

_PROMISED = contextvars.ContextVar('promised', default=())


def steps(kernel: tfp.mcmc.TransitionKernel) -> list[int]:
  """Returns the steps after which a kernel or an inner kernel is fitted."""
  found = {step for one in stack.ours_of(kernel) for step in one.fit_steps}
  return sorted(found)


def code(kernel: tfp.mcmc.TransitionKernel) -> list:
  """Returns the code of all fits of a kernel, for the identity of a run."""
  return [one.fit_code for one in stack.ours_of(kernel) if one.fit_steps]


def fitted(
  kernel: tfp.mcmc.TransitionKernel, state: Any, results: Any, step: int
) -> Any:
  """Returns the kernel results after the fits that are due at `step`."""
  for one, place, own in stack.ours(kernel, state, results):
    if step in one.fit_steps:
      results = stack.replaced(results, own, one.fitted_at(place, own))
  return results


@contextlib.contextmanager
def promised(kernel: tfp.mcmc.TransitionKernel) -> Iterator[None]:
  """Promises the fits of a kernel while the context is open."""
  token = _PROMISED.set(tuple(steps(kernel)))
  try:
    yield
  finally:
    _PROMISED.reset(token)


def check_promised(kernel: kernel_base.Kernel) -> None:
  """Raises a ValueError if the fits of a kernel are not promised."""
  if not set(kernel.fit_steps) <= set(_PROMISED.get()):
    raise ValueError(
      'The map of this kernel is fitted between blocks of steps, and only '
      '`tfpa.sample` makes these fits. Write '
      '`run = tfpa.sample(kernel, state, num_results)`. For '
      '`tfp.mcmc.sample_chain` pass '
      '`tfpa.frozen(kernel, run.final_kernel_results)`, which has the fitted '
      'map.'
    )
