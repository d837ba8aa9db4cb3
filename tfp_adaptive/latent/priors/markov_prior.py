"""Priors whose precision P = C^-1 is banded: Markov chains and paths.

Coordinates are x - mean. With t the variance of a smoother,

  R = C (C + t I)^-1 = M^-1,   M = t P + I,   I + R = M^-1 (M + I)

so that every function is a banded product or substitution, O(d). With
e ~ N(0, I), M^-1 chol(t (M + I)) e has covariance t R (I + R), and

  log det(C + t I) = log det M - log det P
  z . (C + t I)^-1 z = y . P y + |z - y|^2 / t,   y = R z

The last two terms are sums of squares, so that nothing cancels.
"""

import math
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.latent.priors import gaussian_prior
from tfp_adaptive.linalg import banded_cholesky as cholesky


class MarkovParams(NamedTuple):
  """Mean, precision and its factor."""

  mean: Any  # [], [d] or [chains..., d].
  bands: Any  # Diagonals of P, a tuple of [d - k] or [chains..., d - k].
  factor: Any  # `banded_cholesky.Factor` of P.


def build(name, bands, mean, advice, event_shape=None):
  """Returns the `interfaces.GaussianPrior` of a banded precision.

  `bands` are the diagonals of P, [chains..., d - k] each, and `mean` broadcasts
  to [chains..., d]. `advice` is for the message if P is not positive definite.
  """
  factor = cholesky.factorize(bands)
  _check_positive(factor, advice)
  params = MarkovParams(
    gaussian_prior.per_chain(mean, bands[0].shape[:-1]), bands, factor
  )
  return gaussian_prior.centered(
    name, event_shape or bands[0].shape[-1:], params, covariance, smoother
  )


def covariance(params):
  """Returns the functions of C = P^-1."""
  factor = params.factor

  def log_prob(s):
    squares = tf.reduce_sum(cholesky.multiply_factor(factor, s) ** 2, axis=-1)
    log_norm = s.shape[-1] * math.log(2.0 * math.pi)
    return -0.5 * (squares + log_norm - factor.log_det)

  return interfaces.Covariance(
    multiply=lambda v: cholesky.solve(factor, v),
    draw=lambda e: cholesky.solve_factor(factor, e),
    solve=lambda v: cholesky.multiply(params.bands, v),
    log_prob=log_prob,
  )


def smoother(params, variance):
  """Returns the functions of R = (t P + I)^-1."""
  noisy, wider = noisy_factors(params.bands, variance)
  spread = tf.sqrt(variance)

  def gain(v):
    return cholesky.solve(noisy, v)

  def draw_marginal(v, e):
    noise = cholesky.multiply_factor(wider, e, adjoint=True)
    return gain(v + spread * noise)

  def log_marginal(z):
    y = gain(z)
    squares = tf.reduce_sum(
      cholesky.multiply_factor(params.factor, y) ** 2 + (z - y) ** 2 / variance,
      axis=-1,
    )
    log_norm = z.shape[-1] * math.log(2.0 * math.pi)
    # Both log determinants are -inf if P has entries that are not finite.
    log_det = noisy.log_det - params.factor.log_det
    log_det = tf.where(
      tf.math.is_finite(log_det), log_det, tf.constant(float('inf'), z.dtype)
    )
    return -0.5 * (squares + log_norm + log_det)

  return interfaces.Smoother(
    gain=gain,
    draw=lambda v, e: cholesky.draw(noisy, v, spread * e),
    draw_marginal=draw_marginal,
    solve_marginal=lambda v: v - cholesky.solve(wider, v),
    log_marginal=log_marginal,
  )


def noisy_factors(bands, variance, curvature=0.0):
  """Returns the factors of M = t (P + diag(c)) + I and of M + I.

  `bands` are the diagonals of P, [chains..., d - k] each, `variance` is t, [],
  and `curvature` is c, [] or [chains..., d].
  """
  diag = 1.0 + variance * (bands[0] + curvature)
  rest = [variance * band for band in bands[1:]]
  shape = tf.broadcast_static_shape(diag.shape[:-1], bands[0].shape[:-1])
  if shape != bands[0].shape[:-1]:
    chains = tf.shape(diag)[:-1]
    rest = [
      tf.broadcast_to(band, tf.concat([chains, tf.shape(band)[-1:]], axis=0))
      for band in rest
    ]
  # One loop factorizes both matrices.
  both = cholesky.factorize(
    (
      tf.stack([diag, diag + 1.0]),
      *(tf.stack([band, band]) for band in rest),
    )
  )
  return (
    tf.nest.map_structure(lambda x: x[0], both),
    tf.nest.map_structure(lambda x: x[1], both),
  )


def conditional_bands(coefficients, precisions):
  """Returns P of x_i = sum_k a_k x_{i-k} + noise, as A^T diag(precisions) A.

  Row i of A is 1 at i and -a_k at i - k. `coefficients` are a_1, ..., a_p for
  every i, [chains..., d] each, with 0 where i - k is before the start.
  `precisions` are those of the noise, [chains..., d]. Returns the diagonals.
  """
  order = len(coefficients)
  lags = [tf.ones_like(precisions), *(-a for a in coefficients)]
  size = precisions.shape[-1]
  bands = []
  for k in range(order + 1):
    total = tf.zeros_like(precisions[..., k:])
    for r in range(order - k + 1):
      # Rows i + k + r of A, which have entries at i and at i + k.
      product = lags[k + r] * lags[r] * precisions
      padding = [[0, 0]] * (product.shape.rank - 1) + [[0, r]]
      total += tf.pad(product[..., k + r :], padding)[..., : size - k]
    bands.append(total)
  return tuple(bands)


def _check_positive(factor, advice):
  if tf.inside_function():
    return
  if np.any(np.isneginf(factor.log_det.numpy())):
    raise ValueError(
      'The precision is not positive definite, or has entries that are not '
      f'finite. {advice}'
    )
