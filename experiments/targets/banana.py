"""A bent Gaussian: two coordinates lie along a parabola.

  z ~ N(0, diag(100, 1, ..., 1));  x = z, but x_1 = z_1 + b (z_0^2 - 100)

The map keeps volumes, so log pi(x) = -z_0^2 / 200 - sum_{i>0} z_i^2 / 2. The
mean is 0, and the variances are 100, 1 + 2 (100 b)^2, 1, ..., 1. Coordinates
are uncorrelated, so no linear map helps. The curvature changes along the
parabola, and the largest stable step changes with the curvature.

References: Haario, Saksman and Tamminen (1999).
"""

import numpy as np
import tensorflow as tf
from pydantic import Field

from experiments.targets.base import Target
from experiments.targets.base import TargetParameters
from experiments.targets.registry import TARGETS

_VARIANCE = 100.0


def banana_target(event_size, bend, dtype='float32'):
  """Returns the banana with its moments.

  Args:
    event_size: Number of coordinates, at least 2.
  """
  variances = np.ones([event_size])
  variances[:2] = _VARIANCE, 1.0 + 2.0 * (_VARIANCE * bend) ** 2

  def target_log_prob_fn(x):
    straight = x[..., 1] - bend * (tf.square(x[..., 0]) - _VARIANCE)
    rest = tf.reduce_sum(tf.square(x[..., 2:]), axis=-1)
    along = tf.square(x[..., 0]) / _VARIANCE
    return -0.5 * (along + tf.square(straight) + rest)

  def exact_draws(num_draws, seed):
    draws = np.random.default_rng(seed).normal(size=(num_draws, event_size))
    draws[:, 0] *= np.sqrt(_VARIANCE)
    draws[:, 1] += bend * (draws[:, 0] ** 2 - _VARIANCE)
    return draws

  return Target(
    name='banana',
    target_log_prob_fn=target_log_prob_fn,
    event_size=event_size,
    dtype=dtype,
    mean=np.zeros(event_size),
    covariance=variances,
    exact_draws_fn=exact_draws,
  )


@TARGETS.register('banana')
class Banana(TargetParameters):
  """A Gaussian bent along a parabola in its first two coordinates."""

  event_size: int = Field(2, ge=2, le=10**6)
  bend: float = 0.1

  def build(self, context):
    return banana_target(self.event_size, self.bend, context.dtype)
