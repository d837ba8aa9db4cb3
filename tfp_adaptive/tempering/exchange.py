"""Exchanges of states between neighboring replicas, chain by chain.

Replica k has the density p_k, log p_k = b_k log pi + (1 - b_k) log p_ref. With
l = log pi - log p_ref neighbors j and k exchange their states with probability
min(1, exp(r)),

  r = (b_j - b_k) (l(x_k) - l(x_j)).

Even pairs (0, 1), (2, 3), ... and odd pairs (1, 2), ... alternate, so that a
state keeps its direction. With random pairs a state would diffuse.

Source: Syed, Bouchard-Cote, Deligiannidis and Doucet (2022), Non-reversible
parallel tempering, https://arxiv.org/abs/1905.02939.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import random
from tfp_adaptive.core.tfp_private import prefer_static as ps


class Densities(NamedTuple):
  """Log densities at the states of all replicas, and their gradients.

  Both densities are kept, because log pi - log p_ref is infinite where only one
  of them is zero. If log p_ref = 0, the last two fields are `[]`.
  """

  target: tf.Tensor  # log pi, [num_replicas, chains...].
  # Gradient of log pi, in the structure of the states; `[]` if the kernel uses
  # none.
  grads_target: Any
  reference: Any  # log p_ref, [num_replicas, chains...].
  grads_reference: Any  # Gradient of log p_ref.


class Journeys(NamedTuple):
  """Which end, the first or the last replica, each state visited last."""

  # Whether the state took a step at the last replica after it was at the first,
  # [num_replicas, chains...] bool.
  is_hot: tf.Tensor
  # How many states came from the last replica to the first one, [chains...]
  # int32.
  num_restarts: tf.Tensor


def expand(values, like):
  """Returns values [K, ...] with as many axes as `like`."""
  return tf.reshape(
    values,
    ps.concat(
      [ps.shape(values), ps.ones(ps.rank(like) - ps.rank(values), tf.int32)],
      axis=0,
    ),
  )


def at(inverse_temperatures, densities):
  """Returns log densities and gradients of all replicas at their b."""

  def total(target, reference):
    b = expand(inverse_temperatures, target)
    # A log density with weight 0 may be infinite or NaN.
    value = tf.math.multiply_no_nan(target, b)
    if reference is None:
      return value
    return value + tf.math.multiply_no_nan(reference, 1.0 - b)

  def totals(target, reference):
    parts = tf.nest.flatten(target)
    others = tf.nest.flatten(reference) or [None] * len(parts)
    flat = [total(*pair) for pair in zip(parts, others)]
    return tf.nest.pack_sequence_as(target, flat)

  return (
    totals(densities.target, densities.reference),
    totals(densities.grads_target, densities.grads_reference),
  )


def ratio_of(densities):
  """Returns l, [num_replicas, chains...], of `Densities`."""
  if not tf.is_tensor(densities.reference):
    return densities.target
  return densities.target - densities.reference


def exchange(step, inverse_temperatures, carried, log_ratio, seed):
  """Exchanges the even or the odd pairs of neighbors, by the parity of `step`.

  Returns `carried`, Tensors [num_replicas, chains..., ...] that move with a
  state, after the exchange. It also returns two values for each pair of
  neighbors, [num_replicas - 1]: the share of rejections, and 1. Both are 0 for
  pairs that did not try. `log_ratio` is l at the states.
  """
  num_replicas = inverse_temperatures.shape[0]
  propose = tfp.mcmc.even_odd_swap_proposal_fn(1.0)
  partner = propose(num_replicas, step_count=step)
  place = tf.range(num_replicas, dtype=partner.dtype)
  change = tf.gather(inverse_temperatures, partner) - inverse_temperatures
  ratio = expand(change, log_ratio) * (
    log_ratio - tf.gather(log_ratio, partner)
  )
  # A ratio that is not finite is rejected.
  ratio = tf.where(tf.math.is_finite(ratio), ratio, -float('inf'))
  log_uniform = random.log_uniform(ps.shape(ratio), ratio.dtype, seed)
  # One draw decides for both states of a pair.
  log_uniform = tf.gather(log_uniform, tf.minimum(place, partner))
  is_exchanged = log_uniform < ratio
  carried = tf.nest.map_structure(
    lambda x: tf.where(
      expand(is_exchanged, x),
      tf.gather(x, partner),
      x,
    ),
    carried,
  )
  accept_prob = tf.exp(tf.minimum(ratio, 0.0))
  mean = tf.reduce_mean(tf.reshape(accept_prob, [num_replicas, -1]), axis=-1)
  is_tried = tf.cast(partner > place, ratio.dtype)[:-1]
  return carried, is_tried * (1.0 - mean[:-1]), is_tried


def names(log_ratio):
  """Returns a number for every state, [num_replicas, chains...] int32."""
  shape = ps.shape(log_ratio)
  return tf.reshape(tf.range(ps.reduce_prod(shape)), shape)


def moved(named, carried):
  """Returns `carried` in the order of `named`, the numbers of the states."""
  rank = ps.rank(named)
  flat = tf.reshape(named, [-1])

  def gathered(x):
    shape = ps.shape(x)
    rows = tf.reshape(x, ps.concat([[-1], shape[rank:]], axis=0))
    return tf.reshape(tf.gather(rows, flat), shape)

  return tf.nest.map_structure(gathered, carried)


def set_out(journeys):
  """Returns `Journeys` after a step of every replica."""
  is_hot = journeys.is_hot
  return journeys._replace(
    is_hot=tf.concat([is_hot[:-1], tf.ones_like(is_hot[-1:])], axis=0)
  )


def arrive(journeys):
  """Returns `Journeys` after an exchange."""
  is_hot = journeys.is_hot
  return Journeys(
    tf.concat([tf.zeros_like(is_hot[:1]), is_hot[1:]], axis=0),
    journeys.num_restarts + tf.cast(is_hot[0], tf.int32),
  )


def exchange_all(results, seed):
  """Returns results after the exchanges of a step.

  There are as many passes as replicas, or one more, so that a state can go from
  one end to the other. Two replicas make one pass, because a second pass would
  undo the first. Passes exchange only the numbers of states. At the end the
  states are put into the order of the numbers. No gradient is computed.
  """
  num_replicas = results.inverse_temperatures.shape[0]
  num_turns = 1 if num_replicas == 2 else 2 * -(-num_replicas // 2)
  seeds = tf.stack(random.split(seed, num_turns))
  log_ratio = ratio_of(results.densities)

  def take(turn, named, values, journeys, rejections, num_exchanges):
    (named, values, is_hot), rejected, is_tried = exchange(
      turn,
      results.inverse_temperatures,
      (named, values, journeys.is_hot),
      values,
      seeds[turn],
    )
    return (
      turn + 1,
      named,
      values,
      arrive(journeys._replace(is_hot=is_hot)),
      rejections + rejected,
      num_exchanges + is_tried,
    )

  _, named, _, journeys, rejections, num_exchanges = tf.while_loop(
    lambda turn, *_: turn < num_turns,
    take,
    (
      0,
      names(log_ratio),
      log_ratio,
      set_out(results.journeys),
      results.rejections,
      results.num_exchanges,
    ),
  )
  states, densities = moved(named, (results.replica_states, results.densities))
  return results._replace(
    replica_states=states,
    densities=densities,
    journeys=journeys,
    rejections=rejections,
    num_exchanges=num_exchanges,
  )
