"""Replica exchange that learns: a sampler and a temperature for each replica.

K replicas, each of some chains, have the densities

  log p_k = b_k log pi + (1 - b_k) log p_ref,   1 = b_0 > ... > b_(K-1),

p_ref = 1 by default: powers of the target. Every replica takes a step of a
sampler of its own, with a factor, a step size and a number of leapfrog steps
learned there from all of its chains. Then neighbors exchange states
(`exchange`), and after rounds of doubling length the temperatures move to where
all exchanges are rejected equally often (`temperatures`).

Source: Syed, Bouchard-Cote, Deligiannidis and Doucet (2022), Non-reversible
parallel tempering, https://arxiv.org/abs/1905.02939.
"""

import functools

import numpy as np
import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import kernel_base
from tfp_adaptive.core import random
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import stochastic_target
from tfp_adaptive.core import tfp_private
from tfp_adaptive.linear.fisher_divergence import fisher_divergence_hamiltonian
from tfp_adaptive.tempering import exchange
from tfp_adaptive.tempering import replicas
from tfp_adaptive.tempering import temperatures
from tfp_adaptive.tempering.results import ReplicaExchangeResults

__all__ = ['ReplicaExchange', 'ReplicaExchangeResults', 'replica_exchange']

_LEAST = 0.01  # The last inverse temperature of powers of the target.
_HIGHEST_RATE = 0.9  # Of rejections, before it is worth a warning.


def replica_exchange(
  target_log_prob_fn,
  num_adaptation_steps,
  num_replicas=10,
  kernel_fn=None,
  reference_log_prob_fn=None,
  min_inverse_temperature=None,
):
  """Builds replica exchange whose samplers and temperatures are learned.

  For targets of several modes: the last replicas go from one to another, and
  exchanges carry what they find to the first one, the target. It needs about
  2 Lambda + 1 replicas, `barrier` of its results being Lambda. With the prior
  as the reference the last replica draws from the prior alone, wherever the
  likelihood has its modes; without one it has the power 0.01 of the target,
  which must not run away.

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable, called as
      TFP calls it; returns [chains...].
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    num_replicas: K, at least 2; a step costs K times one of its samplers.
    kernel_fn: Builder of the sampler of a replica, called as
      `kernel_fn(log_prob_fn, num_adaptation_steps=n)`;
      `fisher_divergence_hamiltonian` by default. Others of its arguments go
      into a `functools.partial`.
    reference_log_prob_fn: log p_ref up to a constant, called as the target is:
      a prior, or another normalizable density that is easy to draw from.
    min_inverse_temperature: The last one, in (0, 1), or 0 with a reference: by
      default 0.01, and 0 with a reference.

  Returns:
    A `tfp.mcmc.TransitionKernel`. Its state is that of the first replica.

  Raises:
    TypeError: If a function is none.
    ValueError: If a number is out of its range, or the sampler does not go.

  References:
    Syed et al. (2022), https://arxiv.org/abs/1905.02939.

  Example:
    def log_prob(x):  # Modes at -4 and 4.
      return tf.reduce_logsumexp([-(x - 4)**2, -(x + 4)**2], 0)[:, 0]

    kernel = tfpa.replica_exchange(log_prob, 500, num_replicas=5)
    result = tfpa.sample(kernel, 4 * tf.ones([4, 1]), num_results=500)
    print(result.final_kernel_results.barrier)
  """
  arguments.check_num_adaptation_steps(num_adaptation_steps)
  arguments.check_count(num_replicas, 'num_replicas', 10)
  if min_inverse_temperature is None:
    min_inverse_temperature = 0.0 if reference_log_prob_fn else _LEAST
  _check_least(num_replicas, min_inverse_temperature, reference_log_prob_fn)
  kernel_fn = kernel_fn or fisher_divergence_hamiltonian
  replicas.check_callable(kernel_fn, 'kernel_fn')
  return ReplicaExchange(
    target_log_prob_fn,
    functools.partial(kernel_fn, num_adaptation_steps=num_adaptation_steps),
    temperatures.first(num_replicas, min_inverse_temperature),
    num_adaptation_steps,
    reference_log_prob_fn,
  )


class ReplicaExchange(kernel_base.Kernel):
  """Steps every replica, exchanges neighbors, moves the temperatures.

  Results are `ReplicaExchangeResults`. A step costs one of each replica's
  sampler, and with a reference a gradient of the target and of the reference
  at each of their ends besides.
  """

  is_calibrated = True

  def __init__(
    self,
    target_log_prob_fn,
    make_kernel_fn,
    inverse_temperatures,
    num_adaptation_steps=0,
    reference_log_prob_fn=None,
    learned=None,
    name=None,
  ):
    """Builds the kernel; no Tensor is created here.

    Args:
      target_log_prob_fn: As in TFP.
      make_kernel_fn: Function of a log density; returns a calibrated kernel of
        this library, the sampler of a replica.
      inverse_temperatures: First ones, decreasing from 1, [num_replicas].
      num_adaptation_steps: Steps in whose first half temperatures move.
      reference_log_prob_fn: Of the reference, or `None`.
      learned: Results to begin with what they have learned, or `None`.
      name: Prefix of op names.

    Raises:
      TypeError: If a function is none.
      ValueError: If the temperatures or the sampler do not go.
    """
    replicas.check_callable(target_log_prob_fn, 'target_log_prob_fn')
    if reference_log_prob_fn is not None:
      replicas.check_callable(reference_log_prob_fn, 'reference_log_prob_fn')
    stochastic_target.check(target_log_prob_fn, None)
    self._parameters = dict(
      target_log_prob_fn=target_log_prob_fn,
      make_kernel_fn=make_kernel_fn,
      inverse_temperatures=inverse_temperatures,
      num_adaptation_steps=num_adaptation_steps,
      reference_log_prob_fn=reference_log_prob_fn,
      learned=learned,
      name=name,
    )
    replicas.check_kernel(self._kernel_at(1.0))

  @property
  def num_adaptation_steps(self):
    return self._parameters['num_adaptation_steps']

  @property
  def num_replicas(self):
    return len(self._parameters['inverse_temperatures'])

  @property
  def exchange_cost(self):
    """What a step does beside those of the replicas."""
    if self._parameters['reference_log_prob_fn'] is None:
      return interfaces.Cost(matrix_product=0)
    count = self.num_replicas
    return interfaces.Cost(target=count, gradient=count, matrix_product=0)

  def replica(self, results, index):
    """Returns the kernel of a replica at its temperature, and its results.

    Args:
      results: `ReplicaExchangeResults`, or `None`: at the first temperatures.
      index: Of the replica, 0 for the target.
    """
    if results is None:
      return self._kernel_at(self._parameters['inverse_temperatures'][index]), (
        None
      )
    of_replica = tf.nest.map_structure(
      lambda leaf: leaf[index], results.replica_results
    )
    return self._kernel_at(results.inverse_temperatures[index]), of_replica

  def frozen_at(self, results):
    """Returns the fixed kernel of what was learned."""
    return self.copy(
      inverse_temperatures=tuple(np.asarray(results.inverse_temperatures)),
      num_adaptation_steps=0,
      learned=replicas.learned(results.replica_results),
    )

  def _kernel_at(self, inverse_temperature):
    return self._parameters['make_kernel_fn'](
      replicas.tempered(
        self._parameters['target_log_prob_fn'],
        self._parameters['reference_log_prob_fn'],
        inverse_temperature,
      )
    )

  def bootstrap_results(self, init_state):
    """Starts all replicas at `init_state`."""
    with tf.name_scope(f'{self.name}_bootstrap'):
      state = state_parts.as_tensors(init_state)
      dtype = tf.nest.flatten(state)[0].dtype
      count = self.num_replicas
      temperatures_ = tf.constant(
        self._parameters['inverse_temperatures'], dtype
      )
      started = []
      for b in tf.unstack(temperatures_):
        results = self._kernel_at(b).bootstrap_results(state)
        started.append((state, results, self._densities(b, state, results)))
      states, results, densities = tf.nest.map_structure(
        lambda *leaves: tf.stack(leaves), *started
      )
      replicas.check_finite(densities)
      results = replicas.with_learned(results, self._parameters['learned'])
      log_prob = densities.tempered[0]
      pairs = tf.zeros([count - 1], dtype)
      return self._finished(
        ReplicaExchangeResults(
          target_log_prob=log_prob,
          is_accepted=tf.zeros_like(log_prob, tf.bool),
          log_accept_ratio=log_prob,
          replica_states=states,
          replica_results=results,
          densities=densities,
          journeys=exchange.Journeys(
            tf.zeros_like(densities.tempered, tf.bool),
            tf.zeros_like(log_prob, tf.int32),
          ),
          inverse_temperatures=temperatures_,
          rejections=pairs,
          num_exchanges=pairs,
          step=tf.zeros([], tf.int32),
          seed=tf.zeros([2], tf.int32),
        )
      )

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Steps all replicas, then exchanges neighbors."""
    with tf.name_scope(self.name):
      seed = random.sanitize(seed)
      exchange_seed, *seeds = random.split(seed, self.num_replicas + 1)
      # What shards have agreed on since is no older than the temperatures.
      previous = self._finished(previous_kernel_results)
      states = tf.nest.map_structure(
        lambda first, rest: tf.concat([first[tf.newaxis], rest[1:]], axis=0),
        current_state,
        previous.replica_states,
      )
      states, results, densities = replicas.step_each(
        self._step_one,
        (
          states,
          previous.replica_results,
          previous.inverse_temperatures,
          tf.stack(seeds),
        ),
        previous.densities,
      )
      carried = (states, densities, previous.journeys.is_hot)
      carried, rejected, is_tried = exchange.exchange(
        previous.step,
        previous.inverse_temperatures,
        carried,
        densities.tempered,
        exchange_seed,
      )
      states, densities, is_hot = carried
      results = self._finished(
        self._adapted(
          previous._replace(
            replica_states=states,
            replica_results=results,
            densities=densities,
            journeys=exchange.travel(previous.journeys._replace(is_hot=is_hot)),
            rejections=previous.rejections + rejected,
            num_exchanges=previous.num_exchanges + is_tried,
            step=previous.step + 1,
            seed=seed,
          )
        )
      )
      return tf.nest.map_structure(lambda x: x[0], states), results

  def _step_one(self, state, results, inverse_temperature, seed):
    """Steps one replica."""
    state, results = self._kernel_at(inverse_temperature).one_step(
      state, results, seed=seed
    )
    return state, results, self._densities(inverse_temperature, state, results)

  def _densities(self, inverse_temperature, state, results):
    return replicas.densities(
      self._parameters['target_log_prob_fn'],
      self._parameters['reference_log_prob_fn'],
      inverse_temperature,
      state,
      results,
    )

  def _adapted(self, results):
    """Moves the temperatures, at the end of a round."""
    ends = temperatures.round_ends(self.num_adaptation_steps)
    if not ends:
      return results
    is_due = tf.reduce_any(results.step == tf.constant(ends))
    old = results.inverse_temperatures
    new = temperatures.equalize(old, results.rejection_rates)
    # What was counted is of the old ones.
    keep = tf.cast(~is_due, old.dtype)
    counted = results.journeys.num_restarts
    return results._replace(
      inverse_temperatures=tf.where(is_due, new, old),
      rejections=keep * results.rejections,
      num_exchanges=keep * results.num_exchanges,
      journeys=results.journeys._replace(
        num_restarts=tf.where(is_due, 0, counted)
      ),
    )

  def _finished(self, results):
    """Returns results whose log densities are those of their temperatures."""
    log_prob, grads = exchange.at(
      results.inverse_temperatures, results.densities
    )
    inner = replicas.refreshed(results.replica_results, log_prob, grads)
    return results._replace(
      target_log_prob=log_prob[0],
      replica_results=inner,
      **{
        name: tfp_private.get_innermost(inner, name)[0]
        for name in ('is_accepted', 'log_accept_ratio')
      },
    )

  def warnings_after(self, results):
    """Yields what the user should know before trusting the draws."""
    rates = np.asarray(results.rejection_rates)
    if rates.size and rates.max() > _HIGHEST_RATE:
      yield (
        f'Exchanges between replicas are rejected up to {rates.max():.0%} of '
        f'the time. Write `num_replicas={2 * int(np.ceil(rates.sum())) + 1}` '
        'or more, or adapt longer.'
      )
    if not np.any(results.num_restarts):
      yield (
        'No state came from the last replica to the target: its draws know the '
        'modes they began in. Adapt and sample longer, with more replicas, or '
        'with a higher `min_inverse_temperature`.'
      )


def _check_least(num_replicas, least, reference_log_prob_fn):
  if num_replicas < 2:
    raise ValueError(
      f'`num_replicas` must be at least 2, but got {num_replicas}: one for the '
      'target and one to exchange with. Write for example `num_replicas=10`.'
    )
  if least == 0.0 and reference_log_prob_fn is None:
    raise ValueError(
      '`min_inverse_temperature=0` leaves the last replica without a density. '
      'Pass `reference_log_prob_fn` as well, a prior for example, or write '
      '`min_inverse_temperature=0.01`.'
    )
  arguments.check_share(
    least, 'min_inverse_temperature', 'Write for example 0.01.'
  )
