"""Replica exchange that learns a sampler and a temperature for each replica.

The replicas, each with some chains, have the densities

  log p_k = b_k log pi + (1 - b_k) log p_ref,   1 = b_0 > ... > b_(K-1).

By default p_ref = 1, which gives powers of the target. Every replica takes a
step of its own sampler. The factor, step size and number of leapfrog steps are
learned from all chains of the replica. If the last b is 0 and the reference is
a distribution, the last replica is a new draw in every step. Then neighbors
exchange states (`exchange`). After rounds of doubling length the temperatures
change so that all exchanges are rejected equally often (`temperatures`).

Source: Syed, Bouchard-Cote, Deligiannidis and Doucet (2022), Non-reversible
parallel tempering, https://arxiv.org/abs/1905.02939.
"""

import contextlib
import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import block_fits
from tfp_adaptive.core import kernel_base
from tfp_adaptive.core import random
from tfp_adaptive.core import stack
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import stochastic_target
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.interfaces import types
from tfp_adaptive.linear.fisher_divergence import fisher_divergence_hamiltonian
from tfp_adaptive.tempering import exchange
from tfp_adaptive.tempering import replicas
from tfp_adaptive.tempering import results as results_lib
from tfp_adaptive.tempering import temperatures

_LEAST = 0.01  # The last inverse temperature without a reference.
_HIGHEST_RATE = 0.9  # A higher rate of rejections gets a warning.


@arguments.by_keyword(
  'replica_exchange(target_log_prob_fn, 500, num_replicas=5)'
)
def replica_exchange(
  target_log_prob_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  num_replicas: int = 10,
  kernel_fn: Callable[..., tfp.mcmc.TransitionKernel] | None = None,
  reference: tfp.distributions.Distribution | types.LogProbFn | None = None,
  min_inverse_temperature: float | None = None,
  name: str | None = None,
) -> tfp.mcmc.TransitionKernel:
  """Builds replica exchange whose samplers and temperatures are learned.

  Use it for targets with several modes. The last replicas move between modes,
  and exchanges carry their states to the first replica, the target. About
  2 Lambda + 1 replicas are needed, where Lambda is `barrier` of the results.
  With the prior as reference, the last replica samples the prior alone. Without
  a reference it samples the power 0.01 of the target, which must have a finite
  integral.

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable, called as
      TFP calls it; returns [chains...].
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    num_replicas: K, at least 2; a step costs K steps of the sampler, or K - 1
      steps and a gradient if the last replica is drawn.
    kernel_fn: Builder of the sampler of a replica, called as
      `kernel_fn(log_prob_fn, num_adaptation_steps=n)`;
      `fisher_divergence_hamiltonian` by default. Give its other arguments by
      `functools.partial`.
    reference: p_ref, a prior or another density that is easy to sample: a
      `tfd.Distribution` of the state, or a log density up to a constant, called
      like the target. With a distribution and `min_inverse_temperature` 0, the
      last replica has independent draws, at one gradient of the target each. At
      states where p_ref is zero and the target is not, the first replica makes
      no exchanges.
    min_inverse_temperature: The last inverse temperature, in (0, 1), or 0 with
      a reference; by default 0 with a reference, else 0.01.
    name: Prefix of op names.

  Returns:
    A `tfp.mcmc.TransitionKernel`. Its state is that of the first replica.

  Raises:
    TypeError: If a function is not callable.
    ValueError: If a number is out of its range, or the sampler is not suitable.

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
  if min_inverse_temperature is None:
    min_inverse_temperature = _LEAST if reference is None else 0.0
  replicas.check_least(num_replicas, min_inverse_temperature, reference)
  kernel_fn = kernel_fn or fisher_divergence_hamiltonian
  replicas.check_callable(kernel_fn, 'kernel_fn')
  return ReplicaExchange(
    target_log_prob_fn,
    functools.partial(kernel_fn, num_adaptation_steps=num_adaptation_steps),
    temperatures.first(num_replicas, min_inverse_temperature),
    num_adaptation_steps,
    reference,
    name=name,
  )


class ReplicaExchange(kernel_base.Kernel):
  """Steps every replica, exchanges neighbors, adapts the temperatures.

  Results are `ReplicaExchangeResults`. A step costs one step of each replica's
  sampler. If there is a reference, each replica also calls the reference once,
  which `cost_at` does not count. A replica at b = 0 adds a call of the target,
  and so does a replica at small b if division by b would lose digits of log pi.
  Both calls have a gradient if the samplers use gradients. The replica at b = 0
  makes no step if it draws from the reference.
  """

  is_calibrated = True

  def __init__(
    self,
    target_log_prob_fn,
    make_kernel_fn,
    inverse_temperatures,
    num_adaptation_steps=0,
    reference=None,
    learned=None,
    name=None,
  ):
    """Builds the kernel; `replica_exchange` describes most arguments.

    `make_kernel_fn` is a function of a log density that returns the sampler of
    a replica, a calibrated kernel of this library. The first inverse
    temperatures decrease from 1, and change in the first half of the adapting
    steps. `learned` are values of `replicas.learned` to start with, or `None`.
    """
    replicas.check_callable(target_log_prob_fn, 'target_log_prob_fn')
    if reference is not None:
      replicas.check_reference(reference)
    stochastic_target.check(target_log_prob_fn, None)
    self._keep(locals())
    replicas.check_kernel(self._kernel_at(1.0))

  @property
  def num_adaptation_steps(self):
    return self._parameters['num_adaptation_steps']

  @property
  def num_replicas(self):
    return len(self._parameters['inverse_temperatures'])

  @property
  def _reaches_reference(self):
    """Whether the last replica samples the reference."""
    return self._parameters['inverse_temperatures'][-1] == 0.0

  @property
  def num_stepped(self):
    """Number of replicas that take steps: all, or all but the last."""
    is_drawn = replicas.is_law(self._parameters['reference'])
    return self.num_replicas - (is_drawn and self._reaches_reference)

  def cost_at(self, results, kind):
    """Returns the cost in calls of the target, for a step of all replicas."""
    total = interfaces.Cost(matrix_product=0)
    for index in range(self.num_stepped):
      total = total.plus(stack.cost(*self.replica(results, index), kind))
    # The target is evaluated with a gradient if samplers use it.
    count = self._num_evaluated(results)
    gradient = count if total.gradient else 0
    return total.plus(interfaces.Cost(count, gradient, matrix_product=0))

  def _num_evaluated(self, results):
    """Returns how many replicas evaluate the target after a step."""
    if results is None or self._parameters['reference'] is None:
      return int(self._reaches_reference)
    replica_densities = zip(
      tf.unstack(results.inverse_temperatures),
      tf.unstack(results.densities.target),
      tf.unstack(results.densities.reference),
    )
    return sum(bool(replicas.is_evaluated(*each)) for each in replica_densities)

  def replica(self, results, index):
    """Returns the kernel of a replica at its temperature, and its results."""
    if results is None:
      return self._kernel_at(self._parameters['inverse_temperatures'][index]), (
        None
      )
    of_replica = tf.nest.map_structure(
      lambda leaf: leaf[index], results.replica_results
    )
    return self._kernel_at(results.inverse_temperatures[index]), of_replica

  @property
  def fit_steps(self):
    adapts = self.num_adaptation_steps > 0
    return tuple(block_fits.steps(self._kernel_at(1.0))) if adapts else ()

  @property
  def fit_code(self):
    return block_fits.code(self._kernel_at(1.0))

  def fitted_at(self, state, results):
    """Fits the map of every replica that takes steps."""
    del state
    fitted = []
    for index in range(self.num_replicas):
      kernel, own = self.replica(results, index)
      place = tf.nest.map_structure(
        lambda x, at=index: x[at], results.replica_states
      )
      if index < self.num_stepped:
        own = block_fits.fitted(kernel, place, own, int(results.step))
      fitted.append(own)
    return results._replace(
      replica_results=tf.nest.map_structure(lambda *x: tf.stack(x), *fitted)
    )

  def frozen_at(self, results):
    return self.copy(
      inverse_temperatures=tuple(np.asarray(results.inverse_temperatures)),
      num_adaptation_steps=0,
      learned=replicas.learned(results.replica_results),
    )

  def _kernel_at(self, inverse_temperature):
    return self._parameters['make_kernel_fn'](
      replicas.tempered(
        self._parameters['target_log_prob_fn'],
        self._reference_log_prob_fn,
        inverse_temperature,
      )
    )

  @property
  def _reference_log_prob_fn(self):
    return replicas.log_prob_of(self._parameters['reference'])

  def bootstrap_results(self, init_state):
    """Starts all replicas at `init_state`."""
    with tf.name_scope(f'{self.name}_bootstrap'):
      state = state_parts.as_tensors(init_state)
      dtype = tf.nest.flatten(state)[0].dtype
      temperatures_ = tf.constant(
        self._parameters['inverse_temperatures'], dtype
      )
      started = []
      for b in self._parameters['inverse_temperatures']:
        kernel, starting = self._kernel_at(b), contextlib.nullcontext()
        if self._parameters['learned'] is not None:  # No fit is needed.
          starting = block_fits.promised(kernel)
        with starting:
          results = kernel.bootstrap_results(state)
        started.append((state, results, self._densities(b, state, results)))
      states, results, densities = tf.nest.map_structure(
        lambda *leaves: tf.stack(leaves), *started
      )
      replicas.check_finite(densities)
      results = replicas.with_learned(results, self._parameters['learned'])
      return self._finished(
        results_lib.first(states, results, densities, temperatures_)
      )

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Steps all replicas, then exchanges neighbors."""
    with tf.name_scope(self.name):
      seed = random.sanitize(seed)
      exchange_seed, *seeds = random.split(seed, self.num_replicas + 1)
      # A merge of shards may have changed the temperatures of the results.
      previous = self._finished(previous_kernel_results)
      states = tf.nest.map_structure(
        lambda first, rest: tf.concat([first[tf.newaxis], rest[1:]], axis=0),
        current_state,
        previous.replica_states,
      )
      states, results, densities = self._step_all(states, previous, seeds)
      exchanged = previous._replace(
        replica_states=states,
        replica_results=results,
        densities=densities,
        step=previous.step + 1,
        seed=seed,
      )
      exchanged = exchange.exchange_all(exchanged, exchange_seed)
      results = self._finished(self._adapted(exchanged))
      states = results.replica_states
      return tf.nest.map_structure(lambda x: x[0], states), results

  def _step_all(self, states, previous, seeds):
    """Steps `num_stepped` replicas; draws the last one if it takes no step."""
    given = states, previous.replica_results
    count = self.num_stepped
    stepped = replicas.step_each(
      self._step_one,
      (
        *tf.nest.map_structure(lambda leaf: leaf[:count], given),
        previous.inverse_temperatures[:count],
        tf.stack(seeds[:count]),
      ),
      previous.densities,
    )
    if count == self.num_replicas:
      return stepped
    state, results = tf.nest.map_structure(lambda leaf: leaf[-1], given)
    num_chains = ps.shape(previous.target_log_prob)
    state = replicas.drawn(
      self._parameters['reference'], state, num_chains, seeds[-1]
    )
    last = state, results, self._densities(0.0, state, results)
    return replicas.joined(stepped, last)

  def _step_one(self, state, results, inverse_temperature, seed):
    state, results = self._kernel_at(inverse_temperature).one_step(
      state, results, seed=seed
    )
    return state, results, self._densities(inverse_temperature, state, results)

  def _densities(self, inverse_temperature, state, results):
    """Returns the `Densities` of one replica."""
    return replicas.densities(
      self._parameters['target_log_prob_fn'],
      self._reference_log_prob_fn,
      inverse_temperature,
      state,
      results,
    )

  def _adapted(self, results):
    """Changes the temperatures at the end of a round."""
    ends = temperatures.round_ends(self.num_adaptation_steps)
    if not ends:
      return results
    is_due = tf.reduce_any(results.step == tf.constant(ends))
    old = results.inverse_temperatures
    new = temperatures.equalize(old, results.rejection_rates)
    # The counts belong to the old temperatures.
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
    """Returns results with log densities at the present temperatures."""
    log_prob, grads = exchange.at(
      results.inverse_temperatures, results.densities
    )
    inner = replicas.refreshed(results.replica_results, log_prob, grads)
    decided = stack.metropolis_hastings_results(inner)
    return results._replace(
      target_log_prob=log_prob[0],
      replica_results=inner,
      is_accepted=decided.is_accepted[0],
      log_accept_ratio=decided.log_accept_ratio[0],
    )

  def warnings_after(self, results, trace):
    del trace
    rates = np.asarray(results.rejection_rates)
    if rates.size and rates.max() > _HIGHEST_RATE:
      yield (
        f'Exchanges between replicas are rejected up to {rates.max():.0%} of '
        f'the time. Write `num_replicas={2 * int(np.ceil(rates.sum())) + 1}` '
        'or more, or adapt longer.'
      )
    if not np.any(results.num_restarts):
      yield (
        'No state came from the last replica to the target: the draws may '
        'cover only the modes where the chains started. Adapt and sample '
        'longer, with more replicas, or with a higher '
        '`min_inverse_temperature`.'
      )
