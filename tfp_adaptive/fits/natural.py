"""A conditional Gaussian as functions of rows, in NumPy.

`transport.maps.conditional_gaussian` explains the formulas and has the same
params. The map from y to x = m + exp(l) w has

  w = L^-T (y + L^-1 h),   log |det dx/dy| = sum l - sum log diag L,

where drivers have the same values in w and in y.
"""

from typing import NamedTuple

import numpy as np

from tfp_adaptive.fits import factors
from tfp_adaptive.fits import pairs

_MOST_LOG_TERM = 30.0


class Natural(NamedTuple):
  """Params of a conditional Gaussian with T terms and k drivers.

  h(u) is the sum over terms of exp(b.u) (offset + slope u). P(u) is the sum of
  exp(b.u) times a matrix that slack and edge define, see `factors`.
  """

  mean: np.ndarray  # m, [d].
  log_scale: np.ndarray  # l, [d].
  drivers: np.ndarray  # Indices of the drivers, [k] ints; -1 means no driver.
  exponents: np.ndarray  # b, [T, k]; zero for the first term.
  offset: np.ndarray  # [T, d].
  # [T, d, k], or [T, d, k + k (k + 1) / 2] with products of two drivers, which
  # only the first term has.
  slope: np.ndarray
  # r_t of `factors`, [T, d], not negative. For drivers it is 1 in the first
  # term and 0 in the others.
  slack: np.ndarray
  # s_t w_t of `factors`, which couples coordinates t and t + 1 of a path,
  # [T, d]; [T, 0] without a path.
  edge: np.ndarray


def of_scale(size, drivers, is_bent=False, is_path=False):
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
    edge=zeros if is_path else zeros[:, :0],
  )


def forward(natural, rows):
  """Returns x(y), rows [n, d], and log |det dx/dy|, [n]."""
  there = _Given(natural, rows)
  return there.forward(rows)


def inverse(natural, states):
  """Returns y(x), rows [n, d]."""
  deviations = (states - natural.mean) * np.exp(-natural.log_scale)
  return _Given(natural, deviations).inverse(deviations)


def whitened(natural, states, scores):
  """Returns y and the gradient of its log density, [n, d] each."""
  deviations = (states - natural.mean) * np.exp(-natural.log_scale)
  there = _Given(natural, deviations)
  rows = there.inverse(deviations)
  return rows, there.pulled_back(rows, scores)


def pulled_back(natural, rows):
  """Returns x(y), log |det|, and a function from scores of x to scores of y."""
  there = _Given(natural, rows)
  return (*there.forward(rows), lambda scores: there.pulled_back(rows, scores))


def terms(exponents, distances):
  """Returns exp(b.u), [n, T]."""
  logs = distances @ exponents.T
  return np.exp(np.clip(logs, -_MOST_LOG_TERM, _MOST_LOG_TERM))


def inputs(distances, num_inputs):
  """Returns 1, u and, if means bend, products of u, [n, 1 + num_inputs]."""
  parts = [np.ones([*distances.shape[:-1], 1]), distances]
  count = distances.shape[-1]
  if num_inputs > count:
    for k in range(count):
      parts.append(distances[..., k : k + 1] * distances[..., k:])
  return np.concatenate(parts, axis=-1)


class _Given:
  """L and L^-1 h for rows [n, d]; both depend only on the drivers."""

  def __init__(self, natural, rows):
    self._natural = natural
    self._distances = pairs.pick(rows, natural.drivers, 0.0)
    self._terms = terms(natural.exponents, self._distances)
    slope = natural.slope
    self._inputs = inputs(self._distances, slope.shape[-1])
    # Offset and slopes of each term, [T, M, d], M = 1 + number of inputs.
    self._places = np.concatenate(
      [natural.offset[:, np.newaxis], np.swapaxes(slope, 1, 2)], axis=1
    )
    products = self._terms[:, :, np.newaxis] * self._inputs[:, np.newaxis]
    shape = len(rows), -1
    size = self._places.shape[-1]
    pull = products.reshape(shape) @ self._places.reshape(-1, size)
    self._lower = factors.of_terms(natural, self._terms)
    self._pull = self._lower.solve(pull)

  def forward(self, rows):
    natural = self._natural
    deviations = self._lower.solve_adjoint(rows + self._pull)
    logs = natural.log_scale - np.log(self._lower.diagonal)
    states = natural.mean + np.exp(natural.log_scale) * deviations
    return states, np.sum(logs, axis=-1)

  def inverse(self, deviations):
    return self._lower.multiply_adjoint(deviations) - self._pull

  def pulled_back(self, rows, scores):
    """Returns the gradient of log p(x(y)) + log |det| at y, [n, d].

    It is the gradient at fixed drivers plus the gradient with respect to the
    drivers, on which the terms exp(b.u) and the inputs of h depend.
    """
    natural, lower = self._natural, self._lower
    found = lower.solve(scores * np.exp(natural.log_scale))
    by_pull = lower.solve_adjoint(found)
    deviations = lower.solve_adjoint(rows + self._pull)
    by_term = lower.by_terms([(-deviations, found), (-by_pull, self._pull)])
    # Gradient with respect to the products of terms and inputs of h, [n, T, M].
    of_places = np.tensordot(by_pull, self._places, [[1], [2]])
    by_term += np.sum(of_places * self._inputs[:, np.newaxis], axis=-1)
    logs = self._distances @ natural.exponents.T
    by_term *= self._terms * (np.abs(logs) < _MOST_LOG_TERM)
    by_input = np.sum(self._terms[:, :, np.newaxis] * of_places, axis=1)
    by_driver = by_term @ natural.exponents + self._of_inputs(by_input)
    for place, driver in enumerate(natural.drivers):
      if driver >= 0:
        found[:, driver] += by_driver[:, place]
    return found

  def _of_inputs(self, by_input):
    """Returns d / du, [n, k], from the gradient with respect to the inputs."""
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
