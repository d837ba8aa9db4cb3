"""Conditional Gaussians from pairs of a state and a score, by regression.

Works on standardized pairs, x at mean 0 and x and g of one spread. Row j of

  g_j = sum_t exp(b_t.u) (h_tj + H_tj u - (P_t x)_j) + u^T Q_j u

is a least-squares problem of its own, linear once the exponents are given, and
without noise where the rest is Gaussian given the drivers. Pairs are weighted
by 1 / P_jj(u), in rounds, and less where the row does not hold.

Where the drivers explain little of a row, as where it follows rows that are no
drivers, noise is most of h. The states tell of the place too: with

  r_j = (g - h(u) - H(u) u + P x)_j / sqrt(P_jj),
  y_j = (P x - h(u) - H(u) u)_j / sqrt(P_jj),

both of mean 0, without correlation, y of variance one and r of variance v, the
best h and H have the least mean of r^2 / v + y^2. That is a regression again,
of P x + g / (1 + v): on scores alone where they are exact, v = 0.
"""

import collections

import numpy as np
import tensorflow as tf

from tfp_adaptive.transport.maps import natural
from tfp_adaptive.transport.maps import pairs as pairs_lib

__all__ = ['Fitted', 'fit', 'in_units', 'regress', 'start']

_NUM_ROUNDS = 3  # Of reweighting.
_RIDGE = 1e-6  # Of normal equations with a unit diagonal.
# Of one pair, (P x)^2 / P: in a neck it is a million, and rounding would leave
# nothing of what the others tell.
_LARGEST_LEVERAGE = 100.0
_FLOOR = 1e-6  # Of a precision, in units of its typical size.


class Fitted(
  collections.namedtuple('Fitted', ['natural', 'precision', 'push', 'residual'])
):
  """A `Natural`, and of pairs, [n, d], P_jj(u) and over its root P x and r.

  The residuals are r = g - h + P x.
  """

  __slots__ = ()


def fit(states, scores, weights, drivers, exponents, is_path, is_bent=False):
  """Returns the `Natural` of pairs, y and its scores, [n, d], and weights, [n].

  Args:
    states: [n, d].
    scores: Gradients of the log density there, [n, d].
    weights: [n], summing to one.
    drivers: [k] int32; -1: none.
    exponents: Of the drivers' terms, each in its driver's units, [k].
    is_path: Whether neighbours are coupled.
    is_bent: Whether means follow products of drivers too.
  """
  pairs = pairs_lib.standardize(states, scores, weights, is_path)
  matrix = in_units(pairs, drivers, exponents)
  found = tf.while_loop(
    lambda count, _: count < _NUM_ROUNDS,
    lambda count, fitted: (
      count + 1,
      regress(
        pairs, weights, drivers, matrix, fitted, is_path, is_search=False
      ),
    ),
    (tf.constant(0), start(pairs, drivers, matrix, is_path, is_bent)),
    maximum_iterations=_NUM_ROUNDS,
  )[1].natural
  rows, scores = natural.whitened(found, pairs.states, pairs.scores)
  is_driver = tf.reduce_any(
    tf.range(rows.shape[1]) == drivers[:, tf.newaxis], axis=0
  )
  weights = pairs_lib.without_odd(scores, weights, is_driver)
  # Drivers have the scales of their marginals.
  own = pairs_lib.standardize(rows, scores, weights).scale
  own = tf.where(is_driver, own, tf.ones_like(own))
  of_drivers = pairs_lib.pick(own, drivers, 1.0)
  found = found._replace(
    mean=pairs.mean,
    log_scale=tf.math.log(pairs.scale * own),
    exponents=found.exponents * of_drivers,
    slope=found.slope * natural.inputs(of_drivers, found.slope)[1:],
  )
  return found, rows / own, scores * own, weights


def in_units(pairs, drivers, exponents):
  """Returns exponents of terms in units of the pairs, [1 + k, k].

  The first has none; each of the others has that of its driver.
  """
  matrix = tf.linalg.diag(exponents * pairs_lib.pick(pairs.scale, drivers, 1.0))
  return tf.concat([tf.zeros_like(matrix[:1]), matrix], axis=0)


def start(pairs, drivers, exponents, is_path, is_bent=False):
  """Returns the standard normal as `Fitted`: what a first round is weighted by.

  Its precision is the mean of all terms, its residuals are the scores alone.
  """
  size = pairs.states.shape[-1]
  first = natural.of_scale(
    size,
    [-1] * drivers.shape[0],
    tf.ones([], pairs.states.dtype),
    is_path,
    is_bent,
  )
  terms = natural.terms(exponents, pairs_lib.pick(pairs.states, drivers, 0.0))
  share = tf.reduce_mean(terms, axis=-1, keepdims=True)
  return Fitted(
    first._replace(drivers=drivers, exponents=exponents),
    precision=share * tf.ones_like(pairs.scores),
    push=tf.sqrt(share) * pairs.states,
    residual=pairs.scores,
  )


def regress(
  pairs, weights, drivers, exponents, before, is_path, is_search=True
):
  """Returns `Fitted` after one round, weighted by the one before.

  Args:
    pairs: `pairs.Pairs`.
    weights: [n], summing to one.
    drivers: [k] int32; -1: none.
    exponents: [T, k] in units of the pairs; terms but the first without any
      are left out.
    before: `Fitted`.
    is_path: Whether neighbours are coupled.
    is_search: Whether drivers are looked for: what `before` and this leave
      unexplained is what others may explain then, and not noise.
  """
  problem = _Regression(pairs, weights, drivers, exponents, before, is_path)
  slack, edge, places = problem.solve(is_search)
  precision, push = problem.precision(slack, edge)
  offset, slope = problem.by_term(places)
  root = tf.math.rsqrt(precision)
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
  """The regressions of all coordinates on drivers and neighbours.

  A row has for each term coefficients of 1 and u, in the first term of products
  of two as well where means bend, p of them in all; then for each term those of
  -x_j and, in a path, of x_{j-1} and x_{j+1}. The first p features are the same
  for all rows, so that all normal matrices are products of a few matrices.
  Drivers' rows are solved too, and dropped.
  """

  def __init__(self, pairs, weights, drivers, exponents, before, is_path):
    self._weights, self._scores = weights, pairs.scores
    self._before = before
    size = pairs.states.shape[-1]
    self._num_edges = size if is_path else 0
    is_driver = tf.reduce_any(tf.range(size)[:, tf.newaxis] == drivers, axis=-1)
    self._keep = tf.cast(~is_driver, weights.dtype)
    distances = pairs_lib.pick(pairs.states, drivers, 0.0)
    is_used = tf.reduce_any(exponents != 0.0, axis=-1)
    is_used |= tf.range(exponents.shape[0]) == 0
    self._terms = tf.where(is_used, natural.terms(exponents, distances), 0.0)
    inputs = natural.inputs(distances, before.natural.slope)
    self._num_inputs, self._num_lines = inputs.shape[-1], 1 + drivers.shape[0]
    rest = (
      self._terms[:, 1:, tf.newaxis] * inputs[:, tf.newaxis, : self._num_lines]
    )
    self._placed = tf.concat(
      [self._terms[:, :1] * inputs, tf.reshape(rest, [rest.shape[0], -1])], 1
    )
    self._rest = self._keep * pairs.states
    own = [-pairs.states]
    if is_path:
      own += [_before(self._rest), _after(self._rest)]
    self._own = tf.stack(own, axis=1)

  def solve(self, is_search):
    """Returns r [T, d], s w [T, d], and the coefficients of places, [p, d].

    Precisions that come out negative are left out, and the rest is solved
    again; what a path's edges ask of the diagonal is given to it, and places
    are those of P x + g; at last of scores that count for what they tell.
    """
    square = self._before.residual**2
    if not is_search:
      square /= _typical_square(self._before.residual, self._weights)
    share = self._weights[:, tf.newaxis] / (1.0 + 0.25 * square)
    share /= 1.0 + self._before.push**2 / _LARGEST_LEVERAGE
    count = self._placed.shape[-1]
    solved = _eliminated(self._system(share / self._before.precision), count)
    slack, edge = self._split(
      _positive(solved[count:, count:], self._own.shape[1])
    )
    diagonal, along = _entries(slack, edge)
    own = tf.concat([diagonal, *along], axis=0)
    of_scores = self._keep * solved[:count, -1]
    of_push = self._keep * tf.reduce_sum(solved[:count, count:-1] * own, axis=1)
    places = of_scores - of_push
    if is_search:
      return slack, edge, places
    precision, push = self.precision(slack, edge)
    residual = self._scores - self.pull(places) + push
    variance = tf.reduce_sum(share * residual**2 / precision, axis=0)
    variance /= tf.reduce_sum(share, axis=0)
    return slack, edge, of_scores / (1.0 + variance) - of_push

  def _system(self, share):
    """Returns normal equations and their right sides, [F, F + 1, d]."""
    terms, placed, own = self._terms, self._placed, self._own
    weighted = share[:, tf.newaxis] * own
    of_placed = _gram(placed, share)
    of_both = _sums(_products(placed, terms), weighted)
    of_own = _sums(
      _products(terms, terms), weighted[:, :, tf.newaxis] * own[:, tf.newaxis]
    )
    scored = share * self._scores
    right = _sums(placed, scored)
    of_right = _sums(terms, weighted * self._scores[:, tf.newaxis])
    # Own features of one kind are side by side.
    count, size = placed.shape[-1], share.shape[-1]
    num_own = own.shape[1] * terms.shape[-1]
    of_both = tf.reshape(
      tf.transpose(of_both, [0, 2, 1, 3]), [count, num_own, size]
    )
    of_own = tf.reshape(
      tf.transpose(of_own, [2, 0, 3, 1, 4]), [num_own, num_own, size]
    )
    of_right = tf.reshape(tf.transpose(of_right, [1, 0, 2]), [num_own, 1, size])
    upper = tf.concat([of_placed, of_both, right[:, tf.newaxis]], axis=1)
    lower = tf.concat(
      [tf.transpose(of_both, [1, 0, 2]), of_own, of_right], axis=1
    )
    system = tf.concat([upper, lower], axis=0)
    is_pivot = tf.eye(count + num_own, 1 + count + num_own, dtype=share.dtype)
    is_pivot = is_pivot[..., tf.newaxis]
    # What no pair has is zero.
    return system + is_pivot * tf.where(system > 0.0, _RIDGE * system, 1.0)

  def precision(self, slack, edge):
    """Returns P_jj(u) and (P(u) x)_j without the drivers, [n, d]."""
    entries, along = _entries(slack, edge)
    diagonal = tf.matmul(self._terms, entries)
    push = diagonal * self._rest
    if along:
      along = tf.matmul(self._terms, edge)
      push -= along * _after(self._rest) + _before(along * self._rest)
    return diagonal, push

  def pull(self, places):
    """Returns h(u) + H(u) u, [n, d]."""
    return tf.matmul(self._placed, places)

  def by_term(self, places):
    """Returns h [T, d] and H [T, d, k] of coefficients [p, d]."""
    first = places[tf.newaxis, : self._num_inputs]
    rest = tf.reshape(
      places[self._num_inputs :], [-1, self._num_lines, places.shape[-1]]
    )
    bent = self._num_inputs - self._num_lines
    rest = tf.pad(rest, [[0, 0], [0, bent], [0, 0]])
    both = tf.concat([first, rest], axis=0)
    return both[:, 0], tf.transpose(both[:, 1:], [0, 2, 1])

  def _split(self, own):
    """Returns r and s w, [T, d], of a precision with a dominant diagonal.

    Drivers have the precision one.
    """
    own *= self._keep
    first = tf.one_hot(0, own.shape[1], dtype=own.dtype)[:, tf.newaxis]
    floor = first * tf.where(
      self._keep > 0.0, tf.constant(_FLOOR, own.dtype), 1.0
    )
    diagonal = tf.maximum(own[0], 0.0)
    if not self._num_edges:
      return diagonal + floor, diagonal[:, :0]
    is_coupled = (diagonal > 0.0) & (_after(diagonal) > 0.0)
    edge = 0.5 * (own[2] + _after(own[1]))
    edge = tf.where(is_coupled, edge, 0.0)
    size = tf.abs(edge)
    return tf.maximum(diagonal - size - _before(size), 0.0) + floor, edge


def _positive(system, num_own):
  """Returns the solution with precisions not negative, [A, T, d].

  Args:
    system: [A T, A T + 1, d].
    num_own: A; precisions are the first.
  """
  num_terms = system.shape[0] // num_own
  is_pivot = tf.eye(*system.shape[:2], dtype=system.dtype)[..., tf.newaxis]

  def turn(count, _, free, solved):
    mask = tf.tile(free, [num_own, 1])
    right = tf.concat([mask, tf.ones_like(mask[:1])], axis=0)
    masked = system * mask[:, tf.newaxis] * right
    masked += is_pivot * (1.0 - mask[:, tf.newaxis])
    solved = _eliminated(masked, system.shape[0])[:, -1]
    left = free * tf.cast(solved[:num_terms] > 0.0, free.dtype)
    return count + 1, tf.reduce_any(left != free), left, solved

  free = tf.ones_like(system[:num_terms, 0])
  solved = tf.while_loop(
    lambda count, goes_on, *_: goes_on & (count < num_terms),
    turn,
    (tf.constant(0), tf.constant(True), free, system[:, -1]),
    maximum_iterations=num_terms,
  )[-1]
  return tf.reshape(solved, [num_own, num_terms, -1])


def _eliminated(system, count):
  """Returns the system [F, F + 1, d] with its first unknowns eliminated.

  Their rows tell them of the others. Pivots are in order: normal equations
  need no other. XLA's own Cholesky factor takes longer, and long to compile.
  """

  def turn(pivot, system):
    row = system[pivot] / system[pivot, pivot]
    column = system[:, pivot]
    column -= tf.one_hot(pivot, system.shape[0], dtype=row.dtype)[:, tf.newaxis]
    return pivot + 1, system - column[:, tf.newaxis] * row

  return tf.while_loop(
    lambda pivot, _: pivot < count,
    turn,
    (tf.constant(0), system),
    maximum_iterations=count,
  )[1]


def _products(left, right):
  return left[:, :, tf.newaxis] * right[:, tf.newaxis]


def _gram(rows, share):
  """Returns sums over pairs of all products of two columns, [p, p, d]."""
  count = rows.shape[-1]
  first, second = np.triu_indices(count)
  place = np.zeros([count, count], np.int32)
  place[first, second] = place[second, first] = np.arange(len(first))
  products = tf.gather(rows, first, axis=-1) * tf.gather(rows, second, axis=-1)
  return tf.gather(_sums(products, share), place)


def _sums(left, right):
  """Returns sums over pairs of products of all their entries."""
  return tf.tensordot(left, right, [[0], [0]])


def _entries(slack, edge):
  """Returns the diagonal of the precision, [T, d], and what is beside it."""
  if not edge.shape[-1]:
    return slack, []
  size = tf.abs(edge)
  return slack + size + _before(size), [_before(edge), edge]


def _before(rows):
  """Returns the coordinate before, zero for the first."""
  return tf.concat([tf.zeros_like(rows[..., :1]), rows[..., :-1]], axis=-1)


def _after(rows):
  return tf.concat([rows[..., 1:], tf.zeros_like(rows[..., :1])], axis=-1)


def _typical_square(residual, weights):
  """Returns the square of rows' mean sizes, at least one, [d].

  Pairs are odd relative to it: of a row of which drivers explain little, only
  the few next to zero would count otherwise.
  """
  size = tf.linalg.matvec(tf.abs(residual), weights, transpose_a=True)
  return tf.maximum(size**2, 1.0)
