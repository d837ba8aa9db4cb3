"""Steps of a random walk among those of another proposal, and their law.

  y = x + s C v,   v ~ N(0, I),   C C^T the covariance of past states

A proposal that learns from where its chain has been can learn to stay there.
Walks have a scale and a covariance of their own, so that they go on finding
what is not known yet: adaptive Metropolis, which no surrogate can mislead.

Source: Haario, Saksman and Tamminen (2001), An adaptive Metropolis algorithm;
the scale by acceptance as in Andrieu and Thoms (2008), Algorithm 4.
"""

import collections

import tensorflow as tf

from tfp_adaptive.internal import momentum_scale
from tfp_adaptive.internal import scale_factor
from tfp_adaptive.internal import state_parts

__all__ = ['Walk', 'adapt', 'check_share', 'fit', 'propose', 'start']

_SCALE = 2.38  # Over sqrt(d): the best for a Gaussian.
_ACCEPT_PROB = 0.234
_RATE = 3.0  # log s moves by _RATE (step + _DELAY)^-_DECAY at most.
_DELAY = 10.0
_DECAY = 0.6


class Walk(
  collections.namedtuple('Walk', ['share', 'step_size', 'factor_params'])
):
  """The law of the walks, shared by chains.

  Attributes:
    share: Probability that a step walks, [].
    step_size: s, [].
    factor_params: Of C, in the structure of the proposal's preconditioner.
  """

  __slots__ = ()


def start(share, step_size, noise, factor_params):
  """Returns the walk before anything is learned.

  Args:
    share: Float.
    step_size: Float, or None: the best for a Gaussian whose covariance is C's.
    noise: [chains..., d], of the dtype of the state.
    factor_params: The first C.
  """
  if step_size is None:
    size = tf.cast(state_parts.event_size(noise), noise.dtype)
    step_size = _SCALE / tf.sqrt(size)
  return Walk(
    share=tf.convert_to_tensor(share, dtype=noise.dtype),
    step_size=tf.convert_to_tensor(step_size, dtype=noise.dtype),
    factor_params=factor_params,
  )


def propose(walk, preconditioner, x, noise):
  """Returns y, [chains..., d]."""
  factor = scale_factor.at(preconditioner, walk.factor_params)
  return x + walk.step_size * factor.apply(noise)


def adapt(walk, accept_prob, step):
  """Returns the walk after a step that walked, s moved by its acceptance.

  Args:
    walk: `Walk`.
    accept_prob: Mean over chains, [].
    step: Its number, [] int32.
  """
  step = tf.cast(step, accept_prob.dtype)
  rate = _RATE * (step + _DELAY) ** -_DECAY
  change = tf.exp(rate * (accept_prob - _ACCEPT_PROB))
  return walk._replace(step_size=walk.step_size * change)


def fit(walk, preconditioner, points, weights):
  """Returns the walk with C fitted to past states, [n, d] and [n]."""
  return walk._replace(
    factor_params=momentum_scale.fit(
      preconditioner, walk.factor_params, points, weights
    )
  )


def check_share(share):
  """Refuses what is no share of steps."""
  if not 0.0 <= share < 1.0:
    raise ValueError(
      '`walk_share` must be in [0, 1): the share of steps that follow no '
      f'surrogate, but got {share!r}. Write for example `walk_share=0.2`; '
      'where all steps should walk, use `tfpa.adaptive_metropolis`.'
    )
