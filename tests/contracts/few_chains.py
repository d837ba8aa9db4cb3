"""Runs of 1, 2 or 4 chains from exact draws, many of them, and their law.

A step that depends on the state by a mean over chains changes the law of few
chains, and hardly that of 50 000. So every replicate is a run of its own, of
several steps, in a loop inside one compiled program: 10 microseconds a step.
"""

import functools
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy import stats

from tfp_adaptive.core import random
from tfp_adaptive.core import tfp_private

NUM_STEPS = 8


class FewChains(NamedTuple):
  """A sampler with a target of which there are exact draws."""

  name: str
  # (temper) -> kernel; at temper 1 of the law below, else of a wrong target.
  build: Callable
  # Has `draw(num, seed)` -> states [num, ...] and `whiten(states)` -> [num, d],
  # N(0, I) under the law.
  law: Any
  # What the wrong kernel makes a function of the state: the innermost field;
  # None where no field is the length of a step.
  steered: Any = 'step_size'
  # (results) -> [], what differs from step to step by chance: the length of a
  # step, the number of leapfrog steps. None where nothing does.
  varying: Any = None
  num_replicates: int = 40_000


class Run(NamedTuple):
  """Whitened states at the start and the end, [replicates, chains, d]."""

  before: Any
  after: Any
  accepted: float  # Share of the last steps.
  varied: Any  # Values of `FewChains.varying` in the last steps, [replicates].


def runner(case, num_chains):
  """Returns (temper, strength) -> `Run`, compiled once.

  Args:
    case: `FewChains`.
    num_chains: Of a replicate. Every one has seeds of its own.

  Returns:
    A function. Strength 0 is the kernel as it is; with another the field
    `case.steered` is multiplied before each step by 1 + strength or by
    1 - strength, by whether the mean of the chains' states is above that of the
    law: a slip that reads the state where it should not.
  """
  num_replicates = case.num_replicates
  count = num_replicates * num_chains
  flat_starts = case.law.draw(count, seed=1)
  starts = tf.nest.map_structure(
    lambda s: tf.constant(
      s.reshape(num_replicates, num_chains, *s.shape[1:]), tf.float64
    ),
    flat_starts,
  )
  center = np.mean(tf.nest.flatten(flat_starts)[-1])
  program = tf.function(
    lambda *args: _replicates(case, center, *args),
    jit_compile=True,
    autograph=False,
  )

  def run(temper=1.0, strength=0.0):
    states, accepted, varied = program(
      starts, *(tf.constant(v, tf.float64) for v in (temper, strength))
    )

    def whiten(states):
      rows = tf.nest.map_structure(
        lambda s: np.reshape(s, [count, *s.shape[2:]]), states
      )
      return case.law.whiten(rows).reshape(num_replicates, num_chains, -1)

    return Run(
      whiten(starts), whiten(states), float(np.mean(accepted)), varied.numpy()
    )

  return run


def _replicates(case, center, starts, temper, strength):
  """Returns last states, acceptance and `varying` of all replicates."""
  kernel, num_replicates = case.build(temper), case.num_replicates

  def replicate(index, written):
    state = tf.nest.map_structure(lambda s: s[index], starts)
    seed = random.fold_in(tf.constant([3, 4]), index)
    state, results = _run(
      kernel, functools.partial(_steered, case, center, strength), state, seed
    )
    accepted = tfp_private.get_innermost(results, 'is_accepted', default=True)
    varied = case.varying(results) if case.varying else 0.0
    last = (
      *tf.nest.flatten(state),
      tf.reduce_mean(tf.cast(accepted, tf.float64)),
      tf.cast(varied, tf.float64),
    )
    return index + 1, tuple(a.write(index, x) for a, x in zip(written, last))

  shapes = [s.shape[1:] for s in tf.nest.flatten(starts)] + [[], []]
  arrays = tuple(
    tf.TensorArray(tf.float64, num_replicates, element_shape=shape)
    for shape in shapes
  )
  _, arrays = tf.while_loop(
    lambda index, _: index < num_replicates, replicate, (0, arrays)
  )
  *states, accepted, varied = [array.stack() for array in arrays]
  return tf.nest.pack_sequence_as(starts, states), accepted, varied


def _steered(case, center, strength, state, results):
  """Returns results with the field that is steered, and its old value."""
  if not case.steered:
    return results, {}
  field = tfp_private.get_innermost(results, case.steered)
  side = tf.sign(tf.reduce_mean(tf.nest.flatten(state)[-1]) - center)
  moved = {case.steered: field * (1.0 + strength * side)}
  return tfp_private.replace_innermost(results, **moved), {case.steered: field}


def _run(kernel, steer, state, seed):
  """Returns state and results after `NUM_STEPS` steps."""

  def step(count, state, results):
    results, kept = steer(state, results)
    state, results = kernel.one_step(
      state, results, seed=random.fold_in(seed, count)
    )
    return state, tfp_private.replace_innermost(results, **kept)

  results = kernel.bootstrap_results(state)
  if hasattr(results, 'scale_search'):
    # One that learns, after the last step that does.
    results = results._replace(step=tf.constant(kernel.num_adaptation_steps))
  # The first step outside of the loop: it fixes the structure of the results.
  state, results = step(0, state, results)
  _, state, results = tf.while_loop(
    lambda count, *_: count < NUM_STEPS,
    lambda count, state, results: (count + 1, *step(count, state, results)),
    (1, state, results),
  )
  return state, results


def smallest_p_value(run):
  """Returns the smallest p-value, times the number of tests.

  Z-tests over replicates of what has mean zero under the law of independent
  chains: z_i, z_i^2 - 1 and z_i z_j averaged over chains; and the products of
  two chains' z_i and z_i^2 - 1. What the start tells of each is taken off.
  """
  p_values = []
  for before, after in zip(_moments(run.before), _moments(run.after)):
    slope = np.mean(before * after) / np.mean(before**2)
    rest = after - slope * before
    error = rest.std() / len(rest) ** 0.5
    p_values.append(2.0 * stats.norm.sf(abs(rest.mean()) / error))
  return len(p_values) * min(p_values)


def _moments(z):
  """Returns numbers of mean zero, each [replicates]."""
  num_chains, size = z.shape[1:]
  squares = z**2 - 1.0
  found = [*z.mean(axis=1).T, *squares.mean(axis=1).T]
  for i in range(size):
    found += [(z[..., i] * z[..., j]).mean(axis=1) for j in range(i)]
  if num_chains > 1:
    for rows in (z, squares):
      # The sum over pairs of different chains.
      pairs = rows.sum(axis=1) ** 2 - (rows**2).sum(axis=1)
      found += [*(pairs.T / (num_chains * (num_chains - 1)))]
  return found
