"""Priors whose covariance is diagonal in a fast orthogonal basis.

  C = U diag(gamma) U^T,   s = U^T (x - mean)

In these coordinates every function of C is a product by element, so that a
sampler pays for U alone, and nothing is inverted: eigenvalues may be zero.
"""

import math
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive import interfaces

__all__ = ['SpectralParams', 'build', 'covariance', 'smoother']


class SpectralParams(NamedTuple):
  """Mean and decomposition of a spectral prior."""

  mean: Any  # [d] or [].
  eigenvalues: Any  # gamma >= 0, [d].
  basis: Any = ()  # Whatever the basis needs: U itself, its factors, nothing.


def build(
  name, event_shape, params, forward, backward, adjoint=None, restrict=None
):
  """Returns the `interfaces.GaussianPrior` of a basis.

  Args:
    name: Name of the structure.
    event_shape: Shape of the state, ints.
    params: `SpectralParams`; negative eigenvalues are taken as rounding.
    forward: (basis, x) -> U^T x, rows [chains..., d].
    backward: (basis, s) -> U s.
    adjoint: (basis, g) -> adjoint of `backward`; `forward` if U is orthogonal.
    restrict: As in `interfaces.GaussianPrior`.

  Returns:
    An `interfaces.GaussianPrior`.
  """
  params = params._replace(eigenvalues=tf.nn.relu(params.eigenvalues))
  adjoint = adjoint or forward
  return interfaces.GaussianPrior(
    name=name,
    event_shape=tuple(event_shape),
    params=params,
    to_coordinates=lambda p, x: forward(p.basis, x - p.mean),
    from_coordinates=lambda p, s: backward(p.basis, s) + p.mean,
    pull=lambda p, g: adjoint(p.basis, g),
    covariance=lambda p: covariance(p.eigenvalues),
    smoother=lambda p, variance: smoother(p.eigenvalues, variance),
    restrict=restrict,
    is_singular=_is_singular(params.eigenvalues),
  )


def covariance(eigenvalues):
  """Returns the functions of diag(gamma)."""
  gamma = eigenvalues
  is_positive = gamma > _rounding(gamma)
  inverse = tf.where(is_positive, 1.0 / tf.where(is_positive, gamma, 1.0), 0.0)

  def log_prob(s):
    return _normal_log_prob(s**2 * inverse, gamma, is_positive)

  return interfaces.Covariance(
    multiply=lambda v: gamma * v,
    draw=lambda e: tf.sqrt(gamma) * e,
    solve=lambda v: inverse * v,
    log_prob=log_prob,
  )


def smoother(eigenvalues, variance):
  """Returns the functions of R = gamma / (gamma + variance)."""
  noisy = eigenvalues + variance
  gain = eigenvalues / noisy
  spread = tf.sqrt(variance * gain)
  marginal_spread = tf.sqrt(variance * gain * (1.0 + gain))

  def log_marginal(z):
    return _normal_log_prob(z**2 / noisy, noisy, noisy > 0)

  return interfaces.Smoother(
    gain=lambda v: gain * v,
    draw=lambda v, e: gain * v + spread * e,
    draw_marginal=lambda v, e: gain * v + marginal_spread * e,
    solve_marginal=lambda v: v / (1.0 + gain),
    log_marginal=log_marginal,
  )


def _normal_log_prob(squares, variances, is_positive):
  """Returns log N of rows by their whitened squares; null directions drop."""
  log_norms = tf.where(
    is_positive, tf.math.log(2.0 * math.pi * variances), 0.0
  )
  return -0.5 * (
    tf.reduce_sum(squares, axis=-1) + tf.reduce_sum(log_norms, axis=-1)
  )


def _rounding(eigenvalues):
  """Returns the size below which an eigenvalue is rounding, [..., 1]."""
  dtype = eigenvalues.dtype.as_numpy_dtype
  largest = tf.reduce_max(eigenvalues, axis=-1, keepdims=True)
  return largest * (eigenvalues.shape[-1] * np.finfo(dtype).eps)


def _is_singular(eigenvalues):
  """Returns whether C has no inverse; False where that is not known yet."""
  if tf.inside_function():
    return False
  smallest = tf.reduce_min(eigenvalues, axis=-1, keepdims=True)
  return bool(tf.reduce_any(smallest <= _rounding(eigenvalues)))
