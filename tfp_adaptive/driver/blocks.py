"""A block of steps as one compiled program that runs many times.

The number of results and the number of steps between results are arguments of
the program. So adaptation, sampling and a shorter last block share one
compilation. The seed of a step depends only on the step's number, so the block
size does not change the draws.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import custom_gradient
from tfp_adaptive.core import random
from tfp_adaptive.core import stack
from tfp_adaptive.core import target_call
from tfp_adaptive.core import tfp_private
from tfp_adaptive.driver import compilation_cache
from tfp_adaptive.driver import program_digest
from tfp_adaptive.interfaces import types

_DIVERGENCE = -1000.0  # Largest log acceptance ratio of a divergence.
# Operations whose size is the block length. Digests leave this size out,
# because it does not affect the draws.
_SIZED_BY_BLOCK = ('TensorListReserve', 'TensorListStack')


class Block(NamedTuple):
  """A block of steps, as two functions.

  Both take (state, kernel_results, seed, first_step, num_results,
  steps_per_result).
  """

  # Returns (state, kernel_results, recorded). `recorded` has the leading
  # dimension `block_size`; its first `num_results` rows are filled.
  run: Callable
  # Returns the `Program`, which is the same for all sizes of blocks.
  describe: Callable


def build(kernel, trace_fn, block_size, jit_compile, known=None):
  """Returns the compiled `Block`, which can hold `block_size` results.

  The results of `trace_fn`(state, kernel_results) are recorded. `known` is
  `None`, or `known_programs.Known`, whose programs are reused.
  """
  block = _program(kernel, trace_fn, block_size)
  compiled = tf.function(block, jit_compile=jit_compile, autograph=False)
  chosen = {}  # Traced function -> function to call.

  def run(*args):
    traced = compiled.get_concrete_function(*args)
    if traced not in chosen:
      chosen[traced] = known.same(traced, jit_compile) if known else traced
    return chosen[traced](*args)

  def explained(function):
    def call(*args):
      try:
        return function(*args)
      except (tf.errors.OpError, LookupError, ValueError, TypeError) as error:
        said = _explain(error) if jit_compile else error
        if said is error and isinstance(error, tf.errors.OpError):
          said = target_call.failed(error)
        if said is error:
          raise
        raise said from error

    return call

  def describe(*args):
    return program_digest.describe(
      compiled.get_concrete_function(*args), _SIZED_BY_BLOCK
    )

  return Block(explained(run), explained(describe))


def _program(kernel, trace_fn, block_size):
  """Returns the function that is compiled, see `Block.run`."""

  def block(state, results, seed, first_step, num_results, steps_per_result):
    compilation_cache.number_names()

    def one_step(step, state, results):
      state, results = kernel.one_step(
        state, results, seed=random.fold_in(seed, step)
      )
      return step + 1, state, results

    def one_result(index, step, state, results, recorded):
      last = step + steps_per_result
      step, state, results = tf.while_loop(
        lambda s, *_: s < last, one_step, (step, state, results)
      )
      recorded = tf.nest.map_structure(
        lambda array, row: array.write(index, row),
        recorded,
        trace_fn(state, results),
      )
      return index + 1, step, state, results, recorded

    recorded = tf.nest.map_structure(
      lambda row: tf.TensorArray(
        row.dtype, size=block_size, element_shape=row.shape
      ),
      trace_fn(state, results),
    )
    _, _, state, results, recorded = tf.while_loop(
      lambda i, *_: i < num_results,
      one_result,
      (0, first_step, state, results, recorded),
    )
    custom_gradient.let_go(tf.compat.v1.get_default_graph())
    return (
      state,
      results,
      tf.nest.map_structure(lambda array: array.stack(), recorded),
    )

  return block


def default_trace(state, results):
  """Returns what is recorded for every kernel, a dict of [chains...]."""
  del state
  trace = stack.recorded(results)
  diverging = trace.pop('has_divergence', None)
  if diverging is None and 'log_accept_ratio' in trace:
    ratio = trace['log_accept_ratio']
    # In a graph, TensorFlow would turn `~(ratio > _DIVERGENCE)` into `<=`,
    # which is false for NaN.
    diverging = (ratio <= _DIVERGENCE) | tf.math.is_nan(ratio)
  if diverging is not None:
    trace['diverging'] = diverging
  return trace


def sample_stats(
  kernel: tfp.mcmc.TransitionKernel, results: types.Structure
) -> dict[str, tf.Tensor]:
  """Returns statistics of a step, by name.

  `tfpa.sample` records these statistics itself. With `tfp.mcmc.sample_chain`,
  call this function in the `trace_fn`. Statistics that a kernel does not have
  are left out.

  Args:
    kernel: A kernel of this library, possibly inside TFP's wrappers.
    results: Its kernel results after the step.

  Returns:
    A dict of Tensors. `target_log_prob`, `is_accepted`, `log_accept_ratio` and
    `diverging` are [chains...]. `step_size` is [] or [chains..., 1]. Scalars of
    the adaptation are []: `mean_accept_prob`, `log_scale` (log |det C| / d),
    `num_dropped_gradients` (non-finite gradients so far), and numbers of the
    criterion, such as `entropy_weight`.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(target.log_prob, 500)
    _, stats = tfp.mcmc.sample_chain(
      num_results=500,
      current_state=tf.zeros([4, 3]),
      kernel=kernel,
      trace_fn=lambda state, results: tfpa.sample_stats(kernel, results),
      seed=(0, 1),
    )
    print(stats['step_size'][-1], stats['entropy_weight'][-1])
  """
  stats = default_trace(None, results)
  step_size = tfp_private.find_innermost(results, 'step_size')
  if step_size is not None:
    stats['step_size'] = tf.convert_to_tensor(step_size)
  return {**stats, **stack.scalars(kernel, results)}


def refused_operation(text):
  """Returns the operation that an error of XLA or TensorFlow names, or ''."""
  found = re.search(
    r"(?:on XLA_\w+_JIT: |No registered '|no registered converter for "
    r"operation: |No gradient defined for operation '[^']*' \(op type: |"
    r'gradient registry has no entry for: )(\w+)',
    text,
  )
  return found.group(1) if found else ''


def _explain(error):
  """Returns an error that says what to do, if XLA caused the given error."""
  text = str(error)
  operation = refused_operation(text)
  if operation:
    reason = f': op {operation!r} has no XLA kernel or gradient'
  elif 'XLA compilation' in text:
    reason = ''
  else:
    return error
  return ValueError(
    f'The target cannot be compiled by XLA{reason}. Rewrite it, or pass '
    '`jit_compile=False` (most targets are then 10 to 70 times slower on CPU). '
    f'XLA said: {text.splitlines()[0][:500]}'
  )
