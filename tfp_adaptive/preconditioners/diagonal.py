"""Diagonal scale factor: C = diag(c), one scale per coordinate."""

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import shown


@shown.remembers_call
def diagonal(init_scale=None, min_scale=0.0):
  """Builds a diagonal scale factor, params c of shape [event_size].

  It learns the scales of the coordinates and no correlation between them, and
  costs O(d) in time and memory.

    C = diag(c),   c <- c * exp(e)

  Here e is the tangent, with entries clipped to [-1/2, 1/2].

  Args:
    init_scale: First scale of all coordinates, in units of the state: a
      positive float or a function of the event size. By default the adaptation
      finds this scale.
    min_scale: Smallest scale after a step of an optimizer that works on raw
      params (`rmsprop`, `adam`). With 0, negative scales change their sign,
      which leaves C C^T unchanged. With `relative_gradient` c stays positive.

  Returns:
    An `interfaces.Preconditioner`.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(
      target.log_prob, 1000, preconditioner=tfpa.preconditioners.diagonal()
    )
  """
  return interfaces.Preconditioner(
    name='diagonal',
    init=lambda event_size, dtype, scale: (
      tf.cast(scale, dtype) * tf.ones([event_size], dtype)
    ),
    operator=lambda c: tf.linalg.LinearOperatorDiag(c, is_non_singular=True),
    outer=lambda c, left, right, push: tf.reduce_sum(left * right, axis=0),
    log_det_gradient=tf.ones_like,
    slope=lambda c, grads: tf.reduce_sum(grads),
    move=lambda c, tangent: c * tf.exp(tf.clip_by_value(tangent, -0.5, 0.5)),
    rescale=lambda c, by: by * c,
    project=lambda c: scale_factor.positive(c, min_scale),
    init_scale=init_scale,
  )
