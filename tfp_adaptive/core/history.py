"""A fixed number of past states, pooled over chains.

The state of step t stays in the history after T steps with probability
proportional to (t / T)^(recency - 1): recency 1 is a plain reservoir sample,
2 forgets the first steps, which a far start spoils.
"""

import collections

import tensorflow as tf

from tfp_adaptive.core import merging
from tfp_adaptive.core import random
from tfp_adaptive.core.tfp_private import prefer_static as ps

__all__ = [
  'History',
  'add',
  'effective_size',
  'from_draws',
  'in_order',
  'spread',
  'start',
  'weights',
]

_RECENCY = 2.0
_MOST_SEEN = 2**30  # The count stays there: int32 is not to overflow.


class History(
  merging.Merging,
  collections.namedtuple(
    'History', ['points', 'is_filled', 'num_seen', 'chain', 'time']
  ),
):
  """Past states.

  Attributes:
    points: [n, d].
    is_filled: Whether a row holds a state, [n] bool.
    num_seen: States offered so far, [] int32.
    chain: Number of the chain that a row is from, [n] int32.
    time: How many states had been offered before the row's step, [n] int32.
  """

  __slots__ = ()

  @classmethod
  def merged(cls, parts, before):
    """Returns a history that takes its places from all in turn.

    Each is a sample of what its chains saw, so that all have an equal share.
    """
    del before
    place = tf.range(ps.shape(parts[0].points)[0]) % len(parts)

    def take(rows):
      index = tf.stack([place, tf.range(ps.shape(rows[0])[0])], axis=1)
      return tf.gather_nd(tf.stack(rows), index)

    return cls(
      points=take([part.points for part in parts]),
      is_filled=take([part.is_filled for part in parts]),
      num_seen=parts[0].num_seen,
      chain=take([part.chain for part in parts]),
      time=take([part.time for part in parts]),
    )


def start(num_points, event_size, dtype):
  """Returns an empty history."""
  return History(
    points=tf.zeros([num_points, event_size], dtype),
    is_filled=tf.zeros([num_points], tf.bool),
    num_seen=tf.zeros([], tf.int32),
    chain=tf.zeros([num_points], tf.int32),
    time=tf.zeros([num_points], tf.int32),
  )


def in_order(history):
  """Returns points [n, d] and weights [n], by chain and then by time.

  What is held out in one block is then as far from the rest as it can be:
  neighbours in a chain are alike, and would vouch for each other.
  """
  order = tf.argsort(history.time, stable=True)
  chain = tf.gather(history.chain, order)
  order = tf.gather(order, tf.argsort(chain, stable=True))
  return tf.gather(history.points, order), tf.gather(weights(history), order)


def weights(history):
  """Returns weights of the rows, [n], that sum to one (or are all zero)."""
  filled = tf.cast(history.is_filled, history.points.dtype)
  return filled / tf.maximum(tf.reduce_sum(filled), 1.0)


def add(history, rows, seed):
  """Offers one state of every chain.

  Every row is drawn into a stratum of the history of its own, so that no two
  write to one place and all chains keep an equal share.

  Args:
    history: `History`.
    rows: [b, d].
    seed: [2] int32.

  Returns:
    `History`.
  """
  num_points = ps.shape(history.points)[0]
  rows, chain = _at_most(rows, num_points, history.num_seen)
  num_rows = ps.shape(rows)[0]
  dtype = rows.dtype
  place_seed, keep_seed = random.split(seed, 2)
  index = tf.range(num_rows)
  # Strata of whole rows, or two chains would write to one.
  first = index * num_points // num_rows
  width = (index + 1) * num_points // num_rows - first
  # Uniforms are in (0, 1]: a 1 would lie in the next stratum.
  spot = random.uniform([num_rows], tf.float64, place_seed)
  offset = tf.cast(spot * tf.cast(width, tf.float64), tf.int32)
  slot = first + tf.minimum(offset, width - 1)
  is_filling = history.num_seen + num_rows <= num_points
  slot = tf.where(is_filling, history.num_seen + index, slot)
  seen = tf.cast(history.num_seen + num_rows, dtype)
  chance = _RECENCY * tf.cast(num_points, dtype) / seen
  is_kept = is_filling | (
    random.uniform([num_rows], dtype, keep_seed) <= chance
  )
  is_finite = tf.reduce_all(tf.math.is_finite(rows), axis=-1)
  is_kept &= is_finite

  def write(held, new):
    keeps = is_kept if new.shape.rank < 2 else is_kept[:, tf.newaxis]
    new = tf.where(keeps, new, tf.gather(held, slot))
    return tf.tensor_scatter_nd_update(held, slot[:, tf.newaxis], new)

  return History(
    points=write(history.points, rows),
    is_filled=write(history.is_filled, tf.ones_like(is_kept)),
    num_seen=tf.minimum(history.num_seen, _MOST_SEEN) + num_rows,
    chain=write(history.chain, chain),
    time=write(history.time, tf.zeros_like(index) + history.num_seen),
  )


def effective_size(point_weights):
  """Returns how many equal weights are worth these, []."""
  square = tf.reduce_sum(point_weights**2)
  return 1.0 / tf.maximum(square, tf.constant(1e-12, square.dtype))


def spread(points, point_weights, count):
  """Returns `count` of the points, evenly by cumulative weight.

  Where rows are filled from the first one on, equal steps would miss them.
  """
  share = tf.cumsum(point_weights) / tf.reduce_sum(point_weights)
  spots = tf.linspace(tf.constant(0.0, share.dtype), 1.0, 2 * count + 1)[1::2]
  index = tf.searchsorted(share, spots)
  return tf.gather(points, tf.minimum(index, ps.shape(points)[0] - 1))


def _at_most(rows, num_points, num_seen):
  """Returns at most `num_points` of the rows, others at other steps.

  And the numbers of their chains.
  """
  num_rows = ps.shape(rows)[0]
  static = tf.get_static_value(num_rows)
  if static is not None and static <= num_points:
    return rows, tf.range(num_rows)
  index = (tf.range(num_points) + num_seen) % num_rows
  index = index[: ps.minimum(num_points, num_rows)]
  return tf.gather(rows, index), index


def from_draws(history, draws):
  """Returns the history filled with draws [k, d] given beforehand.

  Of more than n draws every (k / n)-th is kept; fewer leave rows empty. They
  count as k states seen: states of the run replace them as they would others.
  """
  num_points, num_draws = ps.shape(history.points)[0], ps.shape(draws)[0]
  count = ps.minimum(num_points, num_draws)
  # A product of both counts may not be an int32.
  index = tf.range(count, dtype=tf.int64) * int(num_draws) // int(count)
  kept = tf.gather(draws, index)
  return history._replace(
    points=tf.concat([kept, history.points[count:]], axis=0),
    is_filled=tf.range(num_points) < count,
    num_seen=tf.constant(min(num_draws, _MOST_SEEN), tf.int32),
  )
