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

import tensorflow as tf

from tfp_adaptive.transport.maps import natural
from tfp_adaptive.transport.maps import pairs as pairs_lib

__all__ = [
  'Fitted',
  'fit',
  'in_units',
  'regress',
  'start',
]

_NUM_ROUNDS = 3  # Of reweighting.
_RIDGE = 1e-6  # Of normal equations with a unit diagonal.
_FLOOR = 1e-6  # Of a precision, in units of its typical size.


class Fitted(
  collections.namedtuple('Fitted', ['natural', 'precision', 'residual'])
):
  """A `Natural`, P_jj(u) and (g - h + P x)_j / sqrt(P_jj), [n, d]."""

  __slots__ = ()


def fit(states, scores, weights, drivers, exponents, is_path, is_bent=False):
  """Returns the `Natural` of pairs, y and its scores, [n, d] each.

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
  # Drivers have the scales of their marginals.
  own = pairs_lib.standardize(rows, scores, weights).scale
  is_driver = tf.reduce_any(tf.range(own.shape[0]) == drivers[:, tf.newaxis], 0)
  own = tf.where(is_driver, own, tf.ones_like(own))
  of_drivers = pairs_lib.pick(own, drivers, 1.0)
  found = found._replace(
    mean=pairs.mean,
    log_scale=tf.math.log(pairs.scale * own),
    exponents=found.exponents * of_drivers,
    slope=found.slope * natural.inputs(of_drivers, found.slope)[1:],
  )
  return found, rows / own, scores * own


def in_units(pairs, drivers, exponents):
  """Returns exponents of terms in units of the pairs, [1 + k, k].

  The first has none; each of the others has that of its driver.
  """
  matrix = tf.linalg.diag(exponents * pairs_lib.pick(pairs.scale, drivers, 1.0))
  return tf.concat([tf.zeros_like(matrix[:1]), matrix], axis=0)


def start(pairs, drivers, exponents, is_path, is_bent=False):
  """Returns the standard normal as `Fitted`."""
  size = pairs.states.shape[-1]
  first = natural.of_scale(
    size,
    [-1] * drivers.shape[0],
    tf.ones([], pairs.states.dtype),
    is_path,
    is_bent,
  )
  return Fitted(
    first._replace(drivers=drivers, exponents=exponents),
    precision=tf.ones_like(pairs.scores),
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
  problem = _Regression(
    pairs, weights, drivers, exponents, before, is_path, is_search
  )
  offset, slope, slack, edge = problem.solve()
  precision, push = problem.precision(slack, edge)
  pull = problem.places(offset, slope)
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
    (pairs.scores - pull + push) * tf.math.rsqrt(precision),
  )


class _Regression:
  """The regressions of all coordinates on drivers and neighbours.

  A row has for each term coefficients of 1 and u, bent in the first term of
  products of two as well, of -x_j and, in a path, of x_{j-1} and x_{j+1}.
  Drivers' rows are solved too, and dropped.
  """

  def __init__(
    self, pairs, weights, drivers, exponents, before, is_path, is_search
  ):
    self._scores, size = pairs.scores, pairs.states.shape[-1]
    self._num_edges = size if is_path else 0
    is_driver = tf.reduce_any(tf.range(size)[:, tf.newaxis] == drivers, axis=-1)
    self._keep = tf.cast(~is_driver, weights.dtype)
    distances = pairs_lib.pick(pairs.states, drivers, 0.0)
    is_used = tf.reduce_any(exponents != 0.0, axis=-1)
    is_used |= tf.range(exponents.shape[0]) == 0
    self._terms = tf.where(is_used, natural.terms(exponents, distances), 0.0)
    self._inputs = natural.inputs(distances, before.natural.slope)
    self._num_drivers = drivers.shape[0]
    self._rest = self._keep * pairs.states
    own = [-pairs.states]
    if is_path:
      own += [_before(self._rest), _after(self._rest)]
    self._is_search = is_search
    square = before.residual**2
    if not is_search:
      square /= _typical_square(before.residual, weights)
    self._share = weights[:, tf.newaxis] / (1.0 + 0.25 * square)
    self._set_normal(own, self._share / before.precision)

  def _set_normal(self, own, share):
    """Sets features [d, n, F], the same weighted, and the normal matrices."""
    num_states, size = self._rest.shape
    shared = tf.broadcast_to(
      self._inputs[:, tf.newaxis], [num_states, size, self._inputs.shape[-1]]
    )
    each = tf.concat([shared, tf.stack(own, axis=-1)], axis=-1)
    features = (
      self._terms[:, tf.newaxis, :, tf.newaxis] * each[:, :, tf.newaxis]
    )
    self._shape = size, self._terms.shape[-1], each.shape[-1]
    features = tf.reshape(features, [num_states, size, -1])
    features = tf.transpose(features, [1, 0, 2])
    self._weighted = tf.transpose(share)[..., tf.newaxis] * features
    self._gram = tf.matmul(features, self._weighted, transpose_a=True)

  def solve(self):
    """Returns h [T, d], H [T, d, k], r [T, d] and s w [T, d].

    Precisions that come out negative are left out, and the rest is solved
    again; what a path's edges ask of the diagonal is given to it, and h and H
    are solved once more; and again, of scores that count for what they tell.
    """
    size, num_terms, width = self._shape
    num_inputs = self._inputs.shape[-1]
    is_own = tf.range(width) >= num_inputs
    is_placed = self._is_placed()

    def turn(count, free, places, slack, edge):
      is_last = count >= num_terms
      target = self._target(count, places, slack, edge)
      own_free = tf.where(is_last, tf.zeros_like(free), free)
      mask = tf.where(is_own, own_free[..., tf.newaxis], is_placed)
      solved = self._solved(target, mask)
      new_slack, new_edge = self._split(solved[..., num_inputs:])
      is_positive = tf.cast(solved[..., num_inputs] > 0.0, free.dtype)
      return (
        count + 1,
        tf.where(is_last, free, free * is_positive),
        self._keep[:, tf.newaxis, tf.newaxis] * solved[..., :num_inputs],
        tf.where(is_last, slack, new_slack),
        tf.where(is_last, edge, new_edge),
      )

    free = tf.ones([size, num_terms], self._gram.dtype)
    places = tf.zeros([size, num_terms, num_inputs], free.dtype)
    slack = tf.transpose(free)
    num_turns = num_terms + (1 if self._is_search else 2)
    *_, places, slack, edge = tf.while_loop(
      lambda count, *_: count < num_turns,
      turn,
      (tf.constant(0), free, places, slack, slack[:, : self._num_edges]),
      maximum_iterations=num_turns,
    )
    return *_by_term(places), slack, edge

  def _is_placed(self):
    """Returns 1 for h and H, [T, F / T]; products are of the first term."""
    _, num_terms, width = self._shape
    is_placed = tf.range(width) <= self._num_drivers
    is_placed |= tf.range(num_terms)[:, tf.newaxis] == 0
    return tf.cast(is_placed, self._gram.dtype)

  def _target(self, count, places, slack, edge):
    """Returns what the turn of this number regresses, [n, d].

    All but P x at first, which is given later; at last g counts for less.
    """
    num_terms = self._shape[1]
    precision, push = self.precision(slack, edge)
    scores = self._scores
    if not self._is_search:
      residual = scores - self.places(*_by_term(places)) + push
      variance = tf.reduce_sum(self._share * residual**2 / precision, axis=0)
      variance /= tf.reduce_sum(self._share, axis=0)
      scores = tf.where(count > num_terms, scores / (1.0 + variance), scores)
    return scores + tf.where(count >= num_terms, push, tf.zeros_like(push))

  def _solved(self, target, mask):
    """Returns the coefficients [d, T, F / T] of targets [n, d]."""
    right = tf.matmul(
      self._weighted,
      tf.transpose(target)[..., tf.newaxis],
      transpose_a=True,
    )[..., 0]
    solved = _solve(self._gram, right, tf.reshape(mask, right.shape))
    return mask * tf.reshape(solved, self._shape)

  def precision(self, slack, edge):
    """Returns P_jj(u) and (P(u) x)_j without the drivers, [n, d]."""
    if not self._num_edges:
      diagonal = tf.matmul(self._terms, slack)
      return diagonal, diagonal * self._rest
    size = tf.abs(edge)
    diagonal = tf.matmul(self._terms, slack + size + _before(size))
    along = tf.matmul(self._terms, edge)
    push = diagonal * self._rest - along * _after(self._rest)
    return diagonal, push - _before(along * self._rest)

  def places(self, offset, slope):
    """Returns h(u) + H(u) u, [n, d]."""
    pull = tf.matmul(self._terms, offset)
    for k, distance in enumerate(tf.unstack(self._inputs, axis=-1)[1:]):
      pull += distance[:, tf.newaxis] * tf.matmul(self._terms, slope[..., k])
    return pull

  def _split(self, own):
    """Returns r and s w, [T, d], of a precision with a dominant diagonal.

    Drivers have the precision one.
    """
    own = tf.transpose(self._keep[:, tf.newaxis, tf.newaxis] * own, [1, 0, 2])
    first = tf.one_hot(0, own.shape[0], dtype=own.dtype)[:, tf.newaxis]
    floor = first * tf.where(
      self._keep > 0.0, tf.constant(_FLOOR, own.dtype), 1.0
    )
    diagonal = tf.maximum(own[..., 0], 0.0)
    if not self._num_edges:
      return diagonal + floor, diagonal[:, :0]
    is_coupled = (diagonal > 0.0) & (_after(diagonal) > 0.0)
    edge = 0.5 * (own[..., 2] + _after(own[..., 1]))
    edge = tf.where(is_coupled, edge, 0.0)
    size = tf.abs(edge)
    return tf.maximum(diagonal - size - _before(size), 0.0) + floor, edge


def _before(rows):
  """Returns the coordinate before, zero for the first."""
  return tf.concat([tf.zeros_like(rows[..., :1]), rows[..., :-1]], axis=-1)


def _after(rows):
  return tf.concat([rows[..., 1:], tf.zeros_like(rows[..., :1])], axis=-1)


def _by_term(places):
  """Returns h [T, d] and H [T, d, k] of both, [d, T, 1 + k]."""
  places = tf.transpose(places, [1, 0, 2])
  return places[..., 0], places[..., 1:]


def _typical_square(residual, weights):
  """Returns the square of rows' mean sizes, at least one, [d].

  Pairs are odd relative to it: of a row of which drivers explain little, only
  the few next to zero would count otherwise.
  """
  size = tf.linalg.matvec(tf.abs(residual), weights, transpose_a=True)
  return tf.maximum(size**2, 1.0)


def _solve(gram, right, free):
  """Returns the solutions of [d, F, F] systems in what is free, [d, F]."""
  diagonal = tf.linalg.diag_part(gram)
  is_free = (free > 0.0) & (diagonal > 0.0)
  tiny = tf.constant(1e-30, gram.dtype)
  scale = tf.where(is_free, tf.math.rsqrt(tf.maximum(diagonal, tiny)), 0.0)
  gram = scale[..., tf.newaxis] * gram * scale[:, tf.newaxis]
  gram = tf.linalg.set_diag(gram, tf.ones_like(scale) * (1.0 + _RIDGE))
  solved = tf.linalg.cholesky_solve(
    tf.linalg.cholesky(gram), (scale * right)[..., tf.newaxis]
  )
  return scale * solved[..., 0]
