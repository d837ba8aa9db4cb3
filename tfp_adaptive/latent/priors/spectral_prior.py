"""Priors whose covariance is diagonal in a fast orthogonal basis.

  C = U diag(gamma) U^T,   s = U^T (x - mean)

In these coordinates every function of C is a product by element, so that only
products with U are expensive. Nothing is inverted, and eigenvalues may be zero.
"""

import math
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.latent.priors import gaussian_prior

# Below 8 eps times the largest eigenvalue, eigenvalues are mostly rounding. At
# this bound a float32 log density of 100 directions is wrong by 0.1 to 0.4.
_ROUNDING = 8.0


class SpectralParams(NamedTuple):
  """Mean and decomposition of a spectral prior."""

  mean: Any  # [], [d] or [chains..., d or 1].
  eigenvalues: Any  # gamma >= 0, [d] or [chains..., d].
  basis: Any = ()  # Data of the basis: U itself, its factors, or nothing.


def build(
  name,
  event_shape,
  params,
  forward,
  backward,
  adjoint=None,
  rounding=None,
  log_volume=None,
):
  """Returns the `interfaces.GaussianPrior` of a basis.

  `forward` is (basis, x) -> U^T x, and `backward` is (basis, s) -> U s, for
  rows [chains..., d]. If U is not orthogonal, `adjoint` is (basis, g) ->
  adjoint of `backward`, and `log_volume` is (basis) -> log |det dx / ds|, [] or
  [chains...]. `rounding` is that of eigenvalues relative to the largest one, by
  default that of a dense decomposition. Negative eigenvalues are taken as
  rounding.
  """
  params = params._replace(
    mean=gaussian_prior.per_chain(params.mean, params.eigenvalues.shape[:-1]),
    eigenvalues=not_negative(params.eigenvalues),
  )
  adjoint = adjoint or forward
  if rounding is None:
    dtype = params.eigenvalues.dtype.as_numpy_dtype
    rounding = params.eigenvalues.shape[-1] * np.finfo(dtype).eps
  log_volume = log_volume or (lambda basis: 0.0)
  return interfaces.GaussianPrior(
    name=name,
    event_shape=tuple(event_shape),
    params=params,
    to_coordinates=lambda p, x: forward(p.basis, x - p.mean),
    from_coordinates=lambda p, s: backward(p.basis, s) + p.mean,
    pull=lambda p, g: adjoint(p.basis, g),
    covariance=lambda p: _covariance(
      p.eigenvalues, log_volume(p.basis), rounding
    ),
    smoother=lambda p, variance: _smoother(
      p.eigenvalues, log_volume(p.basis), variance
    ),
    is_singular=_is_singular(params.eigenvalues, rounding),
  )


def not_negative(eigenvalues):
  """Returns eigenvalues with 0 for negative ones; NaN stays, unlike in relu."""
  return tf.where(eigenvalues >= 0.0, eigenvalues, 0.0 * eigenvalues)


def eigh(matrix):
  """Decomposes C; eigenvalues are NaN, without an error, if C is not finite.

  A proposed hyperparameter may overflow. Its log density is then NaN, and the
  proposal is rejected.
  """
  is_finite = tf.reduce_all(
    tf.math.is_finite(matrix), axis=[-2, -1], keepdims=True
  )
  identity = tf.eye(matrix.shape[-1], dtype=matrix.dtype)
  eigenvalues, vectors = tf.linalg.eigh(tf.where(is_finite, matrix, identity))
  nan = tf.constant(float('nan'), matrix.dtype)
  return tf.where(is_finite[..., 0], eigenvalues, nan), vectors


def _covariance(gamma, log_volume, rounding):
  """Returns the `interfaces.Covariance` of diag(gamma)."""

  # Non-finite eigenvalues count as positive. They make the density non-finite,
  # so that the proposal is rejected. NaN needs its own test, because graphs of
  # TensorFlow rewrite not (a <= b) as a > b.
  def positive(rounding):
    is_positive = gamma > rounding * _largest(gamma)
    is_positive |= ~tf.math.is_finite(gamma)
    divisor = tf.where(is_positive, gamma, 1.0)
    return is_positive, tf.where(is_positive, 1.0 / divisor, 0.0)

  is_positive, inverse = positive(rounding)

  def log_prob(s):
    density = _normal_log_prob(s**2 * inverse, gamma, is_positive)
    return density - log_volume

  def log_prob_if_invertible(s):
    # The number of directions that `log_prob` drops depends on C. Such
    # densities cannot be compared, so every direction counts here.
    eps = np.finfo(gamma.dtype.as_numpy_dtype).eps
    is_positive, inverse = positive(min(rounding, _ROUNDING * eps))
    density = _normal_log_prob(s**2 * inverse, gamma, is_positive)
    is_invertible = tf.reduce_all(is_positive, axis=-1)
    nan = tf.constant(float('nan'), density.dtype)
    return tf.where(is_invertible, density, nan) - log_volume

  return interfaces.Covariance(
    multiply=lambda v: gamma * v,
    draw=lambda e: tf.sqrt(gamma) * e,
    solve=lambda v: inverse * v,
    log_prob=log_prob,
    log_prob_if_invertible=log_prob_if_invertible,
  )


def _smoother(gamma, log_volume, variance):
  """Returns the `interfaces.Smoother` of R = gamma / (gamma + variance)."""
  noisy = gamma + variance
  gain = gamma / noisy
  spread = tf.sqrt(variance * gain)
  marginal_spread = tf.sqrt(variance * gain * (1.0 + gain))

  def log_marginal(z):
    density = _normal_log_prob(z**2 / noisy, noisy, noisy > 0)
    return density - log_volume

  return interfaces.Smoother(
    gain=lambda v: gain * v,
    draw=lambda v, e: gain * v + spread * e,
    draw_marginal=lambda v, e: gain * v + marginal_spread * e,
    solve_marginal=lambda v: v / (1.0 + gain),
    log_marginal=log_marginal,
  )


def _normal_log_prob(squares, variances, is_positive):
  """Returns normal log densities of rows, without directions of variance 0."""
  log_norms = tf.where(is_positive, tf.math.log(2.0 * math.pi * variances), 0.0)
  return -0.5 * (
    tf.reduce_sum(squares, axis=-1) + tf.reduce_sum(log_norms, axis=-1)
  )


def _largest(eigenvalues):
  return tf.reduce_max(eigenvalues, axis=-1, keepdims=True)


def _is_singular(eigenvalues, rounding):
  """Returns whether C has no inverse; False inside a `tf.function`."""
  if tf.inside_function():
    return False
  smallest = tf.reduce_min(eigenvalues, axis=-1, keepdims=True)
  return bool(tf.reduce_any(smallest <= rounding * _largest(eigenvalues)))
