"""Fits a map to pairs of states and gradients that the chains have visited.

Every step adds the states x of the chains, and the gradients g there, to a
history of a fixed size that prefers later pairs. After steps 32, 64, 128, ...
the map is fitted to the history by the least Fisher divergence. Fits run on the
host, between two blocks of steps (`core.block_fits`), and make no target call.

Source: the divergence is that of Seyboldt, Carlson and Carpenter (2026),
https://arxiv.org/abs/2603.18845.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive import fits
from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import block_fits
from tfp_adaptive.core import history as history_lib
from tfp_adaptive.core import random
from tfp_adaptive.core import stack
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linear import closed_form
from tfp_adaptive.linear import trajectory_length

_FIRST_FIT = 32  # Step of the first fit.
_GROWTH = 2  # Factor between the steps of two fits.
_LAST_FIT = 0.8  # Share of the adaptation before the last fit.
_LAST_FIT_BEFORE_LENGTHS = 0.6  # The share if lengths are learned afterwards.
_SALT = 11  # Separates draws of the history from those of the step.


class Statistics(NamedTuple):
  """History of pairs, and times of fits, which are the same for all shards."""

  step: tf.Tensor  # [], of the dtype of the states, like `last_fit`.
  last_fit: tf.Tensor
  num_fits: tf.Tensor  # [] int32.
  num_failed_fits: tf.Tensor  # [] int32.
  history: history_lib.History


class FisherTransportAdaptation(closed_form.ClosedFormAdaptation):
  """Learns the params of a transport by fits to a history of pairs.

  Run it by `tfpa.sample`, which makes the fits between blocks of steps. Results
  are `linear.closed_form.ClosedFormAdaptationResults`. Fits without finite
  params are left out, and counted in `statistics.num_failed_fits`.
  """

  def __init__(
    self,
    inner_kernel,
    num_adaptation_steps,
    target_accept_prob=0.8,
    num_pairs=4000,
    name=None,
  ):
    """Builds the wrapper; no Tensor is created here.

    Args:
      inner_kernel: `tfpa.MetropolisHastings` around a proposal with a transport
        that can be fitted.
      num_adaptation_steps: Steps that adapt, a non-negative int.
      target_accept_prob: Wanted mean acceptance, in (0, 1).
      num_pairs: Number of pairs in the history, which has shape
        [num_pairs, 2 d].
      name: Prefix of op names.

    Raises:
      ValueError: If an argument is not one of those allowed.
    """
    arguments.check_count(num_pairs, 'num_pairs', 4000)
    super().__init__(
      inner_kernel,
      num_adaptation_steps,
      target_accept_prob,
      num_pairs=num_pairs,
      name=name,
    )

  def _check_params(self, proposal):
    part = proposal.preconditioner
    if not isinstance(part, interfaces.MapParams) or part.fit is None:
      raise ValueError(
        'Only a transport with a `fit` is fitted to pairs, but got '
        f'{part.name!r}. Write for example '
        '`transport=tfpa.transports.conditional_gaussian()`, or take '
        '`tfpa.adaptation.GradientBasedAdaptation`.'
      )

  @property
  def fit_steps(self):
    if not self.num_adaptation_steps:
      return ()
    learns = self.proposal.max_num_leapfrog_steps is not None
    share = _LAST_FIT_BEFORE_LENGTHS if learns else _LAST_FIT
    last = max(1, int(share * self.num_adaptation_steps))
    found, step = [], _FIRST_FIT
    while step < last:
      found.append(step)
      step *= _GROWTH
    return (*found, last)

  @property
  def fit_code(self):
    return [fits.digest(), self.proposal.transport.fit]

  def bootstrap_results(self, init_state):
    """Starts like the base class; refuses drivers that make no fits."""
    block_fits.check_promised(self)
    return super().bootstrap_results(init_state)

  def warnings_after(self, results, trace):
    yield from super().warnings_after(results, trace)
    num_failed = int(results.statistics.num_failed_fits)
    if num_failed and not int(results.statistics.num_fits):
      yield (
        f'The map was never fitted: {num_failed} fits were not finite, and '
        'steps were those of a multiple of the identity. Adapt longer or with '
        'more chains, and start where every coordinate can move.'
      )

  def _start(self, params, state, inner):
    del params
    rows = self._pairs(state, inner)
    zero = tf.zeros([], rows.dtype)
    return Statistics(
      step=zero,
      last_fit=zero,
      num_fits=tf.zeros([], tf.int32),
      num_failed_fits=tf.zeros([], tf.int32),
      history=history_lib.start(
        self._parameters['num_pairs'], ps.shape(rows)[-1], rows.dtype
      ),
    )

  def _rescale(self, start, statistics, by):
    """Returns `start`, with one step more than `statistics`."""
    del by
    return start._replace(step=statistics.step + 1.0)

  def _pairs(self, state, inner):
    """Returns states and gradients side by side, [num_chains, 2 d]."""
    states, gradients, is_finite = self._states_and_gradients(state, inner)
    rows = tf.concat([states, gradients], axis=-1)
    return tf.where(is_finite, rows, float('nan'))  # Histories skip NaN.

  def _learn(self, params, statistics, gradients, next_state, inner):
    del gradients
    seed = self._mh_results(inner).proposed_results.seed
    history = history_lib.add(
      statistics.history,
      self._pairs(next_state, inner),
      random.fold_in(seed, _SALT),
    )
    step = statistics.step + 1.0
    return params, statistics._replace(step=step, history=history), 1.0

  def fitted_at(self, state, results):
    """Fits the map; the lengths and the rate of the step size start again."""
    inner, statistics = results.inner_results, results.statistics
    own = stack.proposal_results(inner)
    params = self._fitted(own.preconditioner_params, statistics.history)
    if params is None:
      count = statistics.num_failed_fits + 1
      return results._replace(
        statistics=statistics._replace(num_failed_fits=count)
      )
    rows, _, is_finite = self._states_and_gradients(state, inner)
    step_size = own.step_size
    if statistics.num_fits == 0:
      # In fitted coordinates the scale is 1, and steps of d^(-1/4) suit.
      step_size = tf.constant(int(rows.shape[-1]) ** -0.25, step_size.dtype)
    lengths = results.trajectory_length
    if lengths:
      places = self._turning(rows, params)
      lengths = trajectory_length.restart(lengths, places, is_finite)
    return results._replace(
      inner_results=tfp_private.replace_innermost(
        inner, preconditioner_params=params, step_size=step_size
      ),
      statistics=statistics._replace(
        last_fit=statistics.step, num_fits=statistics.num_fits + 1
      ),
      trajectory_length=lengths,
    )

  def _fitted(self, params, history):
    """Returns the params of the least divergence, or `None` if a fit failed."""
    rows, weights = map(np.asarray, history_lib.in_order(history))
    rows = rows[weights > 0.0].astype(np.float64)
    if not len(rows):
      return None
    try:
      with np.errstate(all='ignore'):
        found = self.proposal.transport.fit(params, *np.split(rows, 2, axis=1))
    except (np.linalg.LinAlgError, tf.errors.InvalidArgumentError):
      return None
    found = tf.nest.map_structure(
      lambda new, old: np.asarray(new, old.dtype.as_numpy_dtype), found, params
    )
    if not all(np.all(np.isfinite(leaf)) for leaf in tf.nest.flatten(found)):
      return None
    return tf.nest.map_structure(tf.constant, found)

  def _turning(self, rows, params):
    """Returns z = f^-1(q), where the trajectories run."""
    return self.proposal.transport.bijector(params).inverse(rows)

  def _num_updates_of_map(self, results, statistics):
    del results
    return statistics.step - statistics.last_fit
