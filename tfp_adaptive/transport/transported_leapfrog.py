"""Leapfrog steps in z with identity mass, for a map q = f(z).

    U~(z) = U(f(z)) - log |det Df(z)|,    f a bijector
    z <- z + s w,    w <- w + s (Df(z)^T g(f(z)) + grad log |det Df(z)|)

All rows are [chains..., d].

Source: Hirt, Titsias and Dellaportas (2021), Appendix C,
https://arxiv.org/abs/2110.14625.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf


class Trajectory(NamedTuple):
  """What a replay needs of a trajectory of L steps."""

  start: tf.Tensor  # q before the first step, [chains..., d].
  # Gradients of the log target after steps 1, ..., L, [L, chains..., d]; `[]`
  # if nothing is replayed.
  gradients: Any
  midpoint: tf.Tensor  # q after max(1, floor(L / 2)) steps, [chains..., d].
  num_steps: tf.Tensor  # L, [] int32.


class End(NamedTuple):
  """The end of a trajectory; pairs are values at the end and at the start."""

  position: tf.Tensor  # q, [chains..., d].
  # Log target at q, [chains...]; in a replay, its linear part.
  log_prob: tf.Tensor
  gradient: tf.Tensor  # Gradient of the log target at q, [chains..., d].
  log_det: tuple[tf.Tensor, tf.Tensor]  # log |det Df|, a pair of [chains...].
  kinetic: tuple[tf.Tensor, tf.Tensor]  # 1/2 |w|^2, a pair of [chains...].
  velocity: tf.Tensor  # w at the end, [chains..., d].

  @property
  def correction(self):
    """The log ratio without the change of the log target, [chains...]."""
    (log_det, log_det_start), (kinetic, kinetic_start) = (
      self.log_det,
      self.kinetic,
    )
    return log_det - log_det_start + kinetic_start - kinetic


def start_trajectory(flat, num_kept):
  """Returns a `Trajectory` of the right shapes; see `run` for `num_kept`."""
  zeros = [tf.zeros_like(flat)] * num_kept
  gradients = tf.stack(zeros) if zeros else []
  return Trajectory(flat, gradients, flat, tf.zeros([], tf.int32))


def run(
  bijector_fn,
  value_and_gradient,
  start,
  gradient,
  noise,
  step_size,
  num_steps,
  num_kept,
):
  """Makes `num_steps` steps from q, `start`; returns `End` and `Trajectory`.

  `bijector_fn` builds a new bijector f at every call. `value_and_gradient` is a
  function of q. `gradient` is the gradient of the log target at `start`, and
  `noise` the first velocity v. `num_kept` is the number of gradients that a
  replay needs: L, or 0 without a replay.
  """
  z, velocity, log_det_start = _start(
    bijector_fn, start, gradient, noise, step_size
  )
  gradients = []
  if num_kept:
    gradients = tf.TensorArray(
      start.dtype, size=num_kept, element_shape=start.shape
    )
  num_steps = tf.convert_to_tensor(num_steps)
  middle = tf.maximum(1, num_steps // 2)

  def step(done, z, velocity, end, gradients, midpoint):
    del end
    z += step_size * velocity
    position, log_det, pull = _through(bijector_fn, z)
    log_prob, gradient = value_and_gradient(position)
    kick = _kick(done + 1, num_steps, z.dtype)
    velocity += kick * step_size * pull(gradient)
    return (
      done + 1,
      z,
      velocity,
      (position, log_prob, gradient, log_det),
      gradients.write(done, gradient) if num_kept else [],
      tf.where(tf.equal(done + 1, middle), position, midpoint),
    )

  _, _, velocity, end, gradients, midpoint = tf.while_loop(
    lambda done, *_: done < num_steps,
    step,
    (
      tf.constant(0),
      z,
      velocity,
      (start, tf.zeros_like(log_det_start), gradient, log_det_start),
      gradients,
      start,
    ),
  )
  position, log_prob, gradient, log_det = end
  end = End(
    position=position,
    log_prob=log_prob,
    gradient=gradient,
    log_det=(log_det, log_det_start),
    kinetic=(_kinetic(velocity), _kinetic(noise)),
    velocity=velocity,
  )
  gradients = gradients.stack() if num_kept else []
  return end, Trajectory(start, gradients, midpoint, num_steps)


def replay(bijector_fn, trajectory, gradient, noise, step_size):
  """Returns the `End` as a function of f, with constant target gradients.

  The arguments are those of `run`, with the start in `trajectory`. The points
  of the path depend on f, too. `End.log_prob` is the last gradient times the
  position, which has the derivative of the log target.
  """
  z, velocity, log_det_start = _start(
    bijector_fn, trajectory.start, gradient, noise, step_size
  )
  num_steps = trajectory.gradients.shape[0]

  def step(done, z, velocity, position, log_det):
    del position, log_det
    z += step_size * velocity
    position, log_det, pull = _through(bijector_fn, z)
    kick = _kick(done + 1, num_steps, z.dtype)
    velocity += kick * step_size * pull(trajectory.gradients[done])
    return done + 1, z, velocity, position, log_det

  _, _, velocity, position, log_det = tf.while_loop(
    lambda done, *_: done < num_steps,
    step,
    (tf.constant(0), z, velocity, trajectory.start, log_det_start),
    maximum_iterations=num_steps,
  )
  return End(
    position=position,
    log_prob=tf.reduce_sum(trajectory.gradients[-1] * position, axis=-1),
    gradient=trajectory.gradients[-1],
    log_det=(log_det, log_det_start),
    kinetic=(_kinetic(velocity), _kinetic(noise)),
    velocity=velocity,
  )


def _start(bijector_fn, start, gradient, noise, step_size):
  """Returns z, the velocity after the first half kick and log |det Df(z)|."""
  z = bijector_fn().inverse(start)
  _, log_det, pull = _through(bijector_fn, z)
  return z, noise + 0.5 * step_size * pull(gradient), log_det


def _through(bijector_fn, z):
  """Returns f(z), log |det Df| and a function that can be called once.

  The function is g -> Df^T g + grad log |det Df|.
  """
  bijector = bijector_fn()
  # The bijector caches inverses by Tensor. A new Tensor has no cached inverse.
  z = tf.identity(z)
  with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(z)
    position = bijector.forward(z)
    log_det = bijector.forward_log_det_jacobian(z, event_ndims=1)
    # A constant Jacobian has no chain dimensions.
    log_det += tf.zeros_like(position[..., 0])

  def pull(gradient):
    return tape.gradient(
      [position, log_det],
      z,
      output_gradients=[gradient, tf.ones_like(log_det)],
    )

  return position, log_det, pull


def _kick(done, num_steps, dtype):
  return tf.where(tf.equal(done, num_steps), tf.constant(0.5, dtype), 1.0)


def _kinetic(velocity):
  return 0.5 * tf.reduce_sum(velocity**2, axis=-1)
