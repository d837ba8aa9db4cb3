"""Runs leapfrog trajectories, and replays them as functions of the factor C.

A run keeps sums of gradients instead of the path. With these sums, the end of
the trajectory is a function of C that needs no target call. All rows are
[chains..., d], and `event_sum` sums over the event, across shards too.

Source: Hirt, Titsias and Dellaportas (2021), equations 2-5 and 12, Appendices
A.1-A.3 and E, https://arxiv.org/abs/2110.14625.
"""

from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive.linear import hessian_product as hessian

_SLOPE_SMOOTHING = 0.1
_DIVERGENCE = 1000.0  # Energy error above which a trajectory has diverged.


class Point(NamedTuple):
  """A point of a trajectory."""

  position: tf.Tensor  # [chains..., d].
  velocity: tf.Tensor  # [chains..., d].
  log_prob: tf.Tensor  # [chains...].
  gradient: tf.Tensor  # [chains..., d].


class Trajectory(NamedTuple):
  """What the end of a trajectory depends on if gradients are held constant.

  g_i is the gradient of the log target after i of L steps.
  """

  gradient_sum: tf.Tensor  # sum_{0 < i < L} g_i, [chains..., d].
  # sum_{0 < i < L} (L - i) g_i, [chains..., d].
  weighted_gradient_sum: tf.Tensor
  midpoint: tf.Tensor  # Position after floor(L / 2) steps, [chains..., d].
  midpoint_gradient: tf.Tensor  # Gradient there, [chains..., d].
  num_steps: tf.Tensor  # L, [] int32.


class Step(NamedTuple):
  """The constants of a step."""

  grad_start: tf.Tensor  # Gradient at the start, [chains..., d].
  grad_end: tf.Tensor  # Gradient at the end, [chains..., d].
  noise: tf.Tensor  # v, [chains..., d].
  trajectory: Trajectory


def check_hessian_product(hessian_product):
  """Refuses a name that is not a method."""
  if hessian_product not in hessian.METHODS:
    raise ValueError(
      f'`hessian_product` must be one of {hessian.METHODS}, but got '
      f'{hessian_product!r}.'
    )


def start_trajectory(flat):
  """Returns the trajectory of zero steps."""
  zeros = tf.zeros_like(flat)
  return Trajectory(zeros, zeros, flat, zeros, tf.zeros([], tf.int32))


def run(value_and_gradient, factor, start, num_steps):
  """Makes `num_steps` leapfrog steps of size 1 with inverse mass matrix C C^T.

  The velocity of `start` is the standard normal draw v, and L is at least 1.
  Returns the last `Point`, with the velocity after the last half kick, and the
  `Trajectory`. For derivatives in C use `change`.
  """
  num_steps = tf.convert_to_tensor(num_steps)
  middle = num_steps // 2
  velocity = start.velocity + 0.5 * factor.apply_adjoint(start.gradient)
  first = start._replace(velocity=velocity)
  trajectory = start_trajectory(start.position)._replace(
    midpoint_gradient=start.gradient, num_steps=num_steps
  )

  def step(done, point, trajectory):
    done += 1
    position = point.position + factor.apply(point.velocity)
    log_prob, gradient = value_and_gradient(position)
    is_last = tf.equal(done, num_steps)
    kick = tf.where(is_last, tf.constant(0.5, position.dtype), 1.0)
    velocity = point.velocity + kick * factor.apply_adjoint(gradient)
    # The sum of partial sums gives g_i the weight L - i.
    total = trajectory.gradient_sum + gradient
    weighted = trajectory.weighted_gradient_sum + total
    is_middle = tf.equal(done, middle)
    return (
      done,
      Point(position, velocity, log_prob, gradient),
      trajectory._replace(
        gradient_sum=tf.where(is_last, trajectory.gradient_sum, total),
        weighted_gradient_sum=tf.where(
          is_last, trajectory.weighted_gradient_sum, weighted
        ),
        midpoint=tf.where(is_middle, position, trajectory.midpoint),
        midpoint_gradient=tf.where(
          is_middle, gradient, trajectory.midpoint_gradient
        ),
      ),
    )

  _, end, trajectory = tf.while_loop(
    lambda done, *_: done < num_steps,
    step,
    (tf.constant(0), first, trajectory),
  )
  return end, trajectory


def has_converged(step, log_accept_ratio):
  """Returns whether trajectories did not diverge, [chains...] bool."""
  is_finite = log_accept_ratio > -_DIVERGENCE
  is_finite &= tf.math.is_finite(log_accept_ratio)
  sums = step.trajectory.weighted_gradient_sum + step.grad_end
  return is_finite & tf.reduce_all(tf.math.is_finite(sums), axis=-1)


def keep(is_finite, step):
  """Returns the step with zeros for the chains that diverged."""
  return tf.nest.map_structure(
    lambda t: (
      tf.where(is_finite[..., tf.newaxis], t, 0.0) if t.shape.rank else t
    ),
    step,
  )


def curvature_weight(num_steps, dtype):
  """Returns kappa = (L^2 - 1) / 6 of D = -kappa C^T H C (equation 12)."""
  square = tf.cast(num_steps, dtype) ** 2
  return (square - 1.0) / 6.0


def change(factor, step, event_sum):
  """Returns x_L - x, log pi(x_L) and the log ratio as functions of C.

  The last two are up to a constant. All gradients g_i of the trajectory are
  held constant.

    x_L = x + C (L v + C^T (Xi + L/2 g_0)),   w_L = v + C^T ((g_0 + g_L)/2 + S)

  Here S is `gradient_sum`, and Xi is `weighted_gradient_sum`.
  """
  num_steps = tf.cast(step.trajectory.num_steps, step.noise.dtype)
  pull, kick, pull_end = _pull_all(
    factor,
    step.trajectory.weighted_gradient_sum + 0.5 * num_steps * step.grad_start,
    step.trajectory.gradient_sum + 0.5 * (step.grad_start + step.grad_end),
    step.grad_end,
  )
  push = num_steps * step.noise + pull
  # g_L . C p is computed as (C^T g_L) . p, without another product with C.
  log_prob = event_sum(pull_end * push)
  kinetic = 0.5 * event_sum((step.noise + kick) ** 2)
  return factor.apply(push), log_prob, log_prob - kinetic


def log_det(factor, step, estimate, mean_slope, event_sum):
  """Returns log det(I + D) and an eigenvalue mu of D, both [chains...].

  mu has the largest absolute value. The values are those of the estimate, with
  probe e, weighted y and eigenvector u. The gradients are those of y^T D e and
  u^T D u, where D is a function of the factor and H is constant. Once C is
  learned, D is near a multiple of I. The gradient of y^T D e is then near c e
  e^T, with mean c I. The noise c (e e^T - I) is subtracted, with c =
  `mean_slope` from earlier steps.
  """
  kappa = curvature_weight(step.trajectory.num_steps, step.noise.dtype)
  pull_probe, pull_weighted, pull_vector = _pull_all(
    factor,
    estimate.hessian_probe,
    estimate.hessian_weighted,
    estimate.hessian_eigenvector,
  )
  bilinear = -kappa * event_sum(
    estimate.weighted * pull_probe + estimate.probe * pull_weighted
  )
  quadratic = -kappa * event_sum(estimate.eigenvector * pull_vector)
  return (
    estimate.value
    + (bilinear - tf.stop_gradient(bilinear))
    - mean_slope * factor.centered_stretch(estimate.probe, estimate.probe),
    # The value is u^T D u; its gradient is doubled, because C enters twice.
    2.0 * quadratic - tf.stop_gradient(quadratic),
  )


def mean_slope(mean, factor, step, estimate):
  """Returns the next c: a running mean of the slope of log det(I + D) / d.

  The slope is the derivative in the log scale. It is estimated by 2 y^T D e.
  """
  kappa = curvature_weight(step.trajectory.num_steps, step.noise.dtype)
  pull = factor.apply_adjoint(estimate.hessian_probe)
  slope = -2.0 * kappa * tf.reduce_mean(estimate.weighted * pull)
  is_usable = tf.math.is_finite(slope)
  slope = tf.clip_by_value(tf.where(is_usable, slope, mean), -2.0, 2.0)
  return mean + _SLOPE_SMOOTHING * (slope - mean)


def _pull_all(factor, *rows):
  """Multiplies several [chains..., d] by C^T at once."""
  return tf.unstack(factor.apply_adjoint(tf.stack(rows)))
