"""The leapfrog integrator in velocities, keeping sums instead of the path.

Source: Hirt, Titsias and Dellaportas (2021), equations 2-5 and Appendix E,
https://arxiv.org/abs/2110.14625.
"""

import collections

import tensorflow as tf

__all__ = ['Point', 'Trajectory', 'run', 'start_trajectory']


class Point(
  collections.namedtuple(
    'Point', ['position', 'velocity', 'log_prob', 'gradient']
  )
):
  """Where a trajectory is: [chains..., d], `log_prob` [chains...]."""

  __slots__ = ()


class Trajectory(
  collections.namedtuple(
    'Trajectory',
    [
      'gradient_sum',
      'weighted_gradient_sum',
      'midpoint',
      'midpoint_gradient',
      'num_steps',
    ],
  )
):
  """What the end of a trajectory depends on, gradients held constant.

  With g_i the gradient of the log target after i of L steps:

  Attributes:
    gradient_sum: sum_{0 < i < L} g_i, [chains..., d].
    weighted_gradient_sum: sum_{0 < i < L} (L - i) g_i, [chains..., d].
    midpoint: Position after floor(L / 2) steps, [chains..., d].
    midpoint_gradient: Gradient there, [chains..., d].
    num_steps: L, [] int32.
  """

  __slots__ = ()


def start_trajectory(flat):
  """Returns the trajectory of no steps."""
  zeros = tf.zeros_like(flat)
  return Trajectory(zeros, zeros, flat, zeros, tf.zeros([], tf.int32))


def run(value_and_gradient, factor, start, num_steps):
  """Makes `num_steps` leapfrog steps of size 1 with inverse mass matrix C C^T.

  Args:
    value_and_gradient: Function of positions [chains..., d] to log density and
      gradient.
    factor: An `interfaces.ScaleFactor`, C.
    start: `Point`; its velocity is the standard normal draw v.
    num_steps: L, [] int32 or int, at least 1.

  Returns:
    The last `Point`, its velocity after the last half kick, and the
    `Trajectory`. No gradient can pass through them.
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
