"""Step sizes some of which are short, so that no chain stays stuck in a neck.

A step size that is right for the bulk of a target is rejected almost always
where that is narrow: chains seldom enter such places, stay for thousands of
steps where they do, and no diagnosis sees what was not entered. With a
probability that does not depend on the state, a step is shorter:

  s_t = s m,   log m ~ U(log 0.1, 0) with probability `share`, m = 1 else

Each m has its own reversible step, and their mixture is reversible too. All
chains draw the same m, so that a step is short as a whole, and adaptations
leave it alone: it says nothing of the step size that is learned.

Source: random step sizes as in Neal (2011), MCMC using Hamiltonian dynamics,
section 5.4.2.2, https://arxiv.org/abs/1206.1901.
"""

import math

import tensorflow as tf

from tfp_adaptive.core import arguments
from tfp_adaptive.core import random

__all__ = ['check_share', 'draw']

_SHORTEST = 0.1
_SALT = 7  # Tells these draws from those of the noise, of the same seed.


def draw(share, dtype, seed, shortest=_SHORTEST):
  """Returns m, [].

  Args:
    share: Float.
    dtype: Of the state.
    seed: [2] int32, of the step.
    shortest: The least m.
  """
  choice_seed, length_seed = random.split(random.fold_in(seed, _SALT), 2)
  is_short = random.uniform([], dtype, choice_seed) <= share
  length = random.uniform([], dtype, length_seed)
  return tf.where(is_short, tf.exp(math.log(shortest) * length), 1.0)


def check_share(share):
  """Refuses what is no share of steps."""
  arguments.check_share(
    share,
    'short_step_share',
    'It is the share of steps that are shorter than `step_size`. Write for '
    'example `short_step_share=0.2`, or 0 for steps of one size.',
  )
