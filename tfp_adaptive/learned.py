"""What a kernel has learned: as a fixed kernel, as a matrix, as a cost."""

import numpy as np
import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.internal import tfp_private

__all__ = ['cost_per_step', 'frozen', 'learned_covariance', 'learned_factor']


def frozen(kernel, results):
  """Returns the learned sampler as a fixed kernel.

  Adaptation wrappers are taken off, step-size wrappers too; what they learned
  becomes the constants of the kernel inside. It needs no adaptation steps and
  leaves the target invariant from its first step.

  Args:
    kernel: The kernel that adapted.
    results: Its kernel results, for example `result.final_kernel_results`.

  Returns:
    A `tfp.mcmc.TransitionKernel`.
  """
  if 'preconditioner' in kernel.parameters:
    params = tf.nest.map_structure(
      np.asarray, tfp_private.get_innermost(results, 'preconditioner_params')
    )
    step_size = tfp_private.get_innermost(results, 'step_size')
    return kernel.copy(
      preconditioner=_fixed(kernel.preconditioner, params),
      step_size=np.asarray(step_size),
    )
  if 'inner_kernel' not in kernel.parameters:
    raise ValueError(
      f'{type(kernel).__name__} has learned nothing that can be frozen: no '
      'kernel inside has a preconditioner. Pass a kernel built by a `tfpa` '
      'builder, with the results of the same kernel.'
    )
  inner = frozen(kernel.inner_kernel, results)
  if 'num_adaptation_steps' in kernel.parameters:
    return inner
  return kernel.copy(inner_kernel=inner)


def learned_factor(kernel, results):
  """Returns the learned scale factor C, step size included.

  Args:
    kernel: The kernel that adapted.
    results: Its kernel results.

  Returns:
    numpy [d, d].
  """
  preconditioner = _innermost(kernel, 'preconditioner').preconditioner
  params = tfp_private.get_innermost(results, 'preconditioner_params')
  step_size = np.asarray(tfp_private.get_innermost(results, 'step_size'))
  return step_size * preconditioner.operator(params).to_dense().numpy()


def learned_covariance(kernel, results):
  """Returns the learned proposal covariance C C^T, step size included.

  Args:
    kernel: The kernel that adapted.
    results: Its kernel results.

  Returns:
    numpy [d, d].
  """
  factor = learned_factor(kernel, results)
  return factor @ factor.T


def cost_per_step(kernel, adapting):
  """Returns the target calls of one step per chain.

  Args:
    kernel: A kernel built by a `tfpa` builder, or around one.
    adapting: Whether the step is one of the adapting ones.

  Returns:
    An `interfaces.Cost`.
  """
  needs_replay = adapting and hasattr(
    _outermost_adaptation(kernel), 'criterion'
  )
  cost = _innermost(kernel, 'cost').cost(needs_replay)
  return interfaces.Cost(*cost)


def _fixed(preconditioner, params):
  """Returns the structure with constant params."""

  def init(event_size, dtype, scale):
    del event_size, scale
    return tf.nest.map_structure(
      lambda p: tf.convert_to_tensor(p, dtype=dtype), params
    )

  return preconditioner._replace(init=init, init_scale=1.0)


def _innermost(kernel, attribute):
  while not hasattr(kernel, attribute):
    if not hasattr(kernel, 'inner_kernel'):
      raise ValueError(
        f'No kernel inside has {attribute!r}; pass one built by `tfpa`.'
      )
    kernel = kernel.inner_kernel
  return kernel


def _outermost_adaptation(kernel):
  while kernel is not None and not hasattr(kernel, 'proposal'):
    kernel = getattr(kernel, 'inner_kernel', None)
  return kernel
