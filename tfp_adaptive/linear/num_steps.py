"""The number of leapfrog steps: fixed, drawn from a range, or learned.

A step draws one number for all chains, uniformly from a range (fewest, most),
so that no chain waits for another. A learned range is `num_leapfrog_steps` of
the results, [2] int32, and starts at the constructor's range. With kept momenta
there is a third number, see `kept_momentum`.
"""

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import arguments
from tfp_adaptive.core import random

_START = (1, 5)  # Start of a learned range.
_MOST_LEARNED = 32
SALT = 1  # Separates these draws from the noise, which has the same seed.


def resolve(num_leapfrog_steps, max_num_leapfrog_steps):
  """Returns the first number or range, and the largest number to be learned.

  The first is the given number, unless it is `None`, which means learned. The
  largest number is `None` if nothing is learned.
  """
  if num_leapfrog_steps is None:
    most = max_num_leapfrog_steps
    most = _MOST_LEARNED if most is None else most
    arguments.check_count(most, 'max_num_leapfrog_steps', _MOST_LEARNED)
    return (_START[0], min(_START[1], most)), most
  if max_num_leapfrog_steps is not None:
    raise ValueError(
      f'`max_num_leapfrog_steps={max_num_leapfrog_steps!r}` bounds a number '
      'that is learned, but got '
      f'`num_leapfrog_steps={num_leapfrog_steps!r}` as well. Leave one of them '
      'out.'
    )
  return num_leapfrog_steps, None


def check(num_leapfrog_steps, max_num_leapfrog_steps):
  """Refuses a wrong number or range, and a range beyond its bound."""
  pair = num_leapfrog_steps
  _, most = arguments.check_num_leapfrog_steps(pair)
  if max_num_leapfrog_steps is None:
    return
  arguments.check_count(
    max_num_leapfrog_steps, 'max_num_leapfrog_steps', _MOST_LEARNED
  )
  is_pair = isinstance(pair, (tuple, list))
  if not is_pair or most > max_num_leapfrog_steps:
    raise ValueError(
      'A learned number starts at a pair (fewest, most), at most '
      f'`max_num_leapfrog_steps={max_num_leapfrog_steps}`, but got '
      f'`num_leapfrog_steps={pair!r}`. Write for example '
      f'`num_leapfrog_steps=(1, {max_num_leapfrog_steps})`.'
    )


class DrawsNumSteps:
  """Mixin of proposals that have a number of leapfrog steps."""

  @property
  def num_leapfrog_steps(self):
    return self._parameters['num_leapfrog_steps']

  @property
  def max_num_leapfrog_steps(self):
    """Bound of a learned range, `None` if nothing is learned."""
    return self._parameters['max_num_leapfrog_steps']

  @property
  def bounds(self):
    """The range (fewest, most) of the constructor, ints."""
    given = self.num_leapfrog_steps
    if isinstance(given, (tuple, list)):
      return tuple(given)
    return given, given

  @property
  def mean_num_steps(self):
    return 0.5 * sum(self.bounds)

  def settled(self, learned):
    """Returns the final `num_leapfrog_steps` for the best range, `learned`."""
    return learned

  def learned_range(self, drawn):
    """Returns the learned range, two ints, from numpy integers, `drawn`."""
    return tuple(int(number) for number in drawn)

  def learned_at(self, results):
    learned = super().learned_at(results)
    if self.max_num_leapfrog_steps is not None:
      learned.update(
        num_leapfrog_steps=self._range_at(results), max_num_leapfrog_steps=None
      )
    return learned

  def cost_at(self, results, kind):
    """Returns the cost at the mean number of leapfrog steps.

    If the number is learned, an adapting step has the mean of the steps so far,
    and a frozen step has the mean of the learned range.
    """
    mean = None
    if self.max_num_leapfrog_steps is not None:
      if results is None:
        raise ValueError(
          'The number of leapfrog steps is learned, and so is the cost of a '
          'step. Pass the results as well: `tfpa.cost_per_step(kernel, '
          'adapting, result.final_kernel_results)`.'
        )
      mean = kind.mean_num_steps
      if not kind.is_adapting:
        learned = self.copy(num_leapfrog_steps=self._range_at(results))
        mean = learned.mean_num_steps
    return self.cost(kind.is_replayed, mean).plus(kind.beside)

  def _range_at(self, results):
    return self.learned_range(np.asarray(results.num_leapfrog_steps))

  def _init_num_steps(self):
    if self.max_num_leapfrog_steps is None:
      return []
    return tf.constant(self.bounds, tf.int32)

  def _draw_num_steps(self, results, seed):
    """Returns the number of leapfrog steps of a step with this seed."""
    bounds = self.bounds
    if self.max_num_leapfrog_steps is not None:
      bounds = tf.unstack(results.num_leapfrog_steps)
    return draw(*bounds, random.fold_in(seed, SALT))

  def _draw_velocity(self, flat, results, seed):
    """Returns the momentum that a step starts with, [chains..., d]."""
    del results
    return self._draw_noise(flat, seed)

  def _taken(self, results, path, velocity):
    """Returns the field `trajectory` of the results."""
    del results, velocity
    return path


def draw(fewest, most, seed):
  """Returns a draw from fewest, ..., most, ints or [] int32, as [] int32."""
  if isinstance(most, int) and fewest == most:
    return tf.constant(most)
  size = tf.cast(most - fewest + 1, tf.float32)
  place = tf.cast(
    tf.math.ceil(random.uniform([], tf.float32, seed) * size), tf.int32
  )
  return tf.clip_by_value(fewest - 1 + place, fewest, most)
