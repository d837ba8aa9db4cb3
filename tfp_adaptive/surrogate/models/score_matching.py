"""Score matching in a linear model, with cross-validated free parameters.

The model is

  f(z) = sum_j c_j psi_j(B z) - a z^T P z / 2

with basis functions psi_j, a linear map B, and a Gaussian base of precision P
and weight a. The target has unit scale in the coordinates z. For draws z_i with
weights w_i, the objective (Hyvarinen, 2005)

  J(c) = sum_i w_i ( tr D^2 f(z_i) + |D f(z_i)|^2 / 2 )

is quadratic, J = c^T G c / 2 - h^T c + const. With the gradient D in z,

  G = sum_i w_i D psi D psi^T,   h = -sum_i w_i (tr D^2 psi - a D psi P z_i),

and J + (r / 2) |c|^2 has its minimum at c = (G + r I)^-1 h. B = T^-1 / sqrt(s)
for a kernel of metric T T^T and bandwidth s. Candidates of (B, a, r) are
compared by J on held-out draws. Each quarter of the draws is held out once.

Source: Strathmann et al. (2015), section 4, https://arxiv.org/abs/1506.02564;
the Gaussian base and the choice among metrics are this library's.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple
from typing import Optional

import tensorflow as tf

from tfp_adaptive.core import control_flow
from tfp_adaptive.core import history
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linalg import blocked_cholesky
from tfp_adaptive.surrogate import weighted_points

_MAX_POINTS = 512  # Most draws in the comparison of candidates.
_NUM_FOLDS = 4  # Blocks of draws; each is held out once.
_BANDWIDTH_FACTOR = 8.0  # Factor between neighboring candidates.
_REGULARIZATION_FACTOR = 100.0
_BANDWIDTHS = (1e-1, 1e3)
_REGULARIZATIONS = (1e-9, 1.0)
# Bandwidths that every fit tries in every metric, with and without base,
# because early draws can mislead the search.
_ANCHORS = (2.0, 32.0)
# Regularization of the candidate that is the Gaussian base alone. Few draws,
# such as those of one slow chain, support only this candidate.
_NO_KERNEL = 1e12
_LEAST_SUPPORT = 0.02  # Least weight a of the base.


class Basis(NamedTuple):
  """Basis functions psi_j(v) of unit bandwidth, at v = B z.

  `data` is the structure that defines the functions. `at` returns `data` in
  coordinates v, with the leading dimensions [k...] of maps B [k..., d, d]. All
  functions below `at` take `data` in this form.
  """

  # (event_size, dtype, seed) -> data before any draw.
  init: Callable
  # (data, draws) -> data in coordinates z for a fit to these draws.
  refresh: Callable
  # (data) -> data of fewer functions, for the comparison of candidates.
  shrink: Callable
  # (data) -> number of basis functions m.
  size: Callable
  # (data, B) -> data in coordinates v.
  at: Callable
  # (data, B, draws, base [k..., n, d]) -> G [k..., m, m], h [k..., m]; base is
  # -a P z, the gradient of the Gaussian base.
  moments: Callable
  # (data, c [m], v [..., d]) -> sum_j c_j psi_j(v), [...].
  value: Callable
  # (data, c [m], v [..., d]) -> gradient in v of this sum, [..., d].
  gradient: Callable
  # (data, B, z [n, d]) -> gradients in z of all functions [n, d, m] and their
  # Laplacians [n, m]; None if the functions depend on the draws, so that fits
  # cannot be updated by new draws.
  features: Optional[Callable] = None
  # A regularization that suits most bandwidths, in the units of `Choice`.
  regularization: float = 1e-3


class Choice(NamedTuple):
  """Free parameters of one candidate, [], or of k candidates, [k]."""

  bandwidth: tf.Tensor  # s / d of the kernel exp(-|z|^2 / s).
  regularization: tf.Tensor  # r in units of trace(G) / n.
  # a, 0 or the weight that held-out draws support, at most 1.
  base_weight: tf.Tensor
  metric: tf.Tensor  # Index of the metric, a whole number.


class Draws(NamedTuple):
  """Draws with weights that sum to one."""

  points: tf.Tensor  # z, [n, d].
  weights: tf.Tensor  # [n].


class Sums(NamedTuple):
  """Sums over draws."""

  factor: tf.Tensor  # Cholesky factor of n (G + r I), [m, m].
  moment: tf.Tensor  # n h, [m].


class Fitted(NamedTuple):
  """The result of a fit."""

  map: tf.Tensor  # B, [d, d].
  coefficients: tf.Tensor  # c, [m].
  choice: Choice  # The best one.
  sums: Any  # Its `Sums`.


def choose(basis, data, draws, base, metrics, choice):
  """Compares candidates around `choice` and returns the best one as `Fitted`.

  `data` is in coordinates z, and `base` is P, [d, d]. `metrics` are
  lower-triangular factors T of kernel metrics, [l, d, d]; the kernel takes
  T^-1 z. Coefficients are NaN if the best fit has no Cholesky factor.
  """
  stage = control_flow.in_stage
  few = stage(_at_most, draws)
  held_out = stage(_held_out_base, few)
  maps, choices = stage(
    lambda *args: _candidates(*args, basis.regularization),
    metrics,
    choice,
    held_out,
  )
  small = basis.shrink(basis.refresh(data, few))
  values = stage(
    lambda maps, data, *rest: _cross_validate(
      basis, maps, basis.at(data, maps), *rest
    ),
    maps,
    small,
    choices,
    few,
    base,
    held_out,
  )
  best = tf.argmin(
    tf.where(tf.math.is_finite(values), values, values.dtype.max)
  )
  best_map, chosen = stage(
    lambda values, best: tf.nest.map_structure(lambda v: v[best], values),
    (maps, choices),
    best,
  )
  coefficients, sums = stage(
    lambda maps, data, *rest: solve(basis, maps, basis.at(data, maps), *rest),
    best_map,
    data,
    chosen,
    draws,
    base,
  )
  return Fitted(best_map, coefficients, chosen, sums)


def add(basis, params, points):
  """Returns coefficients and `Sums` of a fit with draws z, [b, d], added.

  Bandwidth, metric, frame and r n do not change, so that the factor is updated
  by b d columns. Rows that are not finite are left out. `basis` has `features`,
  and `params` are `kernel_surrogate.Params` in float64.
  """
  is_finite = tf.reduce_all(tf.math.is_finite(points), axis=-1, keepdims=True)
  points = tf.where(is_finite, points, 0.0)
  is_finite = tf.cast(is_finite, points.dtype)
  slopes, laplacians = basis.features(params.data, params.map, points)
  # `params.precision` is the product a P.
  along = tf.linalg.matvec(
    slopes, tf.matmul(points, params.precision), transpose_a=True
  )
  moment = params.sums.moment - tf.reduce_sum(
    is_finite * (laplacians - along), axis=0
  )
  columns = tf.reshape(
    is_finite[..., tf.newaxis] * slopes, [-1, ps.shape(slopes)[-1]]
  )
  factor = blocked_cholesky.update(
    params.sums.factor, tf.linalg.matrix_transpose(columns)
  )
  return _back_substitute(factor, moment), Sums(factor, moment)


def solve(basis, maps, data, choices, draws, base):
  """Returns coefficients of every candidate, [k..., m], and `Sums`."""
  gram, rhs = basis.moments(
    data, maps, draws, _base_score(choices, draws, base)
  )
  count = history.effective_size(draws.weights)
  factor = _factor(gram, choices, count)
  sums = Sums(tf.sqrt(count) * factor, count * rhs)
  return _back_substitute(factor, rhs), sums


def _factor(gram, choices, count):
  """Returns the Cholesky factor of G + r I, [..., k..., m, m]."""
  ridge = choices.regularization * tf.linalg.trace(gram) / count
  identity = tf.linalg.eye(ps.shape(gram)[-1], dtype=gram.dtype)
  return blocked_cholesky.cholesky(
    gram + ridge[..., tf.newaxis, tf.newaxis] * identity
  )


def _back_substitute(factor, rhs):
  return tf.linalg.cholesky_solve(factor, rhs[..., tf.newaxis])[..., 0]


def _cross_validate(basis, maps, data, choices, draws, base, held_out):
  """Returns J of every candidate on held-out draws, [k].

  J follows from sums over the folds, because J of a fold is quadratic in c.
  """
  shape = ps.shape(draws.points)
  fold = Draws(
    tf.reshape(draws.points, [_NUM_FOLDS, 1, -1, shape[-1]]),
    draws.weights[: shape[0] // _NUM_FOLDS],
  )
  grams, rhs = basis.moments(data, maps, fold, _base_score(choices, fold, base))
  share = 1.0 - 1.0 / _NUM_FOLDS
  factor = _factor(
    (tf.reduce_sum(grams, axis=0) - grams) / share,
    choices,
    share * history.effective_size(draws.weights),
  )
  coefficients = _back_substitute(
    factor, (tf.reduce_sum(rhs, axis=0) - rhs) / share
  )
  values = coefficients * (0.5 * tf.linalg.matvec(grams, coefficients) - rhs)
  square, trace = held_out
  weight = choices.base_weight
  of_base = 0.5 * weight**2 * square - weight * trace
  return of_base + tf.reduce_sum(values, axis=[0, -1])


def _held_out_base(draws):
  """Returns (q, t), [] each, of J = a^2 q / 2 - a t of the Gaussian base.

  The base is -a z^T P z / 2. On each fold, P is fitted to the other folds,
  because every Gaussian has a good J on the draws to which it was fitted.
  """
  size = ps.shape(draws.points)[-1]
  points = tf.reshape(draws.points, [_NUM_FOLDS, -1, size])
  square = trace = tf.zeros([], points.dtype)
  for held_out in range(_NUM_FOLDS):
    rest = tf.concat([points[:held_out], points[held_out + 1 :]], axis=0)
    rest = tf.reshape(rest, [-1, size])
    count = tf.cast(ps.shape(rest)[0], rest.dtype)
    mean, covariance = weighted_points.moments(
      rest, tf.ones_like(rest[:, 0]) / count
    )
    precision = weighted_points.precision(covariance)
    pulled = tf.matmul(points[held_out] - mean, precision)
    square += tf.reduce_mean(tf.reduce_sum(pulled**2, axis=-1)) / _NUM_FOLDS
    trace += tf.linalg.trace(precision) / _NUM_FOLDS
  return square, trace


def _base_score(choices, draws, base):
  """Returns -a P z, [k..., n, d]."""
  return -choices.base_weight[..., tf.newaxis, tf.newaxis] * tf.matmul(
    draws.points, base
  )


def _supported_weight(held_out):
  """Returns the weight a at which the base alone minimizes J, [].

  J is that of the held-out draws, and a is from `_LEAST_SUPPORT` to 1. It is
  below 1 if draws are few, or if the chain has not visited the whole target.
  """
  square, trace = held_out
  weight = tf.clip_by_value(trace / square, _LEAST_SUPPORT, 1.0)
  return tf.where(tf.math.is_finite(weight), weight, 1.0)


def _candidates(metrics, choice, held_out, regularization):
  """Returns maps B [k, d, d] and `Choice` of [k], in two grids.

  One grid is over bandwidth and regularization around `choice`, the other over
  metrics and bases. A full grid would be expensive, and later fits continue the
  search. The last candidate is the base alone. `held_out`, from
  `_held_out_base`, gives the weight of a base.
  """
  dtype = metrics.dtype
  size = tf.cast(ps.shape(metrics)[-1], dtype)
  num_metrics = ps.shape(metrics)[0]
  support = _supported_weight(held_out)
  # If the last choice was the base alone, the search starts again.
  is_alone = choice.regularization > _REGULARIZATIONS[1]
  anchor = tf.constant(regularization, dtype)
  start = tf.where(is_alone, anchor, choice.regularization)

  def around(value, factor, bounds):
    grid = value * tf.constant([1.0 / factor, 1.0, factor], dtype)
    return tf.clip_by_value(grid, *bounds)

  scales = [
    around(choice.bandwidth, _BANDWIDTH_FACTOR, _BANDWIDTHS),
    around(start, _REGULARIZATION_FACTOR, _REGULARIZATIONS),
    tf.where(choice.base_weight > 0.0, support, 0.0)[tf.newaxis],
    choice.metric[tf.newaxis],
  ]
  shapes = [
    tf.constant(_ANCHORS, dtype),
    anchor[tf.newaxis],
    tf.stack([tf.zeros_like(support), support]),
    tf.cast(tf.range(num_metrics), dtype),
  ]
  base_alone = [
    tf.reshape(tf.cast(v, dtype), [1]) for v in (2.0, _NO_KERNEL, support, 0.0)
  ]
  grids = [
    tf.meshgrid(*axes, indexing='ij') for axes in (scales, shapes, base_alone)
  ]
  choices = Choice(
    *[
      tf.concat([tf.reshape(part, [-1]) for part in parts], axis=0)
      for parts in zip(*grids)
    ]
  )
  identity = tf.linalg.eye(ps.shape(metrics)[-1], dtype=dtype)
  inverses = tf.linalg.triangular_solve(
    metrics, identity + tf.zeros_like(metrics)
  )
  width = tf.sqrt(choices.bandwidth * size)[:, tf.newaxis, tf.newaxis]
  number = tf.cast(choices.metric, tf.int32)
  return tf.gather(inverses, number) / width, choices


def _at_most(draws):
  """Returns draws of equal weights for the comparison of candidates.

  Folds are blocks of these draws, because neighbors in the history are also
  neighbors in a chain.
  """
  num_points = ps.minimum(ps.shape(draws.points)[0], _MAX_POINTS)
  num_points -= num_points % _NUM_FOLDS
  points = history.spread(draws.points, draws.weights, num_points)
  weight = 1.0 / tf.cast(num_points, points.dtype)
  return Draws(points, tf.fill([num_points], weight))
