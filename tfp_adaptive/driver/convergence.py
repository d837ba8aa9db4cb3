"""R-hat of the draws of a run, to warn of chains that disagree.

Of half chains, so that one chain that drifts is seen too, and without ranks.
Half an answer: chains that all miss the same region agree.

Source: Gelman et al. (2013), Bayesian Data Analysis, section 11.4.
"""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

__all__ = ['FEWEST_DRAWS', 'worst_rhat']

# With fewer, R-hat of a good run is above what is warned of.
FEWEST_DRAWS = 100
_BLOCK = 256  # Coordinates taken at once: bounds the memory in float64.
_MOST_NUMBERS = 2**26  # Of all draws; more are thinned.


def worst_rhat(states, num_chain_dims):
  """Returns (R-hat, name) of the coordinate with the largest.

  Args:
    states: Arrays [num_draws, chains..., event...], a structure of them.
    num_chain_dims: How many dimensions are chains.

  Returns:
    A float and the words that name the coordinate. Coordinates that never move
    have no R-hat; (nan, '') where all are of that kind.
  """
  parts = tf.nest.flatten(states)
  found = []
  for number, part in enumerate(parts):
    if not part.size:
      continue
    rhat = _rhat(part, num_chain_dims)
    if not np.all(np.isnan(rhat)):
      worst = int(np.nanargmax(rhat))
      index = np.unravel_index(worst, part.shape[1 + num_chain_dims :])
      found.append((float(rhat[worst]), _name(index, number, len(parts))))
  return max(found, default=(float('nan'), ''))


def _rhat(part, num_chain_dims):
  num_chains = int(np.prod(part.shape[1 : 1 + num_chain_dims]))
  rows = part.reshape(len(part), num_chains, -1)
  rows = rows[:: -(-rows.size // _MOST_NUMBERS)]
  with tf.device('/CPU:0'):  # Where the draws are, and float64 is known.
    blocks = [
      tfp.mcmc.potential_scale_reduction(
        rows[:, :, start : start + _BLOCK].astype(np.float64),
        split_chains=True,
      )
      for start in range(0, rows.shape[2], _BLOCK)
    ]
  # TFP returns the ratio of variances.
  return np.sqrt(np.concatenate(blocks))


def _name(index, part, num_parts):
  of_part = f' of part {part}' if num_parts > 1 else ''
  if not index:
    return f'the state{of_part}'
  shown = index[0] if len(index) == 1 else tuple(int(i) for i in index)
  return f'coordinate {shown}{of_part}'
