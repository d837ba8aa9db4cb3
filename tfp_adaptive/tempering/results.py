"""Results of `ReplicaExchange`: states, temperatures and exchanges so far."""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive.core import merging
from tfp_adaptive.tempering import exchange


class _Fields(NamedTuple):
  """The fields of `ReplicaExchangeResults`."""

  target_log_prob: tf.Tensor  # Log density of the target, [chains...].
  # Whether the first replica's own step was accepted, [chains...] bool, and
  # the log ratio of that step, [chains...].
  is_accepted: tf.Tensor
  log_accept_ratio: tf.Tensor
  replica_states: Any  # [num_replicas, chains..., event...].
  replica_results: Any  # Results of their kernels, [num_replicas, ...] each.
  densities: exchange.Densities  # At the states.
  journeys: exchange.Journeys
  inverse_temperatures: tf.Tensor  # b, [num_replicas].
  # Share of rejected exchanges of each pair of neighbors, summed over all
  # passes of exchanges since b was set, [num_replicas - 1].
  rejections: tf.Tensor
  # Number of passes since b was set in which each pair tried an exchange,
  # [num_replicas - 1].
  num_exchanges: tf.Tensor
  step: tf.Tensor  # Steps taken, [] int32.
  seed: tf.Tensor  # [2] int32.


# A NamedTuple cannot replace `_replace` itself.
class ReplicaExchangeResults(_Fields):
  """Results of `ReplicaExchange`."""

  __slots__ = ()
  merge_rules = dict(replica_results=merging.stacked)

  @property
  def step_size(self):
    # TFP's step-size adaptations read this property.
    raise TypeError(
      'A step-size adaptation was put around `tfpa.replica_exchange`, whose '
      'replicas tune a step size each. Use the kernel alone.'
    )

  def _replace(self, /, **fields):
    # TFP's replica exchange writes `proposed_results` to swap states.
    if 'proposed_results' in fields:
      raise TypeError(
        '`tfpa.replica_exchange` was put inside of '
        '`tfp.mcmc.ReplicaExchangeMC`, but exchanges states of several '
        'temperatures itself. Use it alone, or give TFP one of the other '
        'builders.'
      )
    return super()._replace(**fields)

  @property
  def rejection_rates(self):
    """Rejection rates between neighbors, since b was set, [K - 1]."""
    return self.rejections / tf.maximum(self.num_exchanges, 1.0)

  @property
  def barrier(self):
    """Lambda, the communication barrier between the ends, []."""
    return tf.reduce_sum(self.rejection_rates)

  @property
  def num_restarts(self):
    """How many states came from the last replica to the first, [chains...]."""
    return self.journeys.num_restarts


def first(states, results, densities, inverse_temperatures):
  """Returns `ReplicaExchangeResults` before the first step."""
  log_prob = densities.target[0]
  pairs = tf.zeros_like(inverse_temperatures[1:])
  return ReplicaExchangeResults(
    target_log_prob=log_prob,
    is_accepted=tf.zeros_like(log_prob, tf.bool),
    log_accept_ratio=log_prob,
    replica_states=states,
    replica_results=results,
    densities=densities,
    journeys=exchange.Journeys(
      tf.zeros_like(densities.target, tf.bool),
      tf.zeros_like(log_prob, tf.int32),
    ),
    inverse_temperatures=inverse_temperatures,
    rejections=pairs,
    num_exchanges=pairs,
    step=tf.zeros([], tf.int32),
    seed=tf.zeros([2], tf.int32),
  )
