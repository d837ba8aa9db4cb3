"""Steps of a random walk among the steps of another proposal.

  y = x + s C v,   v ~ N(0, I),   C C^T the covariance of past states

A proposal that learns from visited states can learn to stay there. Random-walk
steps have a scale and a covariance of their own, as in adaptive Metropolis, and
do not depend on the surrogate. The mean accepted squared jumps of both kinds of
steps decide how often to make a random-walk step.

Sources: Haario, Saksman and Tamminen (2001), An adaptive Metropolis algorithm;
Andrieu and Thoms (2008), Algorithm 4, for the scale by acceptance.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive.core import arguments
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import step_sizes
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.surrogate import momentum_scale
from tfp_adaptive.surrogate import weighted_points

_SCALE = 2.38  # The best s for a Gaussian is 2.38 / sqrt(d).
_ACCEPT_PROB = 0.234
_RATE = 3.0  # log s changes by at most _RATE (step + _DELAY)^-_DECAY.
_DELAY = 10.0
_DECAY = 0.6
_LARGEST_SHARE = 0.9  # Some steps always follow f, to see if f has improved.
_SHARPNESS = 4.0  # Exponent of the jumps in the share.


class Walk(NamedTuple):
  """The distribution of random-walk steps, shared by chains."""

  share: tf.Tensor  # Probability of a random-walk step, [].
  step_size: tf.Tensor  # s, [].
  factor_params: Any  # Params of C, in the structure of `walk_preconditioner`.
  variances: tf.Tensor  # Variances of coordinates, the units of jumps, [d].
  # Mean accepted squared jumps since the last fit, of steps that follow the
  # surrogate and of random-walk steps, [2].
  earned: tf.Tensor
  counts: tf.Tensor  # Number of steps in each of these means, [2].


def start(share, step_size, noise, factor_params):
  """Returns the first `Walk`; by default s is 2.38 / sqrt(d)."""
  if step_size is None:
    size = tf.cast(state_parts.event_size(noise), noise.dtype)
    step_size = _SCALE / tf.sqrt(size)
  return Walk(
    share=tf.convert_to_tensor(share, dtype=noise.dtype),
    step_size=tf.convert_to_tensor(step_size, dtype=noise.dtype),
    factor_params=factor_params,
    variances=tf.ones_like(tf.reshape(noise, [-1, ps.shape(noise)[-1]])[0]),
    earned=tf.zeros([2], noise.dtype),
    counts=tf.zeros([2], noise.dtype),
  )


def propose(walk, preconditioner, x, noise):
  """Returns y, [chains..., d]."""
  factor = scale_factor.at(preconditioner, walk.factor_params)
  return x + walk.step_size * factor.apply(noise)


def adapt(walk, accept_prob, step):
  """Returns the `Walk` with s adapted after a random-walk step."""
  step = tf.cast(step, accept_prob.dtype)
  rate = _RATE * (step + _DELAY) ** -_DECAY
  change = step_sizes.change(accept_prob, _ACCEPT_PROB, rate)
  return walk._replace(step_size=walk.step_size * change)


def fit(walk, preconditioner, points, weights):
  """Returns the `Walk` with C fitted to past states [n, d] and weights [n].

  Earlier jumps are forgotten.
  """
  _, covariance = weighted_points.moments(points, weights)
  return walk._replace(
    factor_params=momentum_scale.fit(
      preconditioner, walk.factor_params, points, weights
    ),
    variances=tf.linalg.diag_part(covariance),
    earned=tf.zeros_like(walk.earned),
    counts=tf.zeros_like(walk.counts),
  )


def earn(walk, has_walked, displacement, log_accept_ratio):
  """Returns the `Walk` with the jump of a step, y - x, added to its means."""
  accept_prob = tf.exp(tf.minimum(log_accept_ratio, 0.0))
  jump = accept_prob * tf.reduce_sum(displacement**2 / walk.variances, axis=-1)
  earned = tf.reduce_mean(tf.where(tf.math.is_finite(jump), jump, 0.0))
  kind = tf.one_hot(tf.cast(has_walked, tf.int32), 2, dtype=earned.dtype)
  counts = walk.counts + kind
  return walk._replace(
    earned=walk.earned
    + kind * (earned - walk.earned) / tf.maximum(counts, 1.0),
    counts=counts,
  )


def earned_share(walk, least):
  """Returns the share of random-walk steps by the mean jumps, [].

    share = w^4 / (w^4 + q^4),   at least `least`, at most 0.9

  Here w and q are the mean jumps of random-walk steps and of other steps. The
  share is 1/2 before both means are known.
  """
  follow, walked = tf.unstack(walk.earned)
  share = 1.0 / (1.0 + (follow / tf.maximum(walked, 1e-30)) ** _SHARPNESS)
  is_known = tf.reduce_min(walk.counts) > 0.0
  share = tf.where(is_known, share, 0.5)
  return tf.clip_by_value(share, least, max(_LARGEST_SHARE, least))


def check_share(share):
  """Refuses a value that is not a share of steps."""
  arguments.check_share(
    share,
    'walk_share',
    'It is the share of steps that follow no surrogate. Write for example '
    '`walk_share=0.2`; where all steps should walk, use '
    '`tfpa.adaptive_metropolis`.',
  )
