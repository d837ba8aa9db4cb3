"""Fits a map to pairs of states and gradients that the chains have seen.

Every step adds its states x and the gradients g there, of as many chains as
there are places, to a history of a fixed size, later ones preferred; at times
that grow by a factor the map is fitted to it anew, by the least Fisher
divergence. No target call is made for it.

Source: the divergence is that of Seyboldt, Carlson and Carpenter (2026),
https://arxiv.org/abs/2603.18845.
"""

import collections

import tensorflow as tf

from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import arguments
from tfp_adaptive.core import control_flow
from tfp_adaptive.core import history as history_lib
from tfp_adaptive.core import merging
from tfp_adaptive.core import random
from tfp_adaptive.core import stack
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linear import closed_form
from tfp_adaptive.linear import trajectory_length

__all__ = ['FisherTransportAdaptation']

_FIRST_FIT = 32.0  # In steps; fits then follow ...
_GROWTH = 2.0  # ... at times that grow by this ...
_LAST_FIT = 0.8  # ... up to this share of the adaptation, or to this one
_LAST_FIT_BEFORE_LENGTHS = 0.6  # where lengths are learned behind the last map.
_SALT = 11  # Tells draws of the history from those of the step.


class Statistics(
  merging.Merging,
  collections.namedtuple(
    'Statistics',
    [
      'step',
      'next_fit',
      'last_fit',
      'num_fits',
      'num_failed_fits',
      'history',
    ],
  ),
):
  """History of pairs, and when the map was and will be fitted."""

  __slots__ = ()
  merge_rules = dict(
    next_fit=merging.largest,
    last_fit=merging.largest,
    num_fits=merging.largest,
    num_failed_fits=merging.counted,
  )


class FisherTransportAdaptation(closed_form.ClosedFormAdaptation):
  """Learns the params of a transport by fits to a history of pairs.

  Results are `linear.closed_form.ClosedFormAdaptationResults`; fits that gave
  no finite params are left out, and counted in `statistics.num_failed_fits`.
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
      inner_kernel: `tfpa.MetropolisHastings` around a proposal behind a
        transport that can be fitted.
      num_adaptation_steps: Steps that adapt, a non-negative int.
      target_accept_prob: Wanted mean acceptance, in (0, 1).
      num_pairs: Pairs that are kept, [num_pairs, 2 d] numbers.
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
    transport = getattr(proposal, 'transport', None)
    if getattr(transport, 'fit', None) is None:
      raise ValueError(
        'Only a transport with a `fit` is fitted to pairs, but got '
        f'{getattr(transport, "name", None)!r}. Write for example '
        '`transport=tfpa.transports.conditional_gaussian()`, or take '
        '`tfpa.adaptation.GradientBasedAdaptation`.'
      )

  def _start(self, params, state, inner):
    """Returns an empty history."""
    del params
    rows = self._pairs(state, inner)
    zero = tf.zeros([], rows.dtype)
    return Statistics(
      step=zero,
      next_fit=tf.constant(min(_FIRST_FIT, self._last_time), rows.dtype),
      last_fit=zero,
      num_fits=tf.zeros([], tf.int32),
      num_failed_fits=tf.zeros([], tf.int32),
      history=history_lib.start(
        self._parameters['num_pairs'], ps.shape(rows)[-1], rows.dtype
      ),
    )

  @property
  def _last_time(self):
    """Step of the last fit: the step size needs some to follow it."""
    learns = self.proposal.max_num_leapfrog_steps is not None
    share = _LAST_FIT_BEFORE_LENGTHS if learns else _LAST_FIT
    return float(int(share * self.num_adaptation_steps))

  def _rescale(self, start, statistics, by):
    """Counts the steps of the search."""
    del by
    return start._replace(step=statistics.step + 1.0)

  def _pairs(self, state, inner):
    """Returns states and gradients side by side, [num_chains, 2 d]."""
    states, gradients, is_finite = self._states_and_gradients(state, inner)
    rows = tf.concat([states, gradients], axis=-1)
    return tf.where(is_finite, rows, float('nan'))  # Not kept.

  def _learn(self, params, statistics, gradients, next_state, inner):
    """Adds the pairs of this step; fits when it is due."""
    del gradients
    seed = self._mh_results(inner).proposed_results.seed
    step = statistics.step + 1.0
    statistics = statistics._replace(
      step=step,
      history=history_lib.add(
        statistics.history,
        self._pairs(next_state, inner),
        random.fold_in(seed, _SALT),
      ),
    )
    is_due = step >= statistics.next_fit

    def fit(params, step_size, statistics):
      fitted = self._fitted(params, statistics.history)
      is_good = adaptation_base.is_finite(fitted)
      size = tf.cast(self.problem(inner).event_size, step.dtype)
      is_first = is_good & tf.equal(statistics.num_fits, 0)
      return (
        adaptation_base.choose(is_good, fitted, params),
        # Coordinates have the scale one from now on.
        tf.where(is_first, size**-0.25, step_size),
        statistics._replace(
          next_fit=_next_time(step, self._last_time),
          last_fit=tf.where(is_good, step, statistics.last_fit),
          num_fits=statistics.num_fits + tf.cast(is_good, tf.int32),
          num_failed_fits=statistics.num_failed_fits
          + tf.cast(~is_good, tf.int32),
        ),
      )

    step_size = stack.proposal_results(inner).step_size
    params, moved, statistics = control_flow.apply_if(
      is_due, fit, params, step_size, statistics
    )
    return params, statistics, moved / step_size

  def _fitted(self, params, history):
    """Returns the params of the least divergence on the history."""
    rows, weights = history_lib.in_order(history)
    states, gradients = tf.split(rows, 2, axis=-1)
    return self.proposal.transport.fit(params, states, gradients, weights)

  def _forget_lengths(
    self, lengths, rows, is_finite, before, statistics, params
  ):
    is_fitted = statistics.num_fits > before.num_fits

    def restart(lengths):
      places = self._turning(rows, params)
      return [trajectory_length.restart(lengths, places, is_finite)]

    return control_flow.apply_if(is_fitted, restart, lengths)[0]

  def _turning(self, rows, params):
    """Returns z = f^-1(q): there the trajectories run."""
    return self.proposal.transport.bijector(params).inverse(rows)

  def _num_updates_of_map(self, results, statistics):
    del results
    steps = statistics.step - statistics.last_fit
    # The step that fits was taken behind the map before.
    return tf.where(steps > 0.0, steps, float('inf'))


def _next_time(step, last_time):
  """Returns the step of the next fit: the last one is never left out."""
  following = tf.where(
    _GROWTH * step < last_time, _GROWTH * step, tf.cast(last_time, step.dtype)
  )
  never = tf.constant(float('inf'), step.dtype)
  return tf.where(step < last_time, following, never)
