"""Targets known only by a random, unbiased estimate of the density.

Such a target takes a seed and returns the logarithm of a positive estimate:

  target_log_prob_fn(*parts, seed=seed) = log pi(x) + log W,   E[W | x] = 1

Pseudo-marginal Metropolis-Hastings keeps the estimate that was drawn when a
state was proposed. With p the density of W, the chain leaves pi(x) w p(w | x)
invariant. The marginal in x of this density is pi. A second estimate at the
current state would make the chain inexact. Kernels therefore keep the estimate
in `target_log_prob` of their accepted results.

The draws depend on the mode of execution. A target that calls
`tf.random.stateless_normal` gets other numbers under XLA than without.

Source: Andrieu and Roberts (2009), The pseudo-marginal approach for efficient
Monte Carlo computations, https://arxiv.org/abs/0903.5480.
"""

import inspect

from tfp_adaptive.core import random
from tfp_adaptive.core import shown
from tfp_adaptive.core import state_parts

# Seed of the estimate at the start; TFP's `bootstrap_results` takes no seed.
_BOOTSTRAP_SEED = (20090401, 697725)


def evaluate(target_log_prob_fn, state, seed, is_stochastic, shape=None):
  """Evaluates or estimates the target, [chains...].

  Every chain has an estimate of its own. For `shape` see `state_parts.value`.
  """
  if not is_stochastic:
    return state_parts.value(target_log_prob_fn, state, shape)

  def with_seed(*parts, **named_parts):
    return target_log_prob_fn(*parts, **named_parts, seed=seed)

  return state_parts.value(with_seed, state, shape)


def split_seed(seed, is_stochastic):
  """Returns the seeds of the proposal and of the target.

  For an exact target both are `seed` itself, so that the draws equal those of a
  kernel without stochastic targets.
  """
  return random.split(seed, 2) if is_stochastic else (seed, seed)


def bootstrap_seed():
  """Returns the seed of the estimate at the start, the same in every run.

  The chain forgets this estimate with its first accepted move. Runs with
  different seeds share the estimate until then.
  """
  return random.sanitize(_BOOTSTRAP_SEED)


def check(target_log_prob_fn, is_stochastic):
  """Refuses a target whose signature does not fit `target_is_stochastic`.

  `is_stochastic` is `None` for kernels that take exact targets only.
  """
  if not isinstance(is_stochastic, (bool, type(None))):
    raise ValueError(
      '`target_is_stochastic` must be True or False, but got '
      f'{is_stochastic!r}.'
    )
  takes_seed, requires_seed = _seed_of(target_log_prob_fn)
  if is_stochastic and not takes_seed:
    raise ValueError(
      '`target_is_stochastic=True`, but `target_log_prob_fn` '
      f'({shown.function(target_log_prob_fn)}) takes no argument `seed`. Write '
      '`def target_log_prob_fn(x, seed):`, draw all its randomness from `seed` '
      '([2] int32) by `tf.random.stateless_*`, and return the logarithm of an '
      'unbiased estimate of the density, [chains...]. '
      '`TransformedTransitionKernel` and `ReplicaExchangeMC` rebuild a kernel '
      'with a function that takes no seed, so they do not work with a '
      'stochastic target: transform inside of the target instead, and add the '
      'log determinant of the Jacobian there.'
    )
  if not is_stochastic and requires_seed:
    raise ValueError(
      f'`target_log_prob_fn` ({shown.function(target_log_prob_fn)}) requires a '
      '`seed`, as a random estimate of a density does. '
      + (
        'This kernel needs the density itself, or its gradient. For estimates '
        'use `tfpa.adaptive_metropolis` or `tfpa.kernel_hamiltonian` with '
        '`target_is_stochastic=True`.'
        if is_stochastic is None
        else 'Write `target_is_stochastic=True`: `tfpa.adaptive_metropolis`, '
        '`tfpa.kernel_hamiltonian` and their proposals take it.'
      )
      + ' If `seed` is a part of the state, give that part another name.'
    )


def _seed_of(function):
  """Returns whether `function` takes a `seed`, and whether it must have one."""
  try:
    parameters = inspect.signature(function).parameters
  except (TypeError, ValueError):  # Some callables have no signature.
    return True, False
  by_name = parameters.get('seed')
  if by_name is not None and by_name.kind in (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
  ):
    return True, by_name.default is inspect.Parameter.empty
  takes_any = any(
    p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()
  )
  return takes_any, False
