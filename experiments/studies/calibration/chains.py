"""Runs of a kernel on many data sets at once, for both tests.

A kernel may draw some of its randomness once for all chains, such as the number
of leapfrog steps of surrogate HMC. Given these draws, the kernel is a sequence
of kernels that leave every posterior invariant, and the chains are independent.
In a window, each step between two places uses one kernel of the sequence,
whether a chain passes forwards or backwards. Ranks of different chains
therefore stay independent.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from experiments.run.study import Settings
from experiments.studies.calibration import geweke
from experiments.studies.calibration import models
from experiments.studies.calibration import rank_test

# Numbers that `fold_in` adds to the seed of a run.
_STATE, _DATA, _HELD, _STEPS, _MARGINAL, _NUM_STREAMS = range(6)


class Sizes(Settings):
  """Sizes of both tests.

  Attributes:
    num_chains: Data sets of either test.
    num_ranks: L, the number of states of a window.
    num_successive: Steps of the successive-conditional chains. Their second
      half is averaged.
    num_marginal: Independent draws with which the averages are compared.
  """

  num_chains: int = 1000
  num_ranks: int = 16
  num_successive: int = 100
  num_marginal: int = 200_000

  def smoke(self) -> 'Sizes':
    """Returns sizes that have no power."""
    return self.model_copy(
      update={
        'num_chains': 50,
        'num_ranks': 8,
        'num_successive': 4,
        'num_marginal': 1000,
      }
    )


class Averages(NamedTuple):
  """Bounded functions of the quantities, by both ways of drawing.

  Attributes:
    names: Names of the quantities.
    marginal: The functions at independent draws, [2, q, num_marginal].
    successive: Averages along the chains, [2, q, num_chains].
    move_share: Share of the steps that changed the state.
  """

  names: list[str]
  marginal: np.ndarray
  successive: np.ndarray
  move_share: float


def draw_ranks(
  model: models.Model, make: Callable, sizes: Sizes, thinning: int, seed: int
) -> dict[str, np.ndarray]:
  """Returns ranks of the truths among the states of their windows.

  Args:
    make: Function from data to a reversible kernel that adapts nothing.

  Returns:
    dict of ints, [num_chains], by the names of the quantities.
  """
  state, data = draw_joint(model, sizes.num_chains, seed)
  rng = np.random.default_rng(seed)
  place = rng.integers(sizes.num_ranks, size=sizes.num_chains, dtype=np.int32)
  sweep = tf.function(
    _sweep(model, make, sizes.num_ranks - 1, thinning),
    autograph=False,
  )
  steps = models.fold_in([seed, seed], _STEPS)
  runs = [
    sweep(state, data, tf.constant(place), tf.constant(is_forward), steps)
    for is_forward in (True, False)
  ]
  truth = model.quantities(state, data)
  # Edge e lies between the places e and e + 1.
  is_ahead = np.arange(sizes.num_ranks - 1)[:, np.newaxis] >= place
  forward, backward = (_map_quantities(model, states, data) for states in runs)
  return {
    name: rank_test.ranks(
      truth[name].numpy(),
      np.where(is_ahead, forward[name], backward[name]),
      rng,
    )
    for name in truth
  }


def run_successive(
  model: models.Model, make: Callable, sizes: Sizes, seed: int
) -> Averages:
  """Returns averages along successive-conditional chains, and marginal draws.

  Args:
    make: Function from data to a kernel that adapts nothing.
  """
  marginal = model.quantities(
    *draw_joint(model, sizes.num_marginal, seed + _MARGINAL)
  )
  marginal = np.stack([value.numpy() for value in marginal.values()])
  center = marginal.mean(axis=-1, keepdims=True)
  width = marginal.std(axis=-1, keepdims=True)
  state, data = draw_joint(model, sizes.num_chains, seed)
  run = tf.function(
    _successive(model, make, sizes.num_successive, center, width),
    autograph=False,
  )
  sums, moved = run(state, data, models.fold_in([seed, seed], _STEPS))
  num_averaged = sizes.num_successive - sizes.num_successive // 2
  return Averages(
    names=list(model.quantities(state, data)),
    marginal=geweke.bounded(marginal, center, width, np),
    successive=sums.numpy() / num_averaged,
    move_share=float(moved) / sizes.num_successive,
  )


def draw_joint(model: models.Model, num: int, seed: int) -> tuple[Any, Any]:
  """Returns states and data that are drawn jointly."""
  state = model.draw(num, models.fold_in([seed, seed], _STATE))
  return state, model.simulate(state, models.fold_in([seed, seed], _DATA))


def _sweep(model, make, num_edges, thinning):
  """Returns a run over all edges of the windows, in either direction."""

  def sweep(state, data, place, is_forward, seed):
    kernel = make(data)
    first = (state, _start(model, kernel, state, data, seed))

    def step(edge, index, state, results):
      turn = tf.where(is_forward, index, thinning - 1 - index)
      stepped = kernel.one_step(
        state,
        results,
        seed=models.fold_in(seed, _NUM_STREAMS + edge * thinning + turn),
      )
      moves = tf.where(is_forward, edge >= place, edge < place)
      return _choose(moves, stepped, (state, results))

    def pass_edge(number, state, results, recorded):
      edge = tf.where(is_forward, number, num_edges - 1 - number)
      _, state, results = tf.while_loop(
        lambda index, *_: index < thinning,
        lambda index, *both: (index + 1, *step(edge, index, *both)),
        (0, state, results),
      )
      recorded = tf.nest.map_structure(
        lambda array, part: array.write(edge, part), recorded, state
      )
      return number + 1, state, results, recorded

    arrays = tf.nest.map_structure(
      lambda part: tf.TensorArray(
        part.dtype, size=num_edges, element_shape=part.shape
      ),
      state,
    )
    *_, recorded = tf.while_loop(
      lambda number, *_: number < num_edges, pass_edge, (0, *first, arrays)
    )
    return tf.nest.map_structure(lambda array: array.stack(), recorded)

  return sweep


def _successive(model, make, num_steps, center, width):
  """Returns the run of all successive-conditional chains."""

  def run(state, data, seed):
    def step(index, state, data, sums, moved):
      now = models.fold_in(seed, _NUM_STREAMS + index)
      kernel = make(data)
      results = _start(model, kernel, state, data, now)
      after, _ = kernel.one_step(
        state, results, seed=models.fold_in(now, _STEPS)
      )
      data = model.simulate(after, models.fold_in(now, _DATA))
      values = tf.stack(list(model.quantities(after, data).values()))
      counts = tf.cast(index >= num_steps // 2, values.dtype)
      sums += counts * geweke.bounded(values, center, width, tf)
      return index + 1, after, data, sums, moved + _share_moved(state, after)

    shape = [
      len(geweke.SHAPES),
      len(center),
      tf.nest.flatten(state)[0].shape[0],
    ]
    *_, sums, moved = tf.while_loop(
      lambda index, *_: index < num_steps,
      step,
      (0, state, data, tf.zeros(shape, tf.float64), tf.zeros([], tf.float64)),
    )
    return sums, moved

  return run


def _start(model, kernel, state, data, seed):
  """Returns kernel results at draws of the posterior."""
  results = kernel.bootstrap_results(state)
  if model.held_estimate is None:
    return results
  held = model.held_estimate(state, data, models.fold_in(seed, _HELD))
  accepted = results.accepted_results._replace(target_log_prob=held)
  return results._replace(accepted_results=accepted)


def _choose(moves, after, before):
  """Selects by chain; results that chains share do not change."""

  def choose(new, old):
    if new.shape.rank == 0 or new.shape[0] != moves.shape[0]:
      return new
    mask = tf.reshape(moves, [-1] + [1] * (new.shape.rank - 1))
    return tf.where(mask, new, old)

  return tf.nest.map_structure(choose, after, before)


def _share_moved(before, after):
  """Returns the share of chains whose state changed, []."""
  changes = [
    tf.reduce_any(tf.reshape(new != old, [new.shape[0], -1]), axis=-1)
    for new, old in zip(tf.nest.flatten(after), tf.nest.flatten(before))
  ]
  return tf.reduce_mean(
    tf.cast(tf.reduce_any(tf.stack(changes), axis=0), tf.float64)
  )


def _map_quantities(model, states, data):
  """Returns the quantities at recorded states, dict of [edges, chains]."""
  num_edges = tf.nest.flatten(states)[0].shape[0]

  def at(edge):
    state = tf.nest.map_structure(lambda part: part[edge], states)
    return model.quantities(state, data)

  rows = [at(edge) for edge in range(num_edges)]
  return {
    name: np.stack([row[name].numpy() for row in rows]) for name in rows[0]
  }
