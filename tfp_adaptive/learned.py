"""What a kernel has learned: as a fixed kernel, as a matrix, as a cost."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import stack
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.short_steps import ShortSteps
from tfp_adaptive.interfaces import types

__all__ = [
  'as_tfp_kernel',
  'cost_per_step',
  'frozen',
  'learned_covariance',
  'learned_factor',
]

# Part of a kernel -> where its results keep what it learned.
_LEARNED = dict(
  preconditioner='preconditioner_params',
  transport='preconditioner_params',
  surrogate='surrogate_params',
)
# Marks of proposals, and what TFP's kernel does not have.
_NOT_TFP = dict(
  has_local_steps='shorter steps where the target is steep',
  keeps_momentum='momenta that are kept',
  surrogate='the score of a surrogate',
)


def frozen(
  kernel: tfp.mcmc.TransitionKernel, results: types.Structure
) -> tfp.mcmc.TransitionKernel:
  """Returns the learned sampler as a fixed kernel.

  Adaptation wrappers are taken off, step-size wrappers too; what they learned
  becomes the constants of the kernel inside. It needs no adaptation steps and
  leaves the target invariant from its first step.

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
  if hasattr(kernel, 'frozen_at'):
    return kernel.frozen_at(results)
  learned = [part for part in _LEARNED if part in kernel.parameters]
  if learned:
    step_size = np.asarray(tfp_private.get_innermost(results, 'step_size'))
    fixed = {part: _fixed(kernel, part, results) for part in learned}
    fixed.update(_fixed_walk(kernel, results))
    fixed.update(_fixed_num_steps(kernel, results))
    return kernel.copy(**fixed, step_size=step_size)
  if hasattr(kernel, 'cost') and 'step_size' in kernel.parameters:
    return _with_step_sizes(kernel, results)
  if 'inner_kernel' not in kernel.parameters:
    raise ValueError(
      f'{type(kernel).__name__} has learned nothing that can be frozen: no '
      'kernel inside has a preconditioner. Pass a kernel built by a `tfpa` '
      'builder, with the results of the same kernel.'
    )
  inner = frozen(kernel.inner_kernel, results)
  if isinstance(kernel, ShortSteps):
    return kernel.at(inner, results)
  if 'num_adaptation_steps' in kernel.parameters:
    return inner
  return kernel.copy(inner_kernel=inner)


def as_tfp_kernel(
  kernel: tfp.mcmc.TransitionKernel, results: types.Structure
) -> tfp.mcmc.TransitionKernel:
  """Returns the learned Hamiltonian sampler as TFP's own kernel.

  Momenta are drawn from N(0, (C C^T)^-1): the same law as `frozen`, at the
  price of a solve with C for each draw. Its number of leapfrog steps is one for
  all steps: the mean of a range, which may resonate.

  Args:
    kernel: The kernel that adapted, built by `entropy_adaptive_hamiltonian`
      (or `gradient_adaptive_langevin`: one leapfrog step, and none shorter),
      for a state that is one Tensor of vectors.
    results: Its kernel results.

  Returns:
    A `tfp.experimental.mcmc.PreconditionedHamiltonianMonteCarlo`, where the
    kernel has a `tfp.mcmc.TransformedTransitionKernel` within one.

  Raises:
    ValueError: If the state is not one Tensor [chains..., d], or the kernel
      follows no gradient of the target.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.entropy_adaptive_hamiltonian(
      target.log_prob, 500, num_leapfrog_steps=3
    )
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
    hmc = tfpa.as_tfp_kernel(kernel, result.final_kernel_results)
  """
  proposal = _linear(kernel)
  ours = [what for mark, what in _NOT_TFP.items() if hasattr(proposal, mark)]
  if ours or not proposal.uses_gradient:
    raise ValueError(
      f"TFP's HMC does not have {(*ours, 'moves without a gradient')[0]}. Use "
      '`tfpa.frozen(kernel, results)`.'
    )
  state = tfp_private.get_innermost(results, 'proposed_state')
  log_prob = tfp_private.get_innermost(results, 'target_log_prob')
  if not tf.is_tensor(state) or state.shape.rank != log_prob.shape.rank + 1:
    raise ValueError(
      "TFP's kernel takes one mass matrix for each part, but this state is not "
      'one Tensor of shape [chains..., d]. Flatten the state to one vector, or '
      'use `tfpa.frozen(kernel, results)`.'
    )
  factor = proposal.preconditioner.operator(
    tfp_private.get_innermost(results, 'preconditioner_params')
  )
  hmc = tfp.experimental.mcmc.PreconditionedHamiltonianMonteCarlo(
    proposal.target_log_prob_fn,
    step_size=np.asarray(tfp_private.get_innermost(results, 'step_size')),
    num_leapfrog_steps=_num_steps(proposal, results),
    momentum_distribution=(
      tfp.experimental.distributions.MultivariateNormalPrecisionFactorLinearOperator(
        loc=tf.zeros_like(state[(0,) * log_prob.shape.rank]),
        precision_factor=factor,
      )
    ),
  )
  transformed = stack.first_with(kernel, 'bijector')
  if transformed is None:
    return hmc
  given = _linear(transformed.parameters['inner_kernel'])
  return tfp.mcmc.TransformedTransitionKernel(
    hmc.copy(target_log_prob_fn=given.target_log_prob_fn), transformed.bijector
  )


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
  preconditioner = _linear(kernel).preconditioner
  params = tfp_private.get_innermost(results, 'preconditioner_params')
  step_size = np.asarray(tfp_private.get_innermost(results, 'step_size'))
  if step_size.size > 1:
    raise ValueError(
      f'There is no one matrix where step sizes are {step_size.shape}, one for '
      'each chain. Use `tfpa.frozen(kernel, results)`.'
    )
  return step_size.item() * preconditioner.operator(params).to_dense().numpy()


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
  """Returns what one step does for each chain: the kernel's ledger.

  Wrappers around the kernel, those of TFP too, add nothing. Numbers that are
  drawn step by step (leapfrog steps, terms of a series, short steps that are
  not adapted to) count by their mean; those taken are in the kernel results. A
  learned range of leapfrog steps is data: frozen steps cost the mean of what
  was learned, adapting ones the mean of those already made.

  Args:
    kernel: A kernel built by a `tfpa` builder, or around one.
    adapting: Whether the step is one of the adapting ones.
    results: Its kernel results, read where the number of leapfrog steps is
      learned, and for how many steps were short: none, if left out.

  Returns:
    An `interfaces.Cost`.

  Raises:
    ValueError: If no kernel inside states its cost, as TFP's own do not, or
      what is learned is missing.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(target.log_prob, 500)
    cost = tfpa.cost_per_step(kernel, adapting=False)
    print(cost.gradient)  # 1.0
  """
  kernels = stack.kernels(kernel)
  of_replicas = stack.first_with(kernel, 'exchange_cost')
  if of_replicas is not None:
    return _cost_of_replicas(of_replicas, adapting, results)
  proposal = stack.first_with(kernel, 'cost')
  if proposal is None:
    raise ValueError(
      f'{type(kernels[-1]).__name__} does not state what a step costs. Pass a '
      'kernel of `tfpa`, or one around it; count the calls of any other '
      'target by hand.'
    )
  adapts = [w for w in kernels if adapting and hasattr(w, 'adapting_cost')]
  needs_replay = any(hasattr(wrapper, 'criterion') for wrapper in adapts)
  learned = _learned_mean(proposal, adapting, results)
  costs = [
    proposal.cost(needs_replay, **learned),
    *(w.adapting_cost for w in adapts),
  ]
  taught = [None if None in column else sum(column) for column in zip(*costs)]
  # Steps that teach nothing cost what frozen ones do.
  steps = next((k for k in kernels if isinstance(k, ShortSteps)), None)
  share = steps.teaching_share(results) if steps else 1.0
  return interfaces.Cost(
    *(
      cost if cost is None else frozen + share * (cost - frozen)
      for cost, frozen in zip(taught, proposal.cost(False, **learned))
    )
  )


def _cost_of_replicas(kernel, adapting, results):
  """Returns the cost of a step of all replicas and of their exchange."""
  costs = [
    cost_per_step(of_replica, adapting, its_results)
    for of_replica, its_results in (
      kernel.replica(results, index) for index in range(kernel.num_stepped)
    )
  ]
  return interfaces.Cost(
    *(
      None if None in column else sum(column)
      for column in zip(kernel.exchange_cost, *costs)
    )
  )


def _with_step_sizes(kernel, results):
  """Returns a kernel without preconditioner at what it was tuned to."""
  tuned = {
    name: np.asarray(tfp_private.get_innermost(results, name))
    for name in ('step_size', 'hyper_step_size', 'hyper_factor')
    if name in kernel.parameters
  }
  return kernel.copy(**tuned)


def _fixed(kernel, part, results):
  """Returns a part of the kernel with what it learned as constants."""
  params = tfp_private.get_innermost(results, _LEARNED[part])
  learner = kernel.parameters[part]
  if part != 'surrogate':
    return _constant(learner, params)
  params = tf.nest.map_structure(np.asarray, params)

  def init(event_size, dtype, seed):
    # A surrogate may hold Tensors that are not in the dtype of the state.
    return tf.nest.map_structure(
      lambda p, first: tf.cast(p, first.dtype),
      params,
      learner.init(event_size, dtype, seed),
    )

  return learner._replace(init=init)


def _constant(learner, params):
  """Returns a preconditioner or a transport that starts at its params."""
  params = tf.nest.map_structure(np.asarray, params)

  def init(event_size, dtype, scale):
    del event_size, scale
    return tf.nest.map_structure(
      lambda p: tf.convert_to_tensor(
        p, dtype=dtype if np.issubdtype(p.dtype, np.floating) else None
      ),
      params,
    )

  return learner._replace(init=init, init_scale=1.0)


def _fixed_walk(kernel, results):
  """Returns the law of a proposal's walks at what was learned, if it walks."""
  if not kernel.parameters.get('walk_share'):
    return {}
  walk = tfp_private.get_innermost(results, 'walk_params')
  return dict(
    walk_share=float(walk.share),
    walk_step_size=np.asarray(walk.step_size),
    walk_preconditioner=_constant(
      kernel.walk_preconditioner, walk.factor_params
    ),
  )


def _fixed_num_steps(kernel, results):
  """Returns the learned range of leapfrog steps, if there is one."""
  if kernel.parameters.get('max_num_leapfrog_steps') is None:
    return {}
  return dict(
    num_leapfrog_steps=_learned_range(kernel, results),
    max_num_leapfrog_steps=None,
  )


def _learned_range(proposal, results):
  drawn = tfp_private.get_innermost(results, 'num_leapfrog_steps')
  return proposal.learned_range(np.asarray(drawn))


def _num_steps(proposal, results):
  """Returns one number of leapfrog steps for all steps."""
  bounds = getattr(proposal, 'bounds', proposal.num_leapfrog_steps)
  if getattr(proposal, 'max_num_leapfrog_steps', None) is not None:
    bounds = _learned_range(proposal, results)
  return int(np.ceil(np.mean(bounds)))


def _learned_mean(proposal, adapting, results):
  """Returns the mean number of leapfrog steps, if it is learned."""
  if getattr(proposal, 'max_num_leapfrog_steps', None) is None:
    return {}
  if results is None:
    raise ValueError(
      'The number of leapfrog steps is learned, and so is the cost of a step. '
      'Pass the results as well: `tfpa.cost_per_step(kernel, adapting, '
      'result.final_kernel_results)`.'
    )
  if adapting:
    lengths = tfp_private.get_innermost(results, 'trajectory_length')
    taken = np.asarray(lengths.num_taken) / max(
      1, np.asarray(lengths.num_steps)
    )
    return {'mean_num_steps': float(taken)}
  learned = proposal.copy(
    num_leapfrog_steps=_learned_range(proposal, results),
  )
  return {'mean_num_steps': float(learned.mean_num_steps)}


def _linear(kernel):
  """Returns the proposal inside; refuses one that moves by no one matrix."""
  proposal = stack.first_with(kernel, 'cost')
  if proposal is None:
    raise ValueError("No kernel inside has 'cost'; pass one built by `tfpa`.")
  if hasattr(proposal, 'transport'):
    raise ValueError(
      'A transport is no matrix, so there is no covariance to return. Use '
      '`tfpa.frozen(kernel, results)`, or the params in its results.'
    )
  if not hasattr(proposal, 'preconditioner'):
    raise ValueError(
      f'{type(proposal).__name__} moves by no one matrix C, so there is none '
      'to return. Use `tfpa.frozen(kernel, results)`.'
    )
  return proposal
