"""Finds a first scale in the chain's own first steps.

The scale doubles after a step whose mean acceptance is above the target, and
halves after any other step. The search ends when the acceptance crosses the
target. It starts with trajectories of length

  sqrt(d) / rms over chains of |g(x)|,

which has the units of the state, and is exact for an isotropic Gaussian.
Without gradients the length is 1. The search makes no target call of its own,
because each trial is an ordinary step of the chain.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import stack
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.tfp_private import prefer_static as ps

_MAX_TRIALS = 100  # The search changes the scale by at most 2^100.


class ScaleSearch(NamedTuple):
  """The scale tried now, and how the search for it continues."""

  scale: tf.Tensor  # [].
  direction: tf.Tensor  # Sign of the last change, 0 before it, [] int32.
  num_trials: tf.Tensor  # Trials left, 0 once the search is over, [] int32.

  @property
  def is_searching(self):
    return self.num_trials > 0

  @classmethod
  def merged(cls, parts, before):
    """Returns a search at the mean log scale; it is over if any search is."""
    del before
    logs = [tf.math.log(part.scale) for part in parts]
    return cls(
      scale=tf.exp(tf.add_n(logs) / len(parts)),
      direction=parts[0].direction,
      num_trials=tf.reduce_min([part.num_trials for part in parts]),
    )


def begin(proposal, inner_results):
  """Returns inner results whose params have the first scale, and the search.

  If the first scale was given, the results are unchanged, and the search is
  over. `proposal` is the innermost kernel.
  """
  mh_results = stack.metropolis_hastings_results(inner_results)
  accepted = mh_results.accepted_results
  dtype = accepted.step_size.dtype
  if proposal.preconditioner.init_scale is not None:
    return inner_results, fixed(dtype)
  grads = None
  if tf.nest.flatten(accepted.grads_target_log_prob):
    grads = state_parts.flatten(
      accepted.grads_target_log_prob, ps.rank(accepted.target_log_prob)
    )
    # Outside the support, a finite gradient says nothing about the target.
    alive = adaptation_base.is_alive(mh_results)
    grads = tf.where(alive[..., tf.newaxis], grads, float('nan'))
  search = start(dtype, grads, int(np.max(proposal.num_leapfrog_steps)))
  params = proposal.preconditioner.rescale(
    accepted.preconditioner_params, search.scale
  )
  return tfp_private.replace_innermost(
    inner_results, preconditioner_params=params
  ), search


def start(dtype, flat_grads=None, num_steps=1):
  """Returns a search from the scale that gradients [chains..., d] suggest.

  Its first trajectory, of `num_steps` steps, is as long as this scale.
  """
  scale = tf.ones([], dtype)
  if flat_grads is not None:
    squares = tf.reduce_mean(flat_grads**2, axis=-1)
    # Chains without a finite gradient are left out.
    is_finite = tf.math.is_finite(squares)
    count = tf.reduce_sum(tf.cast(is_finite, dtype))
    mean_square = tf.math.divide_no_nan(
      tf.reduce_sum(tf.where(is_finite, squares, 0.0)), count
    )
    is_usable = tf.math.is_finite(mean_square) & (mean_square > 0.0)
    safe = tf.where(is_usable, mean_square, 1.0)
    scale = tf.where(is_usable, tf.math.rsqrt(safe), scale)
  return ScaleSearch(
    scale / num_steps, tf.zeros([], tf.int32), tf.constant(_MAX_TRIALS)
  )


def fixed(dtype):
  """Returns a search that is over, for a given scale."""
  zero = tf.zeros([], tf.int32)
  return ScaleSearch(tf.ones([], dtype), zero, zero)


def update(search, accept_prob, target_accept_prob):
  """Doubles or halves the scale, or ends the search at the first crossing."""
  direction = tf.where(accept_prob > target_accept_prob, 1, -1)
  has_crossed = (search.direction != 0) & (direction != search.direction)
  goes_on = search.is_searching & ~has_crossed
  factor = tf.cast(2.0, search.scale.dtype) ** tf.cast(
    direction, search.scale.dtype
  )
  return ScaleSearch(
    scale=tf.where(goes_on, search.scale * factor, search.scale),
    direction=tf.where(goes_on, direction, search.direction),
    num_trials=tf.where(goes_on, search.num_trials - 1, 0),
  )
