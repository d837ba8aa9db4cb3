"""Learns a surrogate from the states that all chains visit.

States go to a history of fixed size, pooled over chains. The surrogate is
fitted to the history at steps that grow geometrically. In the last fifth of the
adapting steps there is no fit, so that the step size settles.

Source: Strathmann et al. (2015), Algorithm 1, https://arxiv.org/abs/1506.02564.
"""

from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import arguments
from tfp_adaptive.core import control_flow
from tfp_adaptive.core import history as history_lib
from tfp_adaptive.core import merging
from tfp_adaptive.core import random
from tfp_adaptive.core import run_warnings
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import stack
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.surrogate import momentum_scale
from tfp_adaptive.surrogate import surrogate_leapfrog
from tfp_adaptive.surrogate import walk

_FIRST_STEP = 10  # Earliest step of a fit of the momentum scale.
_FIRST_SHARE = 0.1  # Share of the steps before the first fit of the surrogate.
_LAST_SHARE = 0.8  # Share of the adapting steps after which no fit is made.
_GROWTH = 1.6  # Factor between the steps of two fits.
_GROWTH_ONLINE = 1.02  # Factor between the steps of two updates.
_FEWEST_DRAWS = 4  # A fit needs this many draws times (dimension + 1).
# Least share of random-walk steps until the last fit, because steps along a
# poor surrogate make a poor history. Then the mean jumps of both kinds of steps
# set the share.
_WALK_SHARE = 0.5
_NUM_STARTS = 64  # Trajectories to which the step size is fitted.
# Wanted mean acceptance if the surrogate were the target, so that only the
# error of the leapfrog steps counts.
_STEP_ACCEPT_PROB = 0.9
_FOR_FAR_STARTS = 'kernel_exponential_family_lite'
_SWEEPS = 3  # Fits to given draws. Each fit searches around the previous one.


class ScoreMatchingAdaptationResults(NamedTuple):
  """Results of `ScoreMatchingAdaptation`."""

  # Results of the inner kernel; their innermost `surrogate_params` and
  # `preconditioner_params` are learned.
  inner_results: Any
  history: history_lib.History  # Past states, [n, d].
  step: tf.Tensor  # Steps taken, [] int32.
  num_fits: tf.Tensor  # Fits of the surrogate that were used, [] int32.
  # Fits and updates that were not finite, [] int32.
  num_failed_fits: tf.Tensor
  # Mean over chains of the acceptance probability in the last adapting step,
  # [].
  mean_accept_prob: tf.Tensor

  merge_rules = dict(num_fits=merging.largest, num_failed_fits=merging.counted)


class ScoreMatchingAdaptation(adaptation_base.AdaptationWrapper):
  """Learns surrogate and momentum scale from past states, without gradients.

  With many chains the shared history fills sooner, and its draws are better.
  """

  def __init__(
    self,
    inner_kernel,
    num_adaptation_steps,
    history=None,
    learn_momentum_scale=True,
    name=None,
  ):
    """Builds the wrapper; no Tensor is created here.

    Args:
      inner_kernel: `tfpa.MetropolisHastings` around a proposal that has a
        surrogate.
      num_adaptation_steps: Steps that adapt, a non-negative int.
      history: Draws known beforehand, for example of a pilot run, numpy
        [k, event_size], in the coordinates of the proposal. The surrogate is
        fitted to these draws before the first step.
      learn_momentum_scale: Whether the factor C of the proposal is learned
        too, if there is one.
      name: Prefix of op names.

    Raises:
      ValueError: If no kernel inside has a surrogate, or the history is not a
        matrix of at least two rows of finite numbers.
    """
    arguments.check_num_adaptation_steps(num_adaptation_steps)
    if stack.first_with(inner_kernel, 'surrogate') is None:
      raise ValueError(
        'No kernel inside `inner_kernel` has a surrogate to learn. Wrap '
        '`tfpa.proposals.UncalibratedSurrogateHamiltonian` in '
        f'`tfpa.MetropolisHastings`; got {type(inner_kernel).__name__}.'
      )
    history = _check_history(history)
    self._keep(locals())
    if self._learns_momentum_scale:
      scale_factor.check_moves(self.preconditioner, type(self).__name__)
    if self._walks:
      scale_factor.check_moves(
        self.proposal.walk_preconditioner, type(self).__name__
      )

  @property
  def proposal(self):
    """The innermost kernel, which has the surrogate."""
    return stack.first_with(self.inner_kernel, 'surrogate')

  @property
  def surrogate(self):
    return self.proposal.surrogate

  def bootstrap_results(self, init_state):
    """Starts the inner kernel, and fits to the history if one is given."""
    inner = self.inner_kernel.bootstrap_results(init_state)
    rows = self._flat_state(init_state, inner)
    results = ScoreMatchingAdaptationResults(
      inner_results=inner,
      history=history_lib.start(
        self.surrogate.num_points, state_parts.event_size(rows), rows.dtype
      ),
      step=tf.zeros([], tf.int32),
      num_fits=tf.zeros([], tf.int32),
      num_failed_fits=tf.zeros([], tf.int32),
      mean_accept_prob=tf.zeros([], rows.dtype),
    )
    if self._walks and self._fits_step_size:
      # All steps are random-walk steps until the first fit.
      results = self._with_walk_share(results, tf.ones_like)
    given = self._parameters['history']
    if given is None:
      return results
    results = results._replace(
      history=history_lib.from_draws(results.history, _check_size(given, rows))
    )
    # The many small operations of a fit would be slow in eager mode.
    return tf.function(self._sweep, autograph=False)(results)

  def _sweep(self, results):
    """Fits several times to the same history."""
    seed = random.sanitize(0)
    _, results = tf.while_loop(
      lambda sweep, _: sweep < _SWEEPS,
      lambda sweep, results: (
        sweep + 1,
        self._fit(results, random.fold_in(seed, sweep)),
      ),
      (0, results),
    )
    return results

  def scalars_at(self, results):
    return dict(mean_accept_prob=results.mean_accept_prob)

  def is_inside(self, state, results):
    """Returns whether chains are in the region of the last fit, [chains...].

    `state` is in this kernel's own space.
    """
    params = stack.proposal_results(results).surrogate_params
    return self.surrogate.is_inside(params, self._flat_state(state, results))

  def warnings_before(self, state, results):
    if self._parameters['history'] is None:
      return
    if int(results.num_fits) == 0:
      yield (
        'The surrogate could not be fitted to `history`: no fit was finite, '
        'and chains walk at random. Give draws that differ in every '
        'coordinate, at least a few for each.'
      )
      return
    outside = np.argwhere(~np.asarray(self.is_inside(state, results)))
    if len(outside) and self.surrogate.name != _FOR_FAR_STARTS:
      yield (
        f'Outside of `history`: the start of '
        f'{run_warnings.chain_names(outside)}. The surrogate '
        'is not fitted there, and these chains walk at random until they reach '
        'the draws. Start inside, or write '
        '`surrogate=tfpa.surrogates.kernel_exponential_family_lite()`.'
      )

  def warnings_after(self, results, trace):
    del trace
    if self.num_adaptation_steps and not int(results.num_fits):
      yield (
        f'The surrogate was never fitted ({int(results.num_failed_fits)} fits '
        'were not finite), and all moves were a random walk. Adapt longer, '
        'with more chains, or give draws known beforehand as `history`.'
      )

  def _adapt(self, states, previous_inner, results):
    """Offers the states to the history, and learns from it if a fit is due."""
    del previous_inner
    mh_results = self._mh_results(results.inner_results)
    add_seed, fit_seed = random.split(random.fold_in(mh_results.seed, 1), 2)
    rows = self._flat_state(states[1], results.inner_results)
    event_size = state_parts.event_size(rows)
    rows = tf.reshape(rows, ps.stack([-1, event_size]))
    # A chain that can never move would bend the surrogate for all others.
    alive = tf.reshape(adaptation_base.is_alive(mh_results), [-1, 1])
    rows = tf.where(alive, rows, float('nan'))  # Histories skip NaN.
    results = results._replace(
      history=history_lib.add(results.history, rows, add_seed),
      mean_accept_prob=adaptation_base.mean_accept_prob(mh_results),
    )
    if self._walks:
      results = self._adapt_walk(results)
    fewest = _FEWEST_DRAWS * (event_size + 1)
    share_alive = tf.reduce_mean(tf.cast(alive, rows.dtype))
    num_seen = share_alive * tf.cast(results.history.num_seen, rows.dtype)
    is_due = self._is_due(results.step, _GROWTH) & (
      num_seen >= tf.cast(fewest, rows.dtype)
    )
    is_first = results.step < int(_FIRST_SHARE * self.num_adaptation_steps)
    (results,) = control_flow.apply_if(
      is_due & is_first, lambda results: [self._fit_scales(results)], results
    )
    is_due &= ~is_first
    (results,) = control_flow.apply_if(
      is_due, lambda results: [self._fit(results, fit_seed)], results
    )
    if self.surrogate.update is None:
      return results
    is_due = self._is_due(results.step, _GROWTH_ONLINE) & ~is_due
    is_due &= results.num_fits > 0
    (results,) = control_flow.apply_if(
      is_due, lambda results: [self._update(results, rows)], results
    )
    return results

  def _is_due(self, step, growth):
    """Returns whether a schedule has `step`; its steps grow by `growth`."""
    last = self.num_adaptation_steps * _LAST_SHARE
    times, time = [], last
    while time >= min(_FIRST_STEP, last) and time >= 1.0:
      times.append(int(time))
      time = min(time / growth, time - 1.0)
    return tf.reduce_any(tf.equal(step, tf.constant(times or [-1], tf.int32)))

  def _fit(self, results, seed):
    """Fits the surrogate, and the momentum scale to its scores."""
    inner = results.inner_results
    points, weights = history_lib.in_order(results.history)
    params = stack.proposal_results(inner).surrogate_params
    fitted = self.surrogate.fit(params, points, weights, seed)
    inner, is_good = self._replace_surrogate(inner, params, fitted)
    results = self._fit_scales(results._replace(inner_results=inner))
    if self._fits_step_size:
      moved = self._fit_step_size(results, points, weights, seed)
      if self._walks:
        moved = self._follow_more(moved)
      results = adaptation_base.choose(is_good, moved, results)
    return results._replace(
      num_fits=results.num_fits + tf.cast(is_good, tf.int32),
      num_failed_fits=results.num_failed_fits + tf.cast(~is_good, tf.int32),
    )

  def _fit_scales(self, results):
    """Fits the momentum scale and the random-walk steps to the history."""
    inner, points = results.inner_results, results.history.points
    weights = history_lib.weights(results.history)
    learned = {}
    if self._learns_momentum_scale:
      params = stack.proposal_results(inner).surrogate_params
      learned['preconditioner_params'] = momentum_scale.fit(
        self.proposal.preconditioner,
        stack.proposal_results(inner).preconditioner_params,
        points,
        weights,
        self.surrogate.score(params, points),
      )
    if self._walks:
      learned['walk_params'] = walk.fit(
        stack.proposal_results(inner).walk_params,
        self.proposal.walk_preconditioner,
        points,
        weights,
      )
    return results._replace(
      inner_results=tfp_private.replace_innermost(inner, **learned)
    )

  def _fit_step_size(self, results, points, weights, seed):
    """Fits the step size to trajectories along the surrogate."""
    inner = results.inner_results
    count = ps.minimum(ps.shape(points)[0], _NUM_STARTS)
    starts = history_lib.spread(points, weights, count)
    fitted = surrogate_leapfrog.fit_step_size(
      self.surrogate,
      stack.proposal_results(inner).surrogate_params,
      scale_factor.at(
        self.proposal.preconditioner,
        stack.proposal_results(inner).preconditioner_params,
      ),
      starts,
      random.normal(ps.shape(starts), starts.dtype, seed),
      self.proposal.trajectory_length,
      _STEP_ACCEPT_PROB,
    )
    step_size = stack.proposal_results(inner).step_size
    return results._replace(
      inner_results=tfp_private.replace_innermost(
        inner, step_size=tf.zeros_like(step_size) + fitted
      )
    )

  def _follow_more(self, results):
    """Lowers the share of random-walk steps once a surrogate is fitted."""
    share = self.proposal.walk_share
    if self.num_adaptation_steps:  # The share may fall after the last fit.
      share = max(share, _WALK_SHARE)
    return self._with_walk_share(
      results, lambda old: tf.constant(share, old.dtype)
    )

  def _with_walk_share(self, results, share_fn):
    """Returns results with the share of random-walk steps share_fn(share)."""
    inner = results.inner_results
    params = stack.proposal_results(inner).walk_params
    share = share_fn(params.share)
    return results._replace(
      inner_results=tfp_private.replace_innermost(
        inner, walk_params=params._replace(share=share)
      )
    )

  def _adapt_walk(self, results):
    """Adapts the scale and the share of random-walk steps."""
    inner = results.inner_results
    params = stack.proposal_results(inner).walk_params
    mh_results = self._mh_results(inner)
    move = mh_results.proposed_results.trajectory
    adapted = walk.adapt(params, results.mean_accept_prob, results.step)
    params = adaptation_base.choose(move.has_walked, adapted, params)
    params = walk.earn(params, *move, mh_results.log_accept_ratio)
    if self._fits_step_size:
      is_last = results.step > int(_LAST_SHARE * self.num_adaptation_steps)
      share = walk.earned_share(params, self.proposal.walk_share)
      params = params._replace(
        share=tf.where(is_last & (results.num_fits > 0), share, params.share)
      )
    return results._replace(
      inner_results=tfp_private.replace_innermost(inner, walk_params=params)
    )

  def _update(self, results, rows):
    """Adds the states of this step to the fit."""
    inner = results.inner_results
    params = stack.proposal_results(inner).surrogate_params
    updated = self.surrogate.update(params, rows)
    inner, is_good = self._replace_surrogate(inner, params, updated)
    return results._replace(
      inner_results=inner,
      num_failed_fits=results.num_failed_fits + tf.cast(~is_good, tf.int32),
    )

  def _replace_surrogate(self, inner, params, fitted):
    """Returns results with the fit if it is finite, and whether it is."""
    is_good = adaptation_base.is_finite(fitted)
    chosen = adaptation_base.choose(is_good, fitted, params)
    return (
      tfp_private.replace_innermost(inner, surrogate_params=chosen),
      is_good,
    )

  @property
  def _follows(self):
    return isinstance(self.proposal, surrogate_leapfrog.FollowsSurrogate)

  @property
  def _walks(self):
    return self._follows and self.proposal.walk_share > 0.0

  @property
  def _fits_step_size(self):
    return self._follows and self.proposal.trajectory_length is not None

  @property
  def _learns_momentum_scale(self):
    return self._follows and self._parameters['learn_momentum_scale']


def _check_history(history):
  if history is None:
    return None
  given = np.asarray(history)
  if given.ndim != 2 or len(given) < 2 or not np.all(np.isfinite(given)):
    raise ValueError(
      '`history` must hold at least two finite draws, numpy [k, event_size], '
      f'but got shape {given.shape}. Write for example '
      '`history=result.states.reshape([-1, event_size])`.'
    )
  return given


def _check_size(given, rows):
  size = rows.shape[-1]
  if size is not None and given.shape[1] != size:
    raise ValueError(
      f'`history` has draws of size {given.shape[1]}, but the state has '
      f'{size} coordinates per chain.'
    )
  return tf.convert_to_tensor(given, dtype=rows.dtype)
