"""What the samplers written in JAX share: density, precision, programs, times.

A peer is an `Algorithm`, two pure functions over all chains. They are compiled
before they run, so compiling, adapting and sampling are timed apart. JAX is
imported when a peer is built; all its programs run in the target's precision
and on as many cores as the process may use, as TensorFlow's do.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from experiments.methods.base import Method
from experiments.methods.base import MethodParameters
from experiments.methods.windowed import Result
from experiments.targets import jax_density

__all__ = [
  'Algorithm',
  'JaxPeer',
  'Peer',
  'check_unthinned',
  'compiled_sampler',
  'peer_result',
]


class Algorithm(NamedTuple):
  """One sampler of one density, for all chains."""

  # (key, starts [chains, d]) -> carry, gradients taken [n_adaptation, chains].
  adapt: Callable
  # (key, carry) -> dict of [num_results, chains, ...]: states,
  # target_log_prob, diverging and leapfrogs_taken.
  draw: Callable


class Peer(MethodParameters):
  """Base of the samplers that need a target's density in JAX."""

  def check_target(self, target):
    """Raises ValueError unless the target has a density in JAX."""
    super().check_target(target)
    if target.jax_log_prob_fn is None:
      raise ValueError(
        f'it takes a density in JAX, but {target.name} is written in '
        'TensorFlow only; give the target a jax_log_prob_fn, as in '
        'experiments/targets/jax_density.py.'
      )

  def check_adaptation(self, options, least):
    """Raises ValueError if there are fewer adaptation steps than `least`."""
    if options.num_adaptation_steps < least:
      raise ValueError(
        f'num_adaptation_steps: {options.num_adaptation_steps} was given, but '
        f'{self.name} needs at least {least} for its windows.'
      )


class JaxPeer(Peer):
  """Base of the peers that are JAX programs."""

  def algorithm(self, log_prob, options, num_results) -> Algorithm:
    """Returns the `Algorithm` for log_prob, x [d] -> []."""
    raise NotImplementedError

  def build(self, target, options):
    jax_density.import_peer('jax')

    def make(num_results):
      return self.algorithm(target.jax_log_prob_fn(), options, num_results)

    return Method(
      None, None, None, sample_fn=compiled_sampler(make, target.dtype)
    )


def compiled_sampler(make_algorithm, dtype):
  """Returns a function with the keyword arguments of `tfpa.sample`.

  Args:
    make_algorithm: number of results to `Algorithm`, called in the precision
      of the target.
    dtype: 'float32' or 'float64', of the states.
  """
  programs = {}

  def sample_fn(init_state, num_results, seed, **unused):
    check_unthinned(unused)
    jax = jax_density.import_peer('jax')
    seconds = dict.fromkeys(('compile', 'adaptation', 'sampling'), 0.0)
    with jax_density.precision(dtype):
      starts = jax.numpy.asarray(init_state, dtype)
      keys = _keys(jax, seed)
      shape = (num_results, *starts.shape)
      if shape not in programs:
        begin = time.perf_counter()
        programs[shape] = _compile(
          jax, make_algorithm(num_results), keys, starts
        )
        seconds['compile'] = time.perf_counter() - begin
      adapt, draw = programs[shape]
      begin = time.perf_counter()
      carry, adapting = jax.block_until_ready(adapt(keys[0], starts))
      middle = time.perf_counter()
      drawn = jax.tree.map(np.asarray, draw(keys[1], carry))
      seconds['adaptation'] = middle - begin
      seconds['sampling'] = time.perf_counter() - middle
    return peer_result(drawn, np.asarray(adapting), seconds)

  return sample_fn


def check_unthinned(arguments):
  """Raises ValueError if `tfpa.sample`'s arguments ask for thinning."""
  if arguments.get('num_steps_between_results'):
    raise ValueError(
      'num_steps_between_results: '
      f'{arguments["num_steps_between_results"]} was given, but the peers do '
      'not thin; write 0.'
    )


def peer_result(drawn, adapting, seconds):
  """Returns the `Result` that a cell reads.

  Args:
    drawn: dict as of `Algorithm.draw`, numpy.
    adapting: gradients taken, [num_adaptation_steps, num_chains].
    seconds: dict of compile, adaptation and sampling.
  """
  states = drawn['states']
  # As TFP's NUTS has it: whether a step went anywhere. The state before the
  # first draw is not recorded.
  moved = np.any(states[1:] != states[:-1], axis=-1)
  trace = {
    'target_log_prob': drawn['target_log_prob'],
    'is_accepted': np.concatenate([np.ones_like(moved[:1]), moved]),
    'diverging': drawn['diverging'],
    'extra': {'leapfrogs_taken': drawn['leapfrogs_taken']},
  }
  return Result(
    states=states,
    trace=trace,
    adaptation_trace={'extra': {'leapfrogs_taken': adapting}},
    final_kernel_results=None,
    seconds=seconds,
  )


def _keys(jax, seed):
  """Returns keys for adapting and sampling, from two words."""
  first, second = (int(word) for word in np.asarray(seed))
  key = jax.random.fold_in(jax.random.PRNGKey(first), second)
  return jax.random.split(key)


def _compile(jax, algorithm, keys, starts):
  """Returns `adapt` and `draw` as compiled programs."""
  adapt = jax.jit(algorithm.adapt).lower(keys[0], starts)
  carry, _ = adapt.out_info
  draw = jax.jit(algorithm.draw).lower(keys[1], carry)
  return adapt.compile(), draw.compile()
