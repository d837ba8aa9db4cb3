"""A fixed number of past states, pooled over chains.

After T steps, the state of step t is in the history with probability
proportional to (t / T)^(recency - 1). Recency 1 is a plain reservoir sample.
Recency 2 is used, because the first steps may be far from the bulk.
"""

from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive.core import random
from tfp_adaptive.core.tfp_private import prefer_static as ps

_RECENCY = 2.0
_MOST_SEEN = 2**30  # Keeps the count from an overflow of int32.


class History(NamedTuple):
  """Past states, one in each of n rows."""

  points: tf.Tensor  # States, [n, d].
  is_filled: tf.Tensor  # Whether a row holds a state, [n] bool.
  num_seen: tf.Tensor  # States offered so far, [] int32.
  chain: tf.Tensor  # Number of the chain that a row is from, [n] int32.
  time: tf.Tensor  # States offered before the row's step, [n] int32.

  @classmethod
  def merged(cls, parts, before):
    """Takes rows from the shards in turn; each shard has chains of its own."""
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

  A block of these rows that is held out has few neighbors among the others.
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
  """Offers one state of every chain, rows [b, d].

  States fill the rows one after the other. Once the history is full, every
  chain replaces states in rows of its own. With more chains than rows, chains
  take turns.
  """
  num_points = ps.shape(history.points)[0]
  rows, chain = _at_most(rows, num_points, history.num_seen)
  num_rows = ps.shape(rows)[0]
  dtype = rows.dtype
  place_seed, keep_seed = random.split(seed, 2)
  index = tf.range(num_rows)
  # Each chain has rows of its own, because two chains must not write to one.
  first = index * num_points // num_rows
  width = (index + 1) * num_points // num_rows - first
  # Uniforms are in (0, 1], and a 1 would give a row of the next chain.
  spot = random.uniform([num_rows], tf.float64, place_seed)
  offset = tf.cast(spot * tf.cast(width, tf.float64), tf.int32)
  slot = first + tf.minimum(offset, width - 1)
  is_filling = history.num_seen + num_rows <= num_points
  slot = tf.where(is_filling, history.num_seen + index, slot)
  # A full history keeps a new state with probability recency n / (states seen).
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
  """Returns the effective number of points, 1 / sum w^2, []."""
  square = tf.reduce_sum(point_weights**2)
  return 1.0 / tf.maximum(square, tf.constant(1e-12, square.dtype))


def spread(points, point_weights, count):
  """Returns `count` of the points, evenly spaced by cumulative weight.

  Equally spaced rows may be empty while the history fills.
  """
  share = tf.cumsum(point_weights) / tf.reduce_sum(point_weights)
  spots = tf.linspace(tf.constant(0.0, share.dtype), 1.0, 2 * count + 1)[1::2]
  index = tf.searchsorted(share, spots)
  return tf.gather(points, tf.minimum(index, ps.shape(points)[0] - 1))


def _at_most(rows, num_points, num_seen):
  """Returns at most `num_points` rows, and the numbers of their chains."""
  num_rows = ps.shape(rows)[0]
  static = tf.get_static_value(num_rows)
  if static is not None and static <= num_points:
    return rows, tf.range(num_rows)
  index = (tf.range(num_points) + num_seen) % num_rows
  index = index[: ps.minimum(num_points, num_rows)]
  return tf.gather(rows, index), index


def from_draws(history, draws):
  """Returns the history filled with draws [k, d] given beforehand.

  If k exceeds the number of points n, every (k / n)-th draw is kept; fewer
  draws leave rows empty. The draws count as k states seen, and states of the
  run may replace them.
  """
  num_points, num_draws = ps.shape(history.points)[0], ps.shape(draws)[0]
  count = ps.minimum(num_points, num_draws)
  # The product of both counts may exceed int32.
  index = tf.range(count, dtype=tf.int64) * int(num_draws) // int(count)
  kept = tf.gather(draws, index)
  return history._replace(
    points=tf.concat([kept, history.points[count:]], axis=0),
    is_filled=tf.range(num_points) < count,
    num_seen=tf.constant(min(num_draws, _MOST_SEEN), tf.int32),
  )
