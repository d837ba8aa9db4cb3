"""Fits conditional Gaussians to pairs of a state and a score, by regression.

Pairs are standardized: x has mean 0, and x and g have equal variances. If the
other coordinates are Gaussian given the drivers, the score of each of them is
exactly

  g_j = sum_t exp(b_t.u) (h_tj + H_tj u - (P_t x)_j) + u^T Q_j u

with coefficients h, H, P and Q. For given exponents this is a linear
least-squares problem for each j. In each of several rounds, pairs are weighted
by 1 / P_jj(u). Pairs for which the equation does not hold get less weight.

If the drivers explain little of coordinate j, h is mostly noise, for example if
it follows coordinates which are not drivers. States then help to find h. Let

  e_j = (g - h(u) - H(u) u + P x)_j / sqrt(P_jj),
  a_j = (P x - h(u) - H(u) u)_j / sqrt(P_jj).

e and a have mean 0 and no correlation, a has variance 1, and e has variance v.
The best h and H minimize the mean of e^2 / v + a^2, which is the regression of
P x + g / (1 + v). For exact scores v = 0, and this is the regression above.
"""

from typing import NamedTuple

import numpy as np

from tfp_adaptive.fits import factors
from tfp_adaptive.fits import matrix
from tfp_adaptive.fits import natural as natural_lib
from tfp_adaptive.fits import pairs as pairs_lib

_NUM_ROUNDS = 3  # Each regression gives the weights of the next.
_RIDGE = 1e-6  # Relative increase of the diagonal of normal equations.
# A pair in a narrow region may have a leverage (P x)^2 / P of a million.
# Without this bound, its rounding error would outweigh all other pairs.
_LARGEST_LEVERAGE = 100.0
_FLOOR = 1e-6  # Smallest precision, in units of its typical size.


class Params(NamedTuple):
  """A map of z: `natural` maps y = C z to the state.

  C is a lower triangular matrix [d, d], or a diagonal matrix, stored as [d].
  """

  natural: natural_lib.Natural
  factor: np.ndarray

  def forward(self, rows):
    """Returns x(z), log |det|, and a function of scores of x to scores of z."""
    is_diagonal, factor = self.factor.ndim == 1, self.factor
    mapped, log_det, pull = natural_lib.pulled_back(
      self.natural, rows * factor if is_diagonal else rows @ factor.T
    )
    diagonal = factor if is_diagonal else np.diag(factor)
    log_det = log_det + np.sum(np.log(diagonal))
    return mapped, log_det, lambda scores: self._multiplied(pull(scores))

  def inverse(self, states):
    """Returns z(x), rows [n, d]."""
    rows = natural_lib.inverse(self.natural, states)
    return self._solved(rows)

  def whitened(self, states, scores):
    """Returns z and the gradient of its log density, [n, d] each."""
    rows, scores = natural_lib.whitened(self.natural, states, scores)
    return self._solved(rows), self._multiplied(scores)

  def _multiplied(self, scores):
    is_diagonal = self.factor.ndim == 1
    return scores * self.factor if is_diagonal else scores @ self.factor

  def _solved(self, rows):
    if self.factor.ndim == 1:
      return rows / self.factor
    # A triangular solve would be slower, because it waits for threads.
    return np.linalg.solve(self.factor, rows.T).T

  @property
  def is_finite(self):
    return all(np.all(np.isfinite(x)) for x in (*self.natural, self.factor))


class Fitted(NamedTuple):
  """A fitted `Natural`, with values for each pair and coordinate j, [n, d]."""

  natural: natural_lib.Natural
  precision: np.ndarray  # P_jj(u).
  push: np.ndarray  # (P x)_j / sqrt(P_jj), where x has zeros for the drivers.
  residual: np.ndarray  # e_j, see the head of this file.


def fit(
  states,
  scores,
  drivers,
  exponents,
  is_bent=False,
  is_path=False,
  fit_factor=matrix.fit,
):
  """Returns the `Params` that fit states and scores, [n, d] each.

  `exponents` [k] are those of the terms of `drivers` [k], per unit of the
  driver; the driver -1 means none. If the map is bent, means depend on products
  of drivers too. In a path, adjacent coordinates are coupled. `fit_factor` maps
  states, scores and weights to C.
  """
  pairs = pairs_lib.standardize(states, scores, is_path=is_path)
  exponents = in_units(pairs, drivers, exponents)
  fitted = start(pairs, drivers, exponents, is_bent, is_path)
  equal = np.full([len(states)], 1.0 / len(states))
  for _ in range(_NUM_ROUNDS):
    fitted = regress(pairs, equal, drivers, exponents, fitted, is_search=False)
  found = fitted.natural
  rows, scores = natural_lib.whitened(found, pairs.states, pairs.scores)
  is_driver = np.isin(np.arange(rows.shape[1]), drivers)
  weights = pairs_lib.without_odd(scores, is_driver)
  # Drivers keep the scales of their marginal distributions.
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
  return Params(found, fit_factor(rows / own, scores * own, weights))


def in_units(pairs, drivers, exponents):
  """Returns exponents of terms in units of the pairs, [1 + k, k].

  The first term has no exponent. Each other term has one driver's exponent.
  """
  scaled = exponents * pairs_lib.pick(pairs.scale, drivers, 1.0)
  return np.concatenate([np.zeros([1, len(scaled)]), np.diag(scaled)])


def start(pairs, drivers, exponents, is_bent=False, is_path=False):
  """Returns a first `Fitted`, which gives the weights of the first round.

  Unlike in later rounds, the precision is the mean of all terms, the push uses
  the drivers too, and the residuals are the scores.
  """
  size = pairs.states.shape[-1]
  first = natural_lib.of_scale(size, drivers, is_bent, is_path)
  distances = pairs_lib.pick(pairs.states, drivers, 0.0)
  share = np.mean(natural_lib.terms(exponents, distances), -1, keepdims=True)
  return Fitted(
    first._replace(exponents=exponents),
    precision=share * np.ones_like(pairs.scores),
    push=np.sqrt(share) * pairs.states,
    residual=pairs.scores,
  )


def regress(pairs, weights, drivers, exponents, before, is_search=True):
  """Returns the `Fitted` of one round, weighted by the round `before`.

  `weights` [n] sum to one. `exponents` [T, k] are in units of the pairs; terms
  after the first that have no exponent are left out. In a search, residuals are
  not treated as noise, because other drivers may explain them.
  """
  problem = _Regression(pairs, weights, drivers, exponents, before)
  slack, edge, places = problem.solve(is_search)
  precision, push = problem.precision(slack, edge)
  root = 1.0 / np.sqrt(precision)
  offset, slope = problem.by_term(places)
  return Fitted(
    before.natural._replace(
      drivers=drivers,
      exponents=exponents,
      offset=offset,
      slope=slope,
      slack=slack,
      edge=edge,
    ),
    precision,
    push * root,
    (pairs.scores - problem.pull(places) + push) * root,
  )


class _Regression:
  """The regressions of all scores on drivers and on own features.

  g_j is regressed on two groups of features:

    places  for each term 1 and u; in the first term also products of two
            drivers if means bend; p features, the same for all j
    own     for each term -x_j and, in a path, x_{j-1} and x_{j+1}

  Because all j share the features `places`, all normal matrices are products of
  a few matrices. The regressions of drivers are solved too, and dropped.
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
    self._rest = self._keep * pairs.states
    self._own, self._is_path = [-pairs.states], before.natural.edge.size > 0
    if self._is_path:
      self._own += [factors.before(self._rest), factors.after(self._rest)]
    rest = self._terms[:, 1:, np.newaxis]
    rest = rest * inputs[:, np.newaxis, : self._num_lines]
    self._placed = np.concatenate(
      [self._terms[:, :1] * inputs, rest.reshape(len(rest), -1)], axis=1
    )

  def solve(self, is_search):
    """Returns slack r [T, d], edges s w [T, d], and coefficients [p, d].

    The coefficients are those of the features `places`; `factors` defines slack
    and edges. Negative precisions are set to 0, and the rest is solved again.
    The edges of a path raise the diagonal. Then h and H come from the
    regression of P x + g or, outside of a search, of P x + g / (1 + v).
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
    # The coefficients of `places` are eliminated, so that only equations for
    # the own coefficients remain.
    solved = np.linalg.solve(placed, both)
    coupling = np.swapaxes(both[..., :-1], 1, 2)
    slack, edge = self._split(
      _positive(own - coupling @ solved, self._terms.shape[-1])
    )
    keep = self._keep[:, np.newaxis]
    of_scores = keep * solved[..., -1]
    entries = np.concatenate(_entries(slack, edge)).T[..., np.newaxis]
    of_push = keep * (solved[..., :-1] @ entries)[..., 0]
    places = (of_scores - of_push).T
    if is_search:
      return slack, edge, places
    precision, push = self.precision(slack, edge)
    residual = scores - self.pull(places) + push
    variance = np.sum(share * residual**2 / precision, axis=0)
    variance /= np.sum(share, axis=0)
    return slack, edge, of_scores.T / (1.0 + variance) - of_push.T

  def _system(self, share):
    """Returns normal equations of F features and right sides, [d, F, F + 1]."""
    terms, placed, scores = self._terms, self._placed, self._pairs.scores
    count, num_terms = placed.shape[-1], terms.shape[-1]
    size = count + len(self._own) * num_terms
    found = np.zeros([scores.shape[-1], size, size + 1])
    first, second = np.triu_indices(count)
    sums = share.T @ (placed[:, first] * placed[:, second])
    found[:, first, second] = found[:, second, first] = sums
    found[:, :count, -1] = (share * scores).T @ placed
    of_both, of_own = _products(placed, terms), _products(terms, terms)
    # Own features of the same kind, one for each term, are adjacent.
    places = [
      slice(begin, begin + num_terms) for begin in range(count, size, num_terms)
    ]
    for kind, (here, own) in enumerate(zip(places, self._own)):
      weighted = (share * own).T
      both = (weighted @ of_both).reshape(-1, count, num_terms)
      found[:, :count, here] = both
      found[:, here, :count] = np.swapaxes(both, 1, 2)
      found[:, here, -1] = (weighted * scores.T) @ terms
      for there, other in zip(places[kind:], self._own[kind:]):
        both = ((weighted * other.T) @ of_own).reshape(-1, num_terms, num_terms)
        found[:, here, there] = found[:, there, here] = both
    pivot = np.arange(size)
    diagonal = found[:, pivot, pivot]
    # A feature that is zero for all pairs gets the coefficient 0.
    more = np.where(diagonal > 0.0, _RIDGE * diagonal, 1.0)
    found[:, pivot, pivot] = diagonal + more
    return found

  def precision(self, slack, edge):
    """Returns P_jj(u) and (P(u) x)_j, where x is zero for drivers, [n, d]."""
    diagonal = self._terms @ _entries(slack, edge)[0]
    push = diagonal * self._rest
    if self._is_path:
      along = self._terms @ edge
      push -= along * factors.after(self._rest)
      push -= factors.before(along * self._rest)
    return diagonal, push

  def pull(self, places):
    """Returns h(u) + H(u) u, [n, d]."""
    return self._placed @ places

  def by_term(self, places):
    """Returns h [T, d] and H [T, d, k] from coefficients [p, d]."""
    first = places[np.newaxis, : self._num_inputs]
    rest = places[self._num_inputs :].reshape(
      -1, self._num_lines, places.shape[-1]
    )
    bent = self._num_inputs - self._num_lines
    rest = np.pad(rest, [[0, 0], [0, bent], [0, 0]])
    both = np.concatenate([first, rest])
    return both[:, 0], np.swapaxes(both[:, 1:], 1, 2)

  def _split(self, own):
    """Returns r and s w, [T, d], of a precision with a dominant diagonal.

    `own` has the coefficients of the own features of `_Regression`, [kinds, T,
    d]: one kind, or three in a path. Both coordinates of an edge estimate the
    edge, and the mean of both estimates is used. Drivers have the precision 1.
    """
    own = own * self._keep
    slack = np.maximum(own[0], 0.0)
    edge = slack[:, :0]
    if self._is_path:
      is_coupled = (slack > 0.0) & (factors.after(slack) > 0.0)
      edge = 0.5 * is_coupled * (own[2] + factors.after(own[1]))
      size = np.abs(edge)
      slack = np.maximum(slack - size - factors.before(size), 0.0)
    slack[0] += np.where(self._keep > 0.0, _FLOOR, 1.0)
    return slack, edge


def _positive(system, num_terms):
  """Returns solutions with precisions that are not negative, [kinds, T, d].

  The system is [d, kinds T, kinds T + 1], equations and right sides. The first
  T unknowns are the precisions. A term with a negative precision is removed
  with all its own features, and the rest is solved again.
  """
  size = system.shape[1]
  free = np.ones([len(system), num_terms])
  identity = np.eye(size)
  for _ in range(num_terms + 1):
    mask = np.tile(free, size // num_terms)
    masked = system[..., :-1] * mask[:, :, np.newaxis] * mask[:, np.newaxis]
    masked = masked + identity * (1.0 - mask)[:, np.newaxis]
    right = (system[..., -1] * mask)[..., np.newaxis]
    solved = np.linalg.solve(masked, right)[..., 0]
    left = free * (solved[:, :num_terms] > 0.0)
    if np.all(left == free):
      break
    free = left
  return solved.T.reshape(-1, num_terms, len(system))


def _entries(slack, edge):
  """Returns the own coefficients, [T, d] each: P_jj and the two edges of j."""
  if not edge.size:
    return [slack]
  size = np.abs(edge)
  return [slack + size + factors.before(size), factors.before(edge), edge]


def _products(left, right):
  """Returns products of all columns of two arrays, [n, product]."""
  return (left[:, :, np.newaxis] * right[:, np.newaxis]).reshape(len(left), -1)


def _typical_square(residual, weights):
  """Returns the squared mean size of a coordinate's residuals, at least 1, [d].

  A pair has less weight if its residual is large relative to this size. With a
  fixed size, only residuals near 0 would count if drivers explain little.
  """
  return np.maximum((weights @ np.abs(residual)) ** 2, 1.0)
