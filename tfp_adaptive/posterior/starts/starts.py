"""Draws starts of chains, and checks the density before chains run."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import random
from tfp_adaptive.core import run_warnings
from tfp_adaptive.posterior.model import data
from tfp_adaptive.posterior.starts import arrival
from tfp_adaptive.posterior.starts import ascent

_NUM_TRIES = 20  # Most draws of starts for a finite density and gradient.
# Least gain in nats of an iteration of the ascent: a constant, and per
# coordinate.
_LEAST_GAIN, _LEAST_GAIN_PER_COORDINATE = 10.0, 2.0
# Largest change that counts as rounding: in units of the last place, and in
# nats. The larger of both applies.
_ROUNDING, _NEGLIGIBLE = 16, 1e-2
_MIXED = (
  'it mixes chains, or is random. Sum and multiply only over the last axes, '
  'those of an event. The first axis is chains. Write a joint distribution for '
  'one chain as `tfd.JointDistributionCoroutineAutoBatched`.'
)


class Starts(NamedTuple):
  """Starts of chains, and how they were found."""

  rows: np.ndarray  # Unconstrained, [chains, d], in the dtype of the model.
  num_redrawn: int  # Chains whose first start was replaced by a later draw.
  # Chains that found no way up and start where another chain does.
  num_moved: int
  gain: float  # The largest gain of a chain in the ascent, in nats.

  def __str__(self):
    words = []
    if self.num_redrawn:
      words.append(f'{self.num_redrawn} of {len(self.rows)} drawn again')
    if self.gain:
      words.append(f'moved uphill by up to {self.gain:.3g} nats')
    if self.num_moved:
      words.append(f'{self.num_moved} moved to where others are')
    return ', '.join(words) or 'as drawn'


def draw(problem, density, num_chains, seed, is_late=lambda: False):
  """Returns the `Starts` of a run.

  Starts that the user does not give are uniform in unconstrained space. Starts
  without a finite density and gradient are drawn again. After 20 such attempts,
  up to 20 more draw from the prior. Then all starts move uphill until time is
  up, see `ascent`.
  """
  laws = [problem.draw_starts, problem.draw_prior]
  first, is_good = None, np.zeros([num_chains], bool)
  for number, law in enumerate(law for law in laws if law is not None):
    for attempt in range(_NUM_TRIES):
      fresh = random.fold_in(seed, _NUM_TRIES * number + attempt)
      rows = _drawn(law, num_chains, fresh, is_sure=number == 0)
      if rows is None or (first is not None and rows.shape != first.shape):
        break
      tried = rows
      if first is None:
        first = starts = tried
        values = np.full([num_chains], -np.inf)
        _check(density, tried)
        if problem.model is None and problem.in_python is None:
          _check_one(density, num_chains)
      found, _ = ascent.evaluated(density.evaluate, tried)
      is_better = ~is_good & (found > values)
      starts = np.where(is_better[:, np.newaxis], tried, starts)
      values = np.where(is_better, found, values)
      is_good = np.isfinite(values)
      if np.all(is_good):
        return _uphill(density, starts, first, is_late)
  raise ValueError(_without_a_start(problem, density, tried, values))


def _without_a_start(problem, density, tried, values):
  """Returns the message for a run without starts, with advice.

  The starts `tried`, [chains, d], were drawn last. `values` are the best log
  densities of all chains so far, [chains].
  """
  is_finite = np.isfinite(values)
  found, _ = density.evaluate(tried)
  worst = int(np.argmin(is_finite))
  begin = (
    f'is not finite at the starts of {np.sum(~is_finite)} of {len(values)} '
    f'chains, the last of them {_shown(tried[worst])} in unconstrained space'
  )
  if np.isfinite(found[worst]):
    what = (
      f'The gradient of the log density {begin}, though the log density is. A '
      '`tf.where` whose other branch is not finite has such a gradient: write '
      'a second `tf.where` that makes the argument of that branch harmless, '
      '`tf.where(ok, tf.math.log(tf.where(ok, x, 1.)), 0.)`.'
    )
  else:
    what = (
      f'The log density {begin} ({found[worst]}). Check the supports, the '
      'priors and the data, or give starts where the density is positive, '
      '`init={"name": array of [num_chains, ...]}`.'
    )
  if problem.model is not None and data.has_probs(problem.model):
    what += (
      ' Write `tfd.Bernoulli(logits=...)` instead of `probs=`: probabilities '
      'round to 0 and 1.'
    )
  if density.dtype == tf.float32:
    what += ' Large numbers overflow in float32: try `dtype=tf.float64`.'
  return what


def _uphill(density, starts, first, is_late):
  """Returns the `Starts` uphill of drawn starts."""
  size = starts.shape[1]
  gap = arrival.gap(size)
  least_gain = _LEAST_GAIN + _LEAST_GAIN_PER_COORDINATE * size
  rows, values, gains = ascent.ascend(
    density.evaluate, starts, least_gain, gap, is_late
  )
  is_lost = arrival.below(values, gap)
  rows = arrival.replaced(rows.astype(starts.dtype), is_lost)
  num_redrawn = int(np.sum(np.any(starts != first, axis=-1)))
  return Starts(rows, num_redrawn, int(np.sum(is_lost)), float(np.max(gains)))


def _drawn(law, num_chains, seed, is_sure):
  """Returns drawn rows, or `None` if a prior has no draws."""
  try:
    return np.asarray(law(num_chains, seed))
  except (LookupError, RuntimeError, TypeError, ValueError, tf.errors.OpError):
    if is_sure:
      raise
    return None


def _check(density, starts):
  """Refuses a density that does not give each chain a number of its own."""
  num_chains, size = starts.shape
  shape = density.shape_of_values
  if shape != (num_chains,):
    hint = 'Sum over the axes of an event only: `tf.reduce_sum(..., axis=-1)`.'
    if shape == ():
      hint = (
        'It sums over chains, or is written for one chain: give every chain '
        'its own density, `tf.reduce_sum(..., axis=-1)`, or write a joint '
        'distribution for one chain as '
        '`tfd.JointDistributionCoroutineAutoBatched`.'
      )
    raise ValueError(
      f'The log density has shape {shape} for {num_chains} chains, but must '
      f'have one number for each, ({num_chains},). {hint}'
    )
  if np.ptp(starts, axis=0).max() == 0.0:
    raise ValueError(
      'All chains start at one point, but R-hat needs chains that start apart. '
      'Give starts that lie apart. Or let starts be drawn: leave out `init` '
      'for a joint distribution, write `init=tf.TensorSpec(event shape)` for a '
      'density.'
    )
  _check_others(density.evaluate, starts)


def _check_one(density, num_chains):
  """Refuses as many values as chains if they do not come from the chains.

  The log densities of 8 data without their sum have the right shape for 8
  chains, and for equal data no other check fails. One chain has 8 values too.
  """
  if density.shape_of_one() == (num_chains,):
    raise ValueError(
      f'The log density has the shape ({num_chains},) for {num_chains} chains, '
      'but for one chain too, so that these are no chains. Sum over the data: '
      '`tf.reduce_sum(..., axis=-1)`, with unknowns of '
      '`x[..., tf.newaxis]`. If the density is written for a fixed number of '
      'chains, take that number from its argument, `tf.shape(x)[0]`.'
    )


def _check_others(evaluate, starts):
  """Refuses a density of a chain that depends on another chain.

  A change that is small relative to the density causes a warning, because it
  may be a whole term of a large density.
  """
  # The row that is farthest from the first row replaces the first row. Its
  # density must not change, and neither must the densities of all other rows.
  far = int(np.argmax(np.sum((starts - starts[0]) ** 2, axis=-1)))
  expected, _ = evaluate(starts)
  expected[0] = expected[far]
  found, _ = evaluate(np.concatenate([starts[far : far + 1], starts[1:]]))
  if not np.allclose(found, expected, rtol=1e-3, atol=1e-3, equal_nan=True):
    raise ValueError(
      f'The log density of a chain changes when another chain moves: {_MIXED}'
    )
  # Rounding may depend on the position of a row in the batch.
  rounding = _ROUNDING * np.finfo(found.dtype).eps * np.abs(expected[1:])
  with np.errstate(invalid='ignore'):  # Infinities may cancel.
    change = np.abs(found[1:] - expected[1:])
  if np.any(change > np.maximum(rounding, _NEGLIGIBLE)):
    run_warnings.warn(
      f'The log density of a chain changes by {np.nanmax(change):.2g} when '
      f'another chain moves, more than rounding explains: {_MIXED}',
    )


def _shown(row):
  return np.array2string(row, precision=3, threshold=6, separator=', ')
