"""Expected squared jump distance: how far accepted moves go.

  F = E[ alpha |y - x|^2 ] / lambda,   alpha = min(1, exp(log_accept_ratio))

lambda is a moving mean of alpha |y - x|^2.

Source: Pasarica and Gelman (2010), Adaptively scaling the Metropolis algorithm
using expected squared jumped distance, Statistica Sinica 20.
"""

from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import arguments
from tfp_adaptive.core import shown

_SMOOTHING = 0.99  # Weight of the past in the moving mean.


class JumpDistanceState(NamedTuple):
  """State of the criteria that measure the jump distance."""

  # Exponentially weighted mean of the squared jump distance, [], units of the
  # state squared.
  moving_distance: tf.Tensor
  is_first: tf.Tensor  # Whether that mean was 0 in all steps so far, [] bool.


@shown.remembers_call
def expected_squared_jump_distance(target_accept_prob=0.55):
  """Builds the expected squared jump distance, in units of its moving mean.

  Use it for targets with one scale in all directions, or to compare with the
  generalized speed measure. The widest direction dominates, so that a proposal
  that never moves along a narrow direction can still score well.

  Use `tfpa.optimizers.adam(1e-3)` or `rmsprop`; relative optimizers refuse this
  criterion. If every move is rejected, its gradient is 0 and the scale stays
  too large. Large relative steps lead to such a scale, and so may many small
  steps.

  Args:
    target_accept_prob: Acceptance at which the scale search ends, in (0, 1);
      the criterion itself has no target.

  Returns:
    An `interfaces.Criterion`.

  Raises:
    ValueError: If `target_accept_prob` is not in its range.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(
      target.log_prob,
      num_adaptation_steps=1000,
      criterion=tfpa.criteria.expected_squared_jump_distance(),
      optimizer=tfpa.optimizers.adam(1e-3),
    )
  """
  arguments.check_accept_prob(target_accept_prob)

  def value(state, transition):
    distance = jump_distance(transition)
    return tf.where(
      transition.is_finite,
      distance / scale_of(state, transition),
      -transition.proposal_entropy,
    )

  return interfaces.Criterion(
    name='expected_squared_jump_distance',
    init=_init,
    value=value,
    entropy=lambda state, transition: transition.proposal_entropy,
    entropy_weight=lambda state: 0.0,
    update=_update,
    trace=lambda state: {'moving_distance': state.moving_distance},
    target_accept_prob=target_accept_prob,
    holds_scale=False,
  )


def jump_distance(transition):
  """Returns alpha |y - x|^2 per chain, differentiable in the proposal."""
  accept_prob = tf.exp(tf.minimum(transition.log_accept_ratio, 0.0))
  return accept_prob * tf.reduce_sum(transition.displacement**2, axis=-1)


def _init(problem):
  return JumpDistanceState(
    moving_distance=tf.ones([], problem.dtype),
    is_first=tf.constant(True),
  )


def scale_of(state, transition):
  """Returns lambda: the moving mean if it is known, else the present mean."""
  current = tf.stop_gradient(_mean_distance(transition))
  scale = tf.where(state.is_first, current, state.moving_distance)
  return tf.maximum(scale, tf.constant(1e-30, scale.dtype))


def _mean_distance(transition):
  """Returns the mean of alpha |y - x|^2; chains that diverged count as 0."""
  distance = tf.where(transition.is_finite, jump_distance(transition), 0.0)
  return adaptation_base.mean_of_alive(transition.is_alive, distance)


def _update(state, transition, slopes, problem):
  del slopes, problem
  mean = _mean_distance(transition)
  moved = _SMOOTHING * state.moving_distance + (1.0 - _SMOOTHING) * mean
  return JumpDistanceState(
    moving_distance=tf.where(state.is_first, mean, moved),
    is_first=state.is_first & (mean <= 0.0),
  )
