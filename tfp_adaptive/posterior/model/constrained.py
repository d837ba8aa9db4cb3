"""Returns draws in the model's own structure, computed in blocks.

A map onto the supports may need far more memory than its result. For a joint
distribution with data, the map runs the model, which may be vectorized with a
copy of the data for each draw.
"""

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import custom_gradient

# Most numbers in memory at a time: data, or matrices of all coordinates.
_MOST_NUMBERS = 2**26


def constrained(problem, draws):
  """Returns unconstrained draws [draws, chains, d] in the user's structure."""
  num_draws, num_chains, size = draws.shape
  held = size  # Maps of a log density hold about one draw.
  if problem.model is not None:
    held = size**2
    held += sum(np.size(part) for part in tf.nest.flatten(problem.observed))
  at_once = _MOST_NUMBERS // (num_chains * held) or 1
  if at_once >= num_draws:
    found = problem.constrain(tf.constant(draws))
    return tf.nest.map_structure(np.asarray, found)

  @tf.function(autograph=False)
  def constrain(rows):
    found = problem.constrain(rows)
    custom_gradient.let_go(tf.compat.v1.get_default_graph())
    return found

  parts = []
  for begin in range(0, num_draws, at_once):
    rows = draws[begin : begin + at_once]
    # The last block is filled up, so that one program serves all blocks.
    missing = [rows[:1]] * (at_once - len(rows))
    parts.append(constrain(tf.constant(np.concatenate([rows, *missing]))))
  return tf.nest.map_structure(
    lambda *blocks: np.concatenate(blocks)[:num_draws], *parts
  )
