"""Where chains start, and what a density must do before they do."""

import warnings

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import custom_gradient
from tfp_adaptive.core import random
from tfp_adaptive.core import target_call

__all__ = ['Evaluate', 'draw']

_NUM_TRIES = 20  # To draw starts with a finite density and gradient.
# Below the best start, in nats: float32 knows values there to 4 nats. A chain
# that rejects all steps stays there, as its step size is that of all chains.
_FARTHEST = 2.0**26
_ROUNDING, _NEGLIGIBLE = 16, 1e-2  # In units of the last place, and in nats.
_MIXED = (
  'it mixes chains, or is random. Sum and multiply over the axes of an event '
  'only, the last ones; the first axis is chains. A joint distribution for one '
  'chain is `tfd.JointDistributionCoroutineAutoBatched`.'
)


class Evaluate:
  """Values and gradients of a density at rows [n, d], a batch at a time.

  Batches are of as many rows as there are chains: a density need not hold more
  at once. They are counted, in calls for each chain.
  """

  def __init__(self, target_log_prob_fn, num_chains):
    self._num_chains = num_chains
    self.num_calls = 0

    def value_and_gradient(rows):
      with tf.GradientTape() as tape:
        tape.watch(rows)
        value = tf.convert_to_tensor(target_log_prob_fn(rows))
        total = tf.reduce_sum(value)
      gradient = tape.gradient(
        total, rows, unconnected_gradients=tf.UnconnectedGradients.ZERO
      )
      # What bijectors registered would keep the graph in memory.
      custom_gradient.let_go(tf.compat.v1.get_default_graph())
      return value, gradient

    self._traced = value_and_gradient
    self._function = tf.function(value_and_gradient, autograph=False)

  def graph(self, rows):
    """Returns the graph that values and gradients are computed by."""
    rows = tf.constant(rows)[: self._num_chains]
    return self._function.get_concrete_function(rows).graph

  def lower(self, rows):
    """Raises what XLA refuses, if it does; nothing is compiled or computed."""
    rows = tf.constant(rows)[: self._num_chains]
    # Traced anew: for XLA the gradient of a loop is another program.
    function = tf.function(self._traced, autograph=False, jit_compile=True)
    function.experimental_get_compiler_ir(rows)('hlo')

  def shape_of_value(self, rows):
    """Returns the shape of what the density says of rows."""
    try:
      return tuple(self._function(tf.constant(rows))[0].shape)
    except (tf.errors.InvalidArgumentError, LookupError) as error:
      what = 'The log density or its gradient cannot be computed'
      raise target_call.explained(error, what) from error

  def __call__(self, rows):
    """Returns values [n] and gradients [n, d], numpy."""
    rows = np.asarray(rows)
    values, gradients = [], []
    for start in range(0, len(rows), self._num_chains):
      # The last batch is filled up with its first row.
      batch = rows[start : start + self._num_chains]
      missing = [batch[:1]] * (self._num_chains - len(batch))
      batch = np.concatenate([batch, *missing])
      value, gradient = self._function(tf.constant(batch))
      values.append(np.asarray(value))
      gradients.append(np.asarray(gradient))
      self.num_calls += 1
    count = len(rows)
    return np.concatenate(values)[:count], np.concatenate(gradients)[:count]


def draw(problem, evaluate, num_chains, seed):
  """Returns starts [num_chains, d] and how many were drawn again.

  Where nobody gave them they are uniform in unconstrained space; those without
  a finite density or gradient, or so far out that no step can be told there,
  are drawn again, in the end from the prior.

  Raises:
    ValueError: If the density is none for each chain, or no start is finite.
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
        _check(evaluate, tried)
      found = _finite_values(evaluate, tried)
      is_better = ~is_good & (found > values)
      starts = np.where(is_better[:, np.newaxis], tried, starts)
      values = np.where(is_better, found, values)
      is_good = np.isfinite(values) & (values > np.max(values) - _FARTHEST)
      if np.all(is_good):
        return starts, _num_differing(starts, first)
  if np.all(np.isfinite(values)):
    return starts, _num_differing(starts, first)
  is_finite = np.isfinite(values)
  raise ValueError(
    f'The log density or its gradient is not finite at the starts of '
    f'{np.sum(~is_finite)} of {num_chains} chains, the last of them '
    f'{_shown(tried[np.argmin(is_finite)])} in unconstrained space. Check the '
    'supports, the priors and the data, or give starts where the density is '
    'positive, `init={"name": array of [num_chains, ...]}`.'
  )


def _drawn(law, num_chains, seed, is_sure):
  """Returns rows of a law, `None` if it fails: a prior may have no draws."""
  try:
    return np.asarray(law(num_chains, seed))
  except (LookupError, RuntimeError, TypeError, ValueError, tf.errors.OpError):
    if is_sure:
      raise
    return None


def _finite_values(evaluate, rows):
  """Returns log densities [n]; -inf where they or gradients are not finite."""
  value, gradient = evaluate(rows)
  is_finite = np.isfinite(value) & np.all(np.isfinite(gradient), axis=-1)
  return np.where(is_finite, value, -np.inf)


def _num_differing(rows, others):
  return int(np.sum(np.any(rows != others, axis=-1)))


def _check(evaluate, starts):
  """Refuses a density that is not one number for each chain, of that chain."""
  num_chains, size = starts.shape
  shape = evaluate.shape_of_value(starts)
  if shape != (num_chains,):
    hint = 'Sum over the axes of an event only: `tf.reduce_sum(..., axis=-1)`.'
    if shape == ():
      hint = (
        'It sums over chains, or knows none of them: give every chain its own '
        'density, `tf.reduce_sum(..., axis=-1)`, or take '
        '`tfd.JointDistributionCoroutineAutoBatched` for a model that is '
        'written for one.'
      )
    raise ValueError(
      f'The log density has shape {shape} for {num_chains} chains, but must '
      f'have one number for each, ({num_chains},). {hint}'
    )
  if np.ptp(starts, axis=0).max() == 0.0:
    raise ValueError(
      'All chains start at one point, and R-hat can only tell those apart that '
      'began so. Give starts that lie apart; of a joint distribution leave '
      '`init` out, of a density write `init=tf.TensorSpec(event shape)`, and '
      'they are drawn.'
    )
  _check_others(evaluate, starts)


def _check_others(evaluate, starts):
  """Refuses a density of a chain that another chain changes; warns if little.

  Little of a density that is large may be all of one of its terms.
  """
  # The farthest row in the place of the first: its density is what it was,
  # and that of all others too.
  far = int(np.argmax(np.sum((starts - starts[0]) ** 2, axis=-1)))
  expected, _ = evaluate(starts)
  expected[0] = expected[far]
  found, _ = evaluate(np.concatenate([starts[far : far + 1], starts[1:]]))
  if not np.allclose(found, expected, rtol=1e-3, atol=1e-3, equal_nan=True):
    raise ValueError(
      f'The log density of a chain changes when another chain moves: {_MIXED}'
    )
  # The same program of the same numbers; the place in a batch rounds too.
  rounding = _ROUNDING * np.finfo(found.dtype).eps * np.abs(expected[1:])
  with np.errstate(invalid='ignore'):  # Of infinities.
    change = np.abs(found[1:] - expected[1:])
  if np.any(change > np.maximum(rounding, _NEGLIGIBLE)):
    warnings.warn(
      f'The log density of a chain changes by {np.nanmax(change):.2g} when '
      f'another chain moves, more than numbers of its size round: {_MIXED}',
      stacklevel=8,  # Where `sample_posterior` was called.
    )


def _shown(row):
  return np.array2string(row, precision=3, threshold=6, separator=', ')
