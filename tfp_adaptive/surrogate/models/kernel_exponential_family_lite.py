"""Kernel exponential family in Gaussian kernels at draws.

  f(x) = sum_j c_j exp(-|v - p_j|^2),   v = B z,   p_j = B z_j

with z and B from `kernel_surrogate`, draws z_j and fitted c_j. Let M = B^T B
and u = M z. At draw z_i, kernel j has the value K_ij = exp(-|v_i - p_j|^2), the
gradient -2 K_ij (u_i - u_j) in z, and the Laplacian
K_ij (4 |u_i - u_j|^2 - 2 tr M). The score decays, because all kernels decay.

The centers p_j may be m of the n draws. The objective still has all draws, and
is minimized in the span of m kernels.

Sources: Strathmann et al. (2015), section 4.2 and Proposition 1,
https://arxiv.org/abs/1506.02564; for fewer centers, Sutherland et al. (2018),
https://arxiv.org/abs/1705.08360.
"""

from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive.core import arguments
from tfp_adaptive.core import history
from tfp_adaptive.core import shown
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.surrogate.models import kernel_surrogate
from tfp_adaptive.surrogate.models import score_matching
from tfp_adaptive.surrogate.models import surrogate_frame

_FEWEST_CENTERS = 128  # Centers in the comparison of candidates.
_REGULARIZATION = 1e-6  # Small, because kernels at draws are much alike.


class _Centers(NamedTuple):
  """The centers of the basis functions."""

  points: tf.Tensor  # p_j, [k..., m, d].
  is_used: tf.Tensor  # 1 for rows with a draw, else 0, [m].


@shown.remembers_call
def kernel_exponential_family_lite(num_points=500, num_centers=None):
  """Returns a surrogate whose score decays far from its draws.

  Use it for the warm-up. At the same cost, `kernel_exponential_family_finite`
  learns from more draws. A fit to n draws with m centers costs n m^2, and a
  score m d per chain. Cross-validation chooses bandwidth, metric,
  regularization and whether a Gaussian is the base of the density.

  Args:
    num_points: n, draws of the history that a fit uses, a positive int.
    num_centers: m, number of draws that are centers of kernels, spread evenly
      over chains and time, a positive int, at most n; n by default. Fewer
      centers make a fit of low rank, for histories of thousands of draws.

  Returns:
    An `interfaces.Surrogate`.

  Raises:
    ValueError: If a number is out of its range.

  References:
    Strathmann et al. (2015), Proposition 1, https://arxiv.org/abs/1506.02564.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.kernel_hamiltonian(
      target.log_prob,
      num_adaptation_steps=1000,
      surrogate=tfpa.surrogates.kernel_exponential_family_lite(500),
    )
  """
  arguments.check_count(num_points, 'num_points', 500)
  if num_centers is None:
    num_centers = num_points
  arguments.check_count(num_centers, 'num_centers', num_points)
  if num_centers > num_points:
    raise ValueError(
      f'`num_centers` must be at most `num_points={num_points}`, but got '
      f'{num_centers!r}. Write for example `num_points=2000, num_centers=500`, '
      'or leave it out.'
    )
  return kernel_surrogate.build(
    'kernel_exponential_family_lite',
    num_points,
    _basis(num_centers),
    kernel_surrogate.FIRST_CHOICE._replace(
      bandwidth=4.0, regularization=_REGULARIZATION
    ),
  )


def _basis(num_centers):
  """Returns the `score_matching.Basis` of kernels at the draws."""
  return score_matching.Basis(
    init=lambda event_size, dtype, seed: _Centers(
      tf.zeros([num_centers, event_size], dtype),
      tf.zeros([num_centers], dtype),
    ),
    refresh=lambda data, draws: _refresh(num_centers, draws),
    shrink=_shrink,
    size=lambda data: ps.shape(data.is_used)[-1],
    at=lambda data, maps: _Centers(
      tf.matmul(data.points, maps, transpose_b=True), data.is_used
    ),
    moments=_moments,
    value=_value,
    gradient=_gradient,
    regularization=_REGULARIZATION,
  )


def _refresh(num_centers, draws):
  """Returns the centers of a fit to these draws."""
  if ps.shape(draws.points)[0] > num_centers:
    centers = history.spread(draws.points, draws.weights, num_centers)
    return _Centers(centers, tf.ones_like(centers[:, 0]))
  is_used = tf.cast(draws.weights > 0.0, draws.points.dtype)
  return _Centers(draws.points, is_used)


def _shrink(data):
  stride = ps.maximum(ps.shape(data.is_used)[-1] // _FEWEST_CENTERS, 1)
  return _Centers(data.points[::stride], data.is_used[::stride])


def _moments(data, maps, draws, base):
  """Returns G and h of the objective.

  With a_ij = |u_i|^2 / 2 - u_i . u_j, the inner product in

    G_jk = 4 sum_i w_i K_ij K_ik (u_i - u_j) . (u_i - u_k)

  is a_ij + a_ik + u_j . u_k, so that two matrix products are enough.
  """
  kernels, slopes, centers = _kernels(data, maps, draws.points)
  weighted = draws.weights[:, None] * kernels
  inner = tf.matmul(slopes, centers, transpose_b=True)
  halves = 0.5 * tf.reduce_sum(slopes**2, axis=-1, keepdims=True) - inner
  mixed = tf.matmul(weighted * halves, kernels, transpose_a=True)
  gram = 4.0 * (
    mixed
    + tf.linalg.matrix_transpose(mixed)
    + tf.matmul(centers, centers, transpose_b=True)
    * tf.matmul(weighted, kernels, transpose_a=True)
  )
  along = -2.0 * (
    tf.reduce_sum(slopes * base, axis=-1, keepdims=True)
    - tf.matmul(base, centers, transpose_b=True)
  )
  curved = _curvature(maps, slopes, centers)
  return gram, -tf.linalg.matvec(
    kernels * (curved + along), draws.weights, transpose_a=True
  )


def _kernels(data, maps, points):
  """Returns K [k..., n, m], u of the points and u of the centers."""
  v = tf.matmul(points, maps, transpose_b=True)
  kernels = tf.exp(-_square_distances(v, data.points)) * data.is_used
  return kernels, tf.matmul(v, maps), tf.matmul(data.points, maps)


def _curvature(maps, slopes, centers):
  """Returns 4 |u_i - u_j|^2 - 2 tr M, [k..., n, m]."""
  trace = tf.reduce_sum(maps**2, axis=[-2, -1])[..., None, None]
  return 4.0 * _square_distances(slopes, centers) - 2.0 * trace


def _square_distances(rows, others):
  """Returns |a_i - b_j|^2 of rows [..., n, d] and [..., m, d]."""
  return (
    tf.reduce_sum(rows**2, axis=-1, keepdims=True)
    + tf.reduce_sum(others**2, axis=-1)[..., None, :]
    - 2.0 * tf.matmul(rows, others, transpose_b=True)
  )


def _value(data, coefficients, v):
  return tf.reduce_sum(_terms(data, coefficients, v), axis=-1)


def _gradient(data, coefficients, v):
  terms = _terms(data, coefficients, v)
  return -2.0 * (
    v * tf.reduce_sum(terms, axis=-1, keepdims=True)
    - surrogate_frame.multiply(terms, data.points)
  )


def _terms(data, coefficients, v):
  """Returns c_j exp(-|v - p_j|^2), [..., m]."""
  squares = (
    tf.reduce_sum(v**2, axis=-1, keepdims=True)
    + tf.reduce_sum(data.points**2, axis=-1)
    - 2.0 * surrogate_frame.multiply(v, data.points, transpose=True)
  )
  return coefficients * tf.exp(-squares)
