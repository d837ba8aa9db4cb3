"""The matrix or the map that `HostEngine` learns from steps of the chains."""

from typing import NamedTuple

import numpy as np

from tfp_adaptive.fits import conditional
from tfp_adaptive.fits import matrix as matrix_lib
from tfp_adaptive.fits import natural as natural_lib
from tfp_adaptive.fits import search as search_lib
from tfp_adaptive.posterior.engines import kept


class Learned(NamedTuple):
  """What `learn` has changed."""

  is_new: bool  # Whether the matrix or map has changed.
  step_size: float = 0.0  # The new step size; 0 keeps the old one.


class LearnedMatrix(kept.Kept):
  """The dense factor C with the least Fisher divergence.

  Trajectories run in z, with x = m + C z. m is 0 before the first fit, then the
  weighted mean of the states up to the last fit.
  """

  is_matrix = True
  coordinates = 'states'  # Lengths learn from x, `program.Point.states`.
  # Step t has the weight gain / (t + gain * prior steps) in the moments.
  _GAIN, _PRIOR_STEPS = 2.0, 1.0
  _FIRST_FIT, _GROWTH, _FEW_DIMENSIONS, _LAST_FIT = 2.0, 0.1, 25.0, 0.6

  fields = (
    'factor',
    'centre',
    'num_failed_fits',
    '_time',
    '_next_fit',
    '_mean_state',
    '_mean_gradient',
    '_spread_state',
    '_spread_gradient',
  )

  def __init__(self, size, num_adaptation_steps):
    self._num_adaptation_steps = num_adaptation_steps
    self.factor, self.centre = np.eye(size), np.zeros([size])
    self.num_failed_fits = 0
    self._time, self._next_fit = 0.0, self._FIRST_FIT
    self._mean_state, self._mean_gradient = np.zeros([2, size])
    self._spread_state, self._spread_gradient = np.zeros([2, size, size])

  @property
  def params(self):
    """The map x = m + C z as `conditional.Params`."""
    identity = natural_lib.of_scale(len(self.factor), [])
    return conditional.Params(identity._replace(mean=self.centre), self.factor)

  @property
  def steps_to_fit(self):
    """Steps until the next fit, including the step that fits."""
    return np.ceil(self._next_fit - self._time)

  def scale_by(self, factor, states, gradients):
    """Multiplies the scale, and starts the means at the given states."""
    self.factor = factor * self.factor
    is_known = np.all(np.isfinite(states), axis=1)
    if np.any(is_known):
      self._mean_state = np.mean(states[is_known], axis=0)
      self._mean_gradient = np.mean(gradients[is_known], axis=0)

  def learn(self, states, gradients, generator):
    """Learns from one state of every chain; returns `Learned`.

    States and gradients are [chains, d], NaN for chains whose squares overflow.
    """
    del generator
    self._time += 1.0
    is_known = np.all(np.isfinite(states), axis=1)
    if not np.any(is_known):
      return Learned(False)
    states, gradients = states[is_known], gradients[is_known]
    weight = self._GAIN / (self._time + self._GAIN * self._PRIOR_STEPS)
    self._mean_state, self._spread_state = _moved(
      self._mean_state, self._spread_state, states, weight
    )
    self._mean_gradient, self._spread_gradient = _moved(
      self._mean_gradient, self._spread_gradient, gradients, weight
    )
    if self._time >= self._next_fit:
      self._next_fit = self._next_time(len(self.factor))
      factor = matrix_lib.factor(
        self._spread_state, self._spread_gradient, self._time * len(states)
      )
      if np.all(np.isfinite(factor)):
        self.factor, self.centre = factor, self._mean_state
        return Learned(True)
      self.num_failed_fits += 1
    return Learned(False)

  def num_steps_followed(self, num_updates):
    """Returns for how many steps the step size has adapted to this matrix."""
    return num_updates

  def _next_time(self, size):
    """Returns the step of the next fit, see `linear.fisher_fit.next_time`."""
    size, time = size / self._FEW_DIMENSIONS, self._time
    growth = 1.0 + self._GROWTH * max(size, 1.0) ** 0.7
    following = max(time + 1.0, growth * time)
    last = float(int(self._LAST_FIT * self._num_adaptation_steps))
    return last if size > 1.0 and time < last < following else following


class LearnedMap(kept.Kept):
  """The map x = f(C z), fitted at growing intervals to past pairs.

  f is a conditional Gaussian and C a matrix. A pair is a state and its
  gradient. Trajectories run in z.
  """

  is_matrix = False
  coordinates = 'rows'  # Lengths learn from z, `program.Point.rows`.
  _FIRST_FIT, _GROWTH, _LAST_FIT = 32.0, 2.0, 0.6
  _NUM_PAIRS, _RECENCY = 4000, 2.0

  fields = (
    *natural_lib.Natural._fields,
    'factor',
    'num_failed_fits',
    '_time',
    '_next_fit',
    '_last_fit',
    '_num_fits',
    '_num_seen',
    '_pairs',
    '_place',
  )

  def __init__(
    self, size, num_adaptation_steps, drivers=(), exponents=(), is_bent=False
  ):
    """Starts as the identity; see `structure.Choice` for the drivers.

    `exponents` are those of each driver's term in the precision, per unit of
    the driver. Without drivers, every fit searches for them. If `is_bent`,
    means follow products of drivers too.
    """
    self._given = np.array(drivers, int), np.array(exponents, float)
    self._is_bent = is_bent
    self._num_drivers = len(drivers) or min(search_lib.MOST_DRIVERS, size - 1)
    first = drivers if len(drivers) else [-1] * self._num_drivers
    self._set(natural_lib.of_scale(size, first, is_bent), np.eye(size))
    self._last_time = float(int(self._LAST_FIT * num_adaptation_steps))
    self.num_failed_fits = self._num_fits = 0
    self._time = self._last_fit = 0.0
    self._next_fit = min(self._FIRST_FIT, self._last_time)
    self._forget()

  @property
  def params(self):
    """The map as `conditional.Params`."""
    names = natural_lib.Natural._fields
    natural = natural_lib.Natural(*(getattr(self, name) for name in names))
    return conditional.Params(natural, self.factor)

  @property
  def steps_to_fit(self):
    """Steps until the next fit, including the step that fits."""
    return self._next_fit - self._time

  def scale_by(self, factor, states, gradients):
    """Multiplies the scale and forgets all pairs."""
    del states, gradients
    self.log_scale = self.log_scale + np.log(factor)
    self._time += 1.0
    self._forget()

  def learn(self, states, gradients, generator):
    """Learns as in `LearnedMatrix`; `generator` chooses the pairs to keep."""
    self._time += 1.0
    self._add(np.concatenate([states, gradients], axis=1), generator)
    if self._time < self._next_fit:
      return Learned(False)
    last = self._last_time
    following = min(self._GROWTH * self._time, last)
    self._next_fit = following if self._time < last else np.inf
    rows = self._in_order()
    try:
      params = len(rows) and self._fitted(*np.split(rows, 2, axis=1))
      is_good = len(rows) > 0 and params.is_finite
    except np.linalg.LinAlgError:
      is_good = False
    if not is_good:
      self.num_failed_fits += 1
      return Learned(False)
    self._set(*params)
    self._last_fit = self._time
    self._num_fits += 1
    # After the first fit, whitened coordinates have scale one.
    is_first = self._num_fits == 1
    return Learned(True, states.shape[1] ** -0.25 if is_first else 0.0)

  def num_steps_followed(self, num_updates):
    """Returns for how many steps the step size has adapted to this map."""
    del num_updates
    # The step that fits still used the previous map. Infinity gives its
    # acceptance the least rate.
    return self._time - self._last_fit or np.inf

  def _set(self, natural, factor):
    for name, value in zip(natural._fields, natural):
      setattr(self, name, value)
    self.factor = factor

  def _fitted(self, states, gradients):
    drivers, exponents = self._given
    if not len(drivers):
      none = np.full([self._num_drivers], -1)
      drivers, exponents = search_lib.find(
        states, gradients, none, self._is_bent
      )
    return conditional.fit(states, gradients, drivers, exponents, self._is_bent)

  def _forget(self):
    size = 2 * len(self.log_scale)
    self._num_seen = 0
    self._pairs = np.full([self._NUM_PAIRS, size], np.nan)
    self._place = np.zeros([self._NUM_PAIRS, 2], int)  # Chain, and step.

  def _add(self, rows, generator):
    """Offers a pair of every chain to the history.

    After T steps the history holds the pair of step t with a probability
    proportional to t. In a full history, a chain replaces pairs in its own
    range of places. With more chains than places, chains take turns.
    """
    count = self._NUM_PAIRS
    chains = np.arange(len(rows))
    if len(rows) > count:
      chains = np.sort((np.arange(count) + self._num_seen) % len(rows))
    num_rows = len(chains)
    first = np.arange(num_rows + 1) * count // num_rows
    spot, chance = generator.random([2, num_rows])
    slot = first[:-1] + (spot * np.diff(first)).astype(int)
    if self._num_seen + num_rows <= count:
      slot = self._num_seen + np.arange(num_rows)
    seen = self._num_seen + num_rows
    keep = (seen <= count) | (chance <= self._RECENCY * count / seen)
    keep &= np.all(np.isfinite(rows[chains]), axis=1)
    self._pairs[slot[keep]] = rows[chains[keep]]
    self._place[slot[keep], 0] = chains[keep]
    self._place[slot[keep], 1] = self._num_seen
    self._num_seen = seen

  def _in_order(self):
    """Returns the pairs, [n, 2 d], by chain and then by time."""
    order = np.lexsort((self._place[:, 1], self._place[:, 0]))
    rows = self._pairs[order]
    return rows[~np.isnan(rows[:, 0])]


def _moved(mean, spread, rows, weight):
  """Returns mean and covariance after rows [chains, d] of a total weight w.

  The rows have mean m + s and covariance S. Then the mean m and the covariance
  V become

    m + w s,   (1 - w) (V + w s s^T) + w S.
  """
  shift = np.mean(rows, axis=0) - mean
  rest = rows - np.mean(rows, axis=0)
  past = (1.0 - weight) * (spread + weight * np.outer(shift, shift))
  return mean + weight * shift, past + weight / len(rows) * (rest.T @ rest)
