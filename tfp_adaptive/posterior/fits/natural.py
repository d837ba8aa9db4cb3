"""A conditional Gaussian as functions of rows, in NumPy.

`transport.maps.conditional_gaussian` has the formulas; params are the same, of
the structure 'diagonal'. With r = sum_t exp(b_t.u) r_t and h(u) the offsets of
the drivers u, row by row,

  w = y r^-1/2 + h r^-1,   log |det| = sum l - 1/2 sum log r.
"""

from typing import NamedTuple

import numpy as np

from tfp_adaptive.posterior.fits import pairs

__all__ = [
  'Natural',
  'forward',
  'inputs',
  'inverse',
  'of_scale',
  'pulled_back',
  'terms',
  'whitened',
]

_MOST_LOG_TERM = 30.0


class Natural(NamedTuple):
  """Params in units x = m + exp(l) w, T terms, k drivers; see the maps' own.

  Attributes:
    mean: m, [d].
    log_scale: l, [d].
    drivers: D, [k] ints; -1: none in this place.
    exponents: b, [T, k].
    offset: [T, d].
    slope: [T, d, k], or with products of drivers [T, d, k + k (k + 1) / 2].
    slack: r_t, [T, d], not negative.
  """

  mean: np.ndarray
  log_scale: np.ndarray
  drivers: np.ndarray
  exponents: np.ndarray
  offset: np.ndarray
  slope: np.ndarray
  slack: np.ndarray


def of_scale(size, drivers, is_bent=False):
  """Returns the `Natural` of the identity, with a term for every driver."""
  count = len(drivers)
  num_inputs = count + is_bent * count * (count + 1) // 2
  zeros = np.zeros([1 + count, size])
  slack = zeros.copy()
  slack[0] = 1.0
  return Natural(
    mean=zeros[0],
    log_scale=zeros[0],
    drivers=np.asarray(drivers, np.int32),
    exponents=np.zeros([1 + count, count]),
    offset=zeros,
    slope=np.zeros([1 + count, size, num_inputs]),
    slack=slack,
  )


def forward(natural, rows):
  """Returns x of y, rows [n, d], and log |det| of its derivative, [n]."""
  there = _Given(natural, rows)
  return there.forward(rows)


def inverse(natural, states):
  """Returns y of x, rows [n, d]."""
  deviations = (states - natural.mean) * np.exp(-natural.log_scale)
  return _Given(natural, deviations).inverse(deviations)


def whitened(natural, states, scores):
  """Returns y and the gradient of its log density, [n, d] each."""
  deviations = (states - natural.mean) * np.exp(-natural.log_scale)
  there = _Given(natural, deviations)
  rows = there.inverse(deviations)
  return rows, there.pulled_back(rows, scores)


def pulled_back(natural, rows):
  """Returns x of y, log |det|, and a function of scores of x to those of y."""
  there = _Given(natural, rows)
  return (*there.forward(rows), lambda scores: there.pulled_back(rows, scores))


def terms(exponents, distances):
  """Returns exp(b.u), [n, T]."""
  logs = distances @ exponents.T
  return np.exp(np.clip(logs, -_MOST_LOG_TERM, _MOST_LOG_TERM))


def inputs(distances, num_inputs):
  """Returns 1 and what the slope is of, u and perhaps its products, [n, M].

  Args:
    distances: u, [n, k].
    num_inputs: M - 1.
  """
  parts = [np.ones([*distances.shape[:-1], 1]), distances]
  count = distances.shape[-1]
  if num_inputs > count:
    for k in range(count):
      parts.append(distances[..., k : k + 1] * distances[..., k:])
  return np.concatenate(parts, axis=-1)


class _Given:
  """What the drivers of rows [n, d] decide: r and h.

  Drivers have the same entries in w and in y.
  """

  def __init__(self, natural, rows):
    self._natural = natural
    self._distances = pairs.pick(rows, natural.drivers, 0.0)
    self._terms = terms(natural.exponents, self._distances)
    slope = natural.slope
    self._inputs = inputs(self._distances, slope.shape[-1])
    # Coefficients of 1 and the inputs, [T, M, d].
    self._places = np.concatenate(
      [natural.offset[:, np.newaxis], np.swapaxes(slope, 1, 2)], axis=1
    )
    products = self._terms[:, :, np.newaxis] * self._inputs[:, np.newaxis]
    shape = len(rows), -1
    size = self._places.shape[-1]
    self.pull = products.reshape(shape) @ self._places.reshape(-1, size)
    self.slack = self._terms @ natural.slack
    self._root = np.sqrt(self.slack)

  def forward(self, rows):
    natural = self._natural
    deviations = (rows + self.pull / self._root) / self._root
    log_det = np.sum(natural.log_scale - np.log(self._root), axis=-1)
    return natural.mean + np.exp(natural.log_scale) * deviations, log_det

  def inverse(self, deviations):
    return self._root * deviations - self.pull / self._root

  def pulled_back(self, rows, scores):
    """Returns the gradient by y of log pi(x(y)) + log |det|, [n, d]."""
    natural = self._natural
    by_deviation = scores * np.exp(natural.log_scale)
    by_pull = by_deviation / self.slack
    by_slack = -0.5 * by_deviation * rows / (self._root * self.slack)
    by_slack -= (by_pull * self.pull + 0.5) / self.slack
    # Gradient by the coefficients that h is a sum of, [n, T, M].
    of_places = np.tensordot(by_pull, self._places, [[1], [2]])
    by_term = by_slack @ natural.slack.T
    by_term += np.sum(of_places * self._inputs[:, np.newaxis], axis=-1)
    logs = self._distances @ natural.exponents.T
    by_term *= self._terms * (np.abs(logs) < _MOST_LOG_TERM)
    by_input = np.sum(self._terms[:, :, np.newaxis] * of_places, axis=1)
    by_driver = by_term @ natural.exponents + self._of_inputs(by_input)
    found = by_deviation / self._root
    for place, driver in enumerate(natural.drivers):
      if driver >= 0:
        found[:, driver] += by_driver[:, place]
    return found

  def _of_inputs(self, by_input):
    """Returns the gradient by u of what the inputs are of, [n, k]."""
    distances = self._distances
    count = distances.shape[-1]
    found = by_input[:, 1 : 1 + count].copy()
    if by_input.shape[-1] > 1 + count:
      place = 1 + count
      for first in range(count):
        for second in range(first, count):
          along = by_input[:, place]
          found[:, first] += along * distances[:, second]
          found[:, second] += along * distances[:, first]
          place += 1
    return found
