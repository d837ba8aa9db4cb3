"""Conditional Gaussians from pairs of a state and a score, by regression.

Works on standardized pairs, x at mean 0 and x and g of one spread. Row j of

  g_j = sum_t exp(b_t.u) (h_tj + H_tj u - r_tj x_j) + u^T Q_j u

is a least-squares problem of its own, linear once the exponents are given, and
without noise where the rest is Gaussian given the drivers. Pairs are weighted
by 1 / r_j(u), in rounds, and less where the row does not hold.

Where the drivers explain little of a row, as where it follows rows that are no
drivers, noise is most of h. The states tell of the place too: with
p_j = r_j x_j and h_j(u) all that does not multiply x_j,

  e_j = (g_j - h_j(u) + p_j) / sqrt(r_j),   y_j = (p_j - h_j(u)) / sqrt(r_j),

both of mean 0, without correlation, y of variance one and e of variance v, the
best h has the least mean of e^2 / v + y^2. That is a regression again, of
p + g / (1 + v): on scores alone where they are exact, v = 0.

`transport.maps.natural_fit` is the same for compiled kernels.
"""

from typing import NamedTuple

import numpy as np

from tfp_adaptive.posterior.fits import matrix
from tfp_adaptive.posterior.fits import natural as natural_lib
from tfp_adaptive.posterior.fits import pairs as pairs_lib

__all__ = ['Fitted', 'Params', 'fit', 'in_units', 'regress', 'start']

_NUM_ROUNDS = 3  # Regressions, each reweighted by the one before.
_RIDGE = 1e-6  # Added to the unit diagonal of normal equations.
# A pair in a narrow region has a leverage (r x)^2 / r of a million. Without a
# bound, rounding would hide all other pairs.
_LARGEST_LEVERAGE = 100.0
_FLOOR = 1e-6  # Smallest precision, in units of its typical size.


class Params(NamedTuple):
  """A conditional Gaussian: a `Natural` of y = C z, and C, [d, d]."""

  natural: natural_lib.Natural
  factor: np.ndarray

  def forward(self, rows):
    """Returns x of z [n, d], log |det|, and scores of x -> scores of z."""
    mapped, log_det, pull = natural_lib.pulled_back(
      self.natural, rows @ self.factor.T
    )
    log_det = log_det + np.sum(np.log(np.diag(self.factor)))
    return mapped, log_det, lambda scores: pull(scores) @ self.factor

  def inverse(self, states):
    """Returns z of x, rows [n, d]."""
    rows = natural_lib.inverse(self.natural, states)
    return self._solved(rows)

  def whitened(self, states, scores):
    """Returns z and the gradient of its log density, [n, d] each."""
    rows, scores = natural_lib.whitened(self.natural, states, scores)
    return self._solved(rows), scores @ self.factor

  def _solved(self, rows):
    # Not a triangular solve, which waits for threads that it does not need.
    return np.linalg.solve(self.factor, rows.T).T

  @property
  def is_finite(self):
    return all(np.all(np.isfinite(x)) for x in (*self.natural, self.factor))


class Fitted(NamedTuple):
  """A `Natural`, and of pairs, [n, d], r_j(u) and over its root r x and e."""

  natural: natural_lib.Natural
  precision: np.ndarray
  push: np.ndarray
  residual: np.ndarray


def fit(states, scores, drivers, exponents, is_bent=False):
  """Returns the `Params` of pairs.

  Args:
    states: [n, d].
    scores: Gradients of the log density there, [n, d].
    drivers: [k] ints; -1: none.
    exponents: Of the drivers' terms, each in its driver's units, [k].
    is_bent: Whether means follow products of drivers too.
  """
  pairs = pairs_lib.standardize(states, scores)
  exponents = in_units(pairs, drivers, exponents)
  fitted = start(pairs, drivers, exponents, is_bent)
  equal = np.full([len(states)], 1.0 / len(states))
  for _ in range(_NUM_ROUNDS):
    fitted = regress(pairs, equal, drivers, exponents, fitted, is_search=False)
  found = fitted.natural
  rows, scores = natural_lib.whitened(found, pairs.states, pairs.scores)
  is_driver = np.isin(np.arange(rows.shape[1]), drivers)
  weights = pairs_lib.without_odd(scores, is_driver)
  # Drivers have the scales of their marginals.
  own = pairs_lib.standardize(rows, scores, weights).scale
  own = np.where(is_driver, own, 1.0)
  of_drivers = pairs_lib.pick(own, drivers, 1.0)
  by = natural_lib.inputs(of_drivers, found.slope.shape[-1])[1:]
  found = found._replace(
    mean=pairs.mean,
    log_scale=np.log(pairs.scale * own),
    exponents=found.exponents * of_drivers,
    slope=found.slope * by,
  )
  return Params(found, matrix.fit(rows / own, scores * own, weights))


def in_units(pairs, drivers, exponents):
  """Returns exponents of terms in units of the pairs, [1 + k, k].

  The first has none; each of the others has that of its driver.
  """
  scaled = exponents * pairs_lib.pick(pairs.scale, drivers, 1.0)
  return np.concatenate([np.zeros([1, len(scaled)]), np.diag(scaled)])


def start(pairs, drivers, exponents, is_bent=False):
  """Returns the standard normal as `Fitted`: what a first round is weighted by.

  Its precision is the mean of all terms, its residuals are the scores alone.
  """
  first = natural_lib.of_scale(pairs.states.shape[-1], drivers, is_bent)
  distances = pairs_lib.pick(pairs.states, drivers, 0.0)
  share = np.mean(natural_lib.terms(exponents, distances), -1, keepdims=True)
  return Fitted(
    first._replace(exponents=exponents),
    precision=share * np.ones_like(pairs.scores),
    push=np.sqrt(share) * pairs.states,
    residual=pairs.scores,
  )


def regress(pairs, weights, drivers, exponents, before, is_search=True):
  """Returns `Fitted` after one round, weighted by the one before.

  Args:
    pairs: `pairs.Pairs`.
    weights: [n], summing to one.
    drivers: [k] ints; -1: none.
    exponents: [T, k] in units of the pairs; terms but the first without any
      are left out.
    before: `Fitted`.
    is_search: Whether drivers are looked for: what `before` and this leave
      unexplained is what others may explain then, and not noise.
  """
  problem = _Regression(pairs, weights, drivers, exponents, before)
  slack, places = problem.solve(is_search)
  precision, push = problem.precision(slack)
  root = 1.0 / np.sqrt(precision)
  offset, slope = problem.by_term(places)
  return Fitted(
    before.natural._replace(
      drivers=drivers,
      exponents=exponents,
      offset=offset,
      slope=slope,
      slack=slack,
    ),
    precision,
    push * root,
    (pairs.scores - problem.pull(places) + push) * root,
  )


class _Regression:
  """The regressions of all coordinates on the drivers.

  A row has for each term coefficients of 1 and u, in the first term of products
  of two as well where means bend, p of them in all; then for each term that of
  -x_j. The first p features are the same for all rows, so that all normal
  matrices are products of a few matrices. Drivers' rows are solved too, and
  dropped.
  """

  def __init__(self, pairs, weights, drivers, exponents, before):
    self._weights, self._pairs, self._before = weights, pairs, before
    size = pairs.states.shape[-1]
    self._keep = 1.0 - np.isin(np.arange(size), drivers)
    distances = pairs_lib.pick(pairs.states, drivers, 0.0)
    is_used = np.any(exponents != 0.0, axis=-1)
    is_used[0] = True
    self._terms = np.where(
      is_used, natural_lib.terms(exponents, distances), 0.0
    )
    inputs = natural_lib.inputs(distances, before.natural.slope.shape[-1])
    self._num_inputs, self._num_lines = inputs.shape[-1], 1 + len(drivers)
    rest = self._terms[:, 1:, np.newaxis]
    rest = rest * inputs[:, np.newaxis, : self._num_lines]
    self._placed = np.concatenate(
      [self._terms[:, :1] * inputs, rest.reshape(len(rest), -1)], axis=1
    )

  def solve(self, is_search):
    """Returns r [T, d], and the coefficients of places, [p, d].

    Precisions that come out negative are left out, and the rest is solved
    again; at last scores count for what they tell.
    """
    before, scores = self._before, self._pairs.scores
    square = before.residual**2
    if not is_search:
      square = square / _typical_square(before.residual, self._weights)
    share = self._weights[:, np.newaxis] / (1.0 + 0.25 * square)
    share = share / (1.0 + before.push**2 / _LARGEST_LEVERAGE)
    system = self._system(share / before.precision)
    count = self._placed.shape[-1]
    placed, both, own = (
      system[:, :count, :count],
      system[:, :count, count:],
      system[:, count:, count:],
    )
    # Places as functions of the precisions, whose own equations remain.
    solved = np.linalg.solve(placed, both)
    coupling = np.swapaxes(both[..., :-1], 1, 2)
    diagonal = _positive(own - coupling @ solved)
    slack = self._split(diagonal.T)
    keep = self._keep[:, np.newaxis]
    of_scores = keep * solved[..., -1]
    of_push = keep * (solved[..., :-1] @ slack.T[..., np.newaxis])[..., 0]
    places = (of_scores - of_push).T
    if is_search:
      return slack, places
    precision, push = self.precision(slack)
    residual = scores - self.pull(places) + push
    variance = np.sum(share * residual**2 / precision, axis=0)
    variance /= np.sum(share, axis=0)
    return slack, of_scores.T / (1.0 + variance) - of_push.T

  def _system(self, share):
    """Returns normal equations and their right sides, [d, F, F + 1]."""
    terms, placed, states = self._terms, self._placed, self._pairs.states
    count, num_terms = placed.shape[-1], terms.shape[-1]
    weighted = -share * states
    found = np.zeros(
      [states.shape[-1], count + num_terms, count + num_terms + 1]
    )
    first, second = np.triu_indices(count)
    sums = share.T @ (placed[:, first] * placed[:, second])
    found[:, first, second] = found[:, second, first] = sums
    of_both = _products(placed, terms)
    of_both = (weighted.T @ of_both).reshape(-1, count, num_terms)
    found[:, :count, count:-1] = of_both
    found[:, count:, :count] = np.swapaxes(of_both, 1, 2)
    of_own = (share * states**2).T @ _products(terms, terms)
    found[:, count:, count:-1] = of_own.reshape(-1, num_terms, num_terms)
    scores = self._pairs.scores
    found[:, :count, -1] = (share * scores).T @ placed
    found[:, count:, -1] = (weighted * scores).T @ terms
    pivot = np.arange(count + num_terms)
    diagonal = found[:, pivot, pivot]
    # What no pair has is zero.
    more = np.where(diagonal > 0.0, _RIDGE * diagonal, 1.0)
    found[:, pivot, pivot] = diagonal + more
    return found

  def precision(self, slack):
    """Returns r_j(u) and r_j(u) x_j without the drivers, [n, d]."""
    diagonal = self._terms @ slack
    return diagonal, diagonal * self._keep * self._pairs.states

  def pull(self, places):
    """Returns h(u) + H(u) u, [n, d]."""
    return self._placed @ places

  def by_term(self, places):
    """Returns h [T, d] and H [T, d, k] of coefficients [p, d]."""
    first = places[np.newaxis, : self._num_inputs]
    rest = places[self._num_inputs :].reshape(
      -1, self._num_lines, places.shape[-1]
    )
    bent = self._num_inputs - self._num_lines
    rest = np.pad(rest, [[0, 0], [0, bent], [0, 0]])
    both = np.concatenate([first, rest])
    return both[:, 0], np.swapaxes(both[:, 1:], 1, 2)

  def _split(self, own):
    """Returns r, [T, d]; drivers have the precision one."""
    slack = np.maximum(own * self._keep, 0.0)
    slack[0] += np.where(self._keep > 0.0, _FLOOR, 1.0)
    return slack


def _positive(system):
  """Returns solutions that are not negative, [d, T], of [d, T, T + 1]."""
  num_terms = system.shape[1]
  free = np.ones(system.shape[:2])
  identity = np.eye(num_terms)
  for _ in range(num_terms):
    masked = system[..., :-1] * free[:, :, np.newaxis] * free[:, np.newaxis]
    masked = masked + identity * (1.0 - free)[:, np.newaxis]
    right = (system[..., -1] * free)[..., np.newaxis]
    solved = np.linalg.solve(masked, right)[..., 0]
    left = free * (solved > 0.0)
    if np.all(left == free):
      break
    free = left
  return solved


def _products(left, right):
  """Returns products of all columns of two [n, ...], [n, product]."""
  return (left[:, :, np.newaxis] * right[:, np.newaxis]).reshape(len(left), -1)


def _typical_square(residual, weights):
  """Returns the square of rows' mean sizes, at least one, [d].

  Pairs are odd relative to it: of a row of which drivers explain little, only
  the few next to zero would count otherwise.
  """
  return np.maximum((weights @ np.abs(residual)) ** 2, 1.0)
