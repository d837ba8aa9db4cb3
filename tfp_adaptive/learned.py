"""Functions of a kernel that has adapted: a fixed kernel, a matrix, a cost."""

import numpy as np
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import kernel_base
from tfp_adaptive.core import stack
from tfp_adaptive.interfaces import types


def frozen(
  kernel: tfp.mcmc.TransitionKernel, results: types.Structure
) -> tfp.mcmc.TransitionKernel:
  """Returns the learned sampler as a fixed kernel.

  Wrappers that adapt are removed, including those that tune a step size. What
  they learned becomes constants of the inner kernel. The fixed kernel needs no
  adaptation steps and leaves the target invariant from its first step.

  Args:
    kernel: The kernel that adapted.
    results: Its kernel results, for example `result.final_kernel_results`.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(target.log_prob, 500)
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
    fixed = tfpa.frozen(kernel, result.final_kernel_results)
    more = tfpa.sample(fixed, result.final_state, num_results=500, seed=2)
  """
  return stack.frozen(kernel, results)


def learned_factor(
  kernel: tfp.mcmc.TransitionKernel, results: types.Structure
) -> np.ndarray:
  """Returns the learned scale factor C, step size included.

  Args:
    kernel: The kernel that adapted.
    results: Its kernel results.

  Returns:
    numpy [d, d].

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(target.log_prob, 500)
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
    factor = tfpa.learned_factor(kernel, result.final_kernel_results)
  """
  proposal, own = stack.levels(kernel, results)[-1]
  operator = _operator(proposal, own)
  step_size = np.asarray(own.step_size)
  if step_size.size > 1:
    raise ValueError(
      'There is no single matrix, because each chain has its own step size '
      f'(shape {step_size.shape}). Use `tfpa.frozen(kernel, results)`.'
    )
  return step_size.item() * operator.to_dense().numpy()


def learned_covariance(
  kernel: tfp.mcmc.TransitionKernel, results: types.Structure
) -> np.ndarray:
  """Returns the learned proposal covariance C C^T, step size included.

  Args:
    kernel: The kernel that adapted.
    results: Its kernel results.

  Returns:
    numpy [d, d].

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(target.log_prob, 500)
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
    covariance = tfpa.learned_covariance(
      kernel, result.final_kernel_results
    )
  """
  factor = learned_factor(kernel, results)
  return factor @ factor.T


def cost_per_step(
  kernel: tfp.mcmc.TransitionKernel,
  adapting: bool,
  results: types.Structure = None,
) -> interfaces.Cost:
  """Returns the cost of one step for each chain.

  TFP's wrappers around the kernel add no cost. If the number of leapfrog steps
  or of terms of a series is random, or if some steps are short, the cost is a
  mean. The kernel results have the drawn numbers. If a range of leapfrog steps
  is learned, frozen steps cost its mean, and adapting steps the mean so far.

  Args:
    kernel: A kernel built by a `tfpa` builder, or a wrapper around one.
    adapting: Whether the step is an adapting one.
    results: Its kernel results. Without `results`, a learned share of short
      steps counts as 0, and a learned number of leapfrog steps is an error.

  Returns:
    An `interfaces.Cost`.

  Raises:
    ValueError: If no kernel inside states its cost (TFP's own kernels do not),
      or if `results` are needed and missing.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(target.log_prob, 500)
    cost = tfpa.cost_per_step(kernel, adapting=False)
    print(cost.gradient)  # 1.0
  """
  cost = stack.cost(kernel, results, kernel_base.StepKind(adapting))
  if cost is None:
    raise ValueError(
      f'{type(stack.kernels(kernel)[-1]).__name__} does not state what a step '
      'costs. Pass a kernel of `tfpa`, or one around it; count the calls of '
      'any other target by hand.'
    )
  return cost


def _operator(proposal, results):
  """Returns the learned C of an innermost kernel, without its step size."""
  if not isinstance(proposal, kernel_base.Kernel):
    raise ValueError(
      f'{type(proposal).__name__} is no kernel of `tfpa`. Pass one built by a '
      '`tfpa` builder.'
    )
  return proposal.operator_at(results)
