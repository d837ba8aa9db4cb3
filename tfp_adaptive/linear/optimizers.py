"""Optimizers: pure functions from a gradient to the next params.

`relative_gradient` works on the tangent at the current factor and does not
depend on the scale of the coordinates. `rmsprop` and `adam` work on the raw
entries and depend on that scale.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import control_flow
from tfp_adaptive.core import merging
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import shown
from tfp_adaptive.linear import schedule

__all__ = ['adam', 'relative_gradient', 'rmsprop']

_SCALE_DECAY_POWER = 0.6  # Above 1/2, so that the noise of the scale vanishes.


class RelativeGradientState(NamedTuple):
  """Sums of steps since the last move, and the number of updates."""

  pending: Any  # In the structure of the tangent.
  pending_log_scale: tf.Tensor  # [].
  num_updates: tf.Tensor  # [].

  merge_rules = dict(num_updates=merging.largest)


class RMSPropState(NamedTuple):
  """Mean squared gradient, and the number of updates."""

  mean_square: Any  # In the structure of the params.
  num_updates: tf.Tensor  # [].

  merge_rules = dict(num_updates=merging.largest)


class AdamState(NamedTuple):
  """Means of the gradient and of its square, and the number of updates."""

  mean: Any  # In the structure of the params.
  mean_square: Any  # In the structure of the params.
  num_updates: tf.Tensor  # [].

  merge_rules = dict(num_updates=merging.largest)


@shown.remembers_call
def relative_gradient(gain=4.0):
  """Builds the relative (natural) gradient step.

  A is the gradient in the tangent at C, divided by the criterion's
  `objective_scale`, which is beta for the generalized speed measure. After t
  updates with B chains, a step moves shape and scale:

    C C^T <- C (I + rho_t A) C^T
    C     <- C exp((1 + t / sqrt(B))^-0.6 scale_force)

  The criterion gives `scale_force`. For the generalized speed measure it is the
  mean acceptance minus its target. With the rule `'constraint'`, the slope of
  the entropy may replace it. If moves of C cost more than steps of the chains
  (large d, few chains), up to 16 small moves are summed and made at once. The
  structure's `move` bounds the change of shape so that C stays invertible. All
  quantities are dimensionless, so that a rescaled target gives a rescaled C.

  Args:
    gain: k, at least 1, of the rate rho_t = min(1/2, k / (t + delay)). The
      delay follows from the numbers of params and of chains
      (`linear/schedule`). A larger gain reaches far scales sooner, and a
      smaller gain has less noise.

  Returns:
    An `interfaces.Optimizer`.

  Raises:
    ValueError: If a number is not in its range.

  References:
    Amari (1998), Natural gradient works efficiently in learning; Cardoso and
    Laheld (1996), Equivariant adaptive source separation.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(
      target.log_prob, 1000, optimizer=tfpa.optimizers.relative_gradient(2.0)
    )
  """
  arguments.check_gain(gain)

  def init(params, problem):
    zero = tf.zeros([], problem.dtype)
    return RelativeGradientState(
      pending=scale_factor.zero_tangent(params),
      pending_log_scale=zero,
      num_updates=zero,
    )

  def update(grads, state, params, preconditioner, feedback, problem):
    count = state.num_updates
    chains = tf.cast(problem.num_chains, problem.dtype)
    rate = schedule.covariance_rate(count, problem, gain)
    # Half of the rate, because C (I + E) changes C C^T by twice E.
    step = 0.5 * rate / feedback.objective_scale
    pending = tf.nest.map_structure(
      lambda p, g: p + step * g, state.pending, grads
    )
    log_scale = state.pending_log_scale + feedback.scale_force * (
      (1.0 + count / chains**0.5) ** -_SCALE_DECAY_POWER
    )

    def move(params, pending, log_scale):
      bounded = tf.exp(tf.clip_by_value(log_scale, -0.5, 0.5))
      moved = preconditioner.rescale(
        preconditioner.move(params, pending), bounded
      )
      zeros = tf.nest.map_structure(tf.zeros_like, pending)
      return moved, zeros, tf.zeros_like(log_scale)

    period = schedule.update_period(problem)
    is_due = tf.equal(tf.math.floormod(count + 1.0, period), 0.0)
    params, pending, log_scale = control_flow.apply_if(
      is_due, move, params, pending, log_scale
    )
    return params, RelativeGradientState(pending, log_scale, count + 1.0)

  return interfaces.Optimizer(
    name='relative_gradient', is_relative=True, init=init, update=update
  )


@shown.remembers_call
def rmsprop(learning_rate, decay=0.9):
  """Builds RMSProp as in the reference, an ascent step on the raw params.

    G <- decay G + (1 - decay) grad^2,   G_0 = grad_0^2
    params <- params + learning_rate grad / (1 + sqrt(G))

  Args:
    learning_rate: Baseline rate, units of the params.
    decay: Weight of the past in the mean square, in [0, 1).

  Returns:
    An `interfaces.Optimizer`.

  Raises:
    ValueError: If a number is not in its range.

  References:
    Titsias and Dellaportas (2019), section 2.1.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(
      target.log_prob, 1000, optimizer=tfpa.optimizers.rmsprop(1e-3)
    )
  """
  arguments.check_positive(learning_rate, 'learning_rate', 1e-3)
  _check_decay(decay, 'decay')

  def init(params, problem):
    zeros = tf.nest.map_structure(tf.zeros_like, params)
    return RMSPropState(zeros, tf.zeros([], problem.dtype))

  def update(grads, state, params, preconditioner, feedback, problem):
    del feedback, problem
    keep = decay * tf.cast(state.num_updates > 0.0, state.num_updates.dtype)
    mean_square = tf.nest.map_structure(
      lambda m, g: keep * m + (1.0 - keep) * g**2, state.mean_square, grads
    )
    moved = tf.nest.map_structure(
      lambda p, g, m: p + learning_rate * g / (1.0 + tf.sqrt(m)),
      params,
      grads,
      mean_square,
    )
    return preconditioner.project(moved), RMSPropState(
      mean_square, state.num_updates + 1.0
    )

  return interfaces.Optimizer(
    name='rmsprop', is_relative=False, init=init, update=update
  )


@shown.remembers_call
def adam(
  learning_rate, decay=0.9, square_decay=0.999, epsilon=1e-8, clip_value=None
):
  """Builds Adam, an ascent step on the raw params.

  Args:
    learning_rate: Size of a step, units of the params.
    decay: Weight of the past in the mean gradient, in [0, 1).
    square_decay: Weight of the past in the mean square, in [0, 1).
    epsilon: Added to the root of the mean square.
    clip_value: Largest size of an entry of the gradient, summed over chains;
      larger entries are cut to it. By default none is cut.

  Returns:
    An `interfaces.Optimizer`.

  Raises:
    ValueError: If a number is not in its range.

  References:
    Kingma and Ba (2015), Algorithm 1, https://arxiv.org/abs/1412.6980.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(
      target.log_prob, 1000, optimizer=tfpa.optimizers.adam(1e-3)
    )
  """
  arguments.check_positive(learning_rate, 'learning_rate', 1e-3)
  _check_decay(decay, 'decay')
  _check_decay(square_decay, 'square_decay')
  if clip_value is not None:
    arguments.check_positive(clip_value, 'clip_value', 1000.0)

  def init(params, problem):
    zeros = tf.nest.map_structure(tf.zeros_like, params)
    return AdamState(zeros, zeros, tf.zeros([], problem.dtype))

  def update(grads, state, params, preconditioner, feedback, problem):
    del feedback
    if clip_value is not None:  # The gradients are means over chains.
      most = clip_value / tf.cast(problem.num_chains, problem.dtype)
      grads = tf.nest.map_structure(
        lambda g: tf.clip_by_value(g, -most, most), grads
      )
    count = state.num_updates + 1.0
    mean = tf.nest.map_structure(
      lambda m, g: decay * m + (1.0 - decay) * g, state.mean, grads
    )
    mean_square = tf.nest.map_structure(
      lambda m, g: square_decay * m + (1.0 - square_decay) * g**2,
      state.mean_square,
      grads,
    )
    rate = learning_rate / (1.0 - decay**count)
    square_bias = 1.0 - square_decay**count
    moved = tf.nest.map_structure(
      lambda p, m, s: p + rate * m / (tf.sqrt(s / square_bias) + epsilon),
      params,
      mean,
      mean_square,
    )
    return preconditioner.project(moved), AdamState(mean, mean_square, count)

  return interfaces.Optimizer(
    name='adam', is_relative=False, init=init, update=update
  )


def _check_decay(value, name):
  arguments.check_share(value, name, f'Write for example `{name}=0.9`.')
