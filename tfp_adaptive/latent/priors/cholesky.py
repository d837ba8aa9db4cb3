"""A dense covariance by Cholesky factors, for changing hyperparameters.

Coordinates are x - mean. Let t be the variance of a smoother, C = L L^T,
B = L^T L + t I and W = 2 L^T L + t I. Then

    R = C (C + t I)^-1 = L B^-1 L^T,   (I + R)^-1 = I - L W^-1 L^T
    t R = S S^T,            S = sqrt(t) L B^{-T/2}
    t R (I + R) = S S^T,    S = sqrt(t) L B^-1 W^{1/2}

where B^{1/2} and W^{1/2} are Cholesky factors. Even if R is small, no nearly
equal numbers are subtracted. With y = R z,

    log det(C + t I) = log det B
    z . (C + t I)^-1 z = |B^-1 L^T z|^2 + |z - y|^2 / t.
"""

import math
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import shown
from tfp_adaptive.latent.priors import gaussian_prior


class CholeskyParams(NamedTuple):
  """Mean, factor, and the product that all smoothers need."""

  mean: Any  # [], [d] or [chains..., d].
  factor: Any  # L, lower triangular, [d, d] or [chains..., d, d].
  gram: Any  # L^T L.


@shown.remembers_call
def cholesky(
  covariance=None, mean=0.0, kernel=None, index_points=None, jitter=0.0
):
  """Builds the prior N(mean, C) of a positive definite covariance C = L L^T.

  Use it if `prior_fn` of `latent_gaussian_hyperparameters` makes a new prior in
  every step, and `spectral` if the prior is fixed. A factor costs a twentieth
  of the eigendecomposition of `spectral`, but each new variance of a smoother
  needs another factor.

  Args:
    covariance: C, [d, d], symmetric, or [chains..., d, d]; or give `kernel`
      and `index_points`.
    mean: Mean of the field, [], [d] or [chains..., d].
    kernel: A `tfp.math.psd_kernels` kernel.
    index_points: Inputs of the kernel, [d, features].
    jitter: Variance that is added to the diagonal of C. In any case d eps times
      the largest entry of the diagonal is added, for rounding.

  Returns:
    An `interfaces.GaussianPrior` of states [chains..., d].

  Raises:
    ValueError: If C is not given exactly once, or is not square, symmetric,
      finite and positive definite beyond rounding.

  References:
    Titsias and Papaspiliopoulos (2018), sections 3.3 and 4,
    https://arxiv.org/abs/1610.09641.

  Example:
    days = np.arange(100.0)[:, np.newaxis]
    kernel = tfp.math.psd_kernels.MaternThreeHalves(1.0, np.float64(20))
    prior = tfpa.gaussian_priors.cholesky(kernel=kernel, index_points=days)
    draws = tfpa.gaussian_priors.sample(prior, [4], seed=(0, 1))
  """
  matrix = gaussian_prior.covariance_matrix(
    covariance, kernel, index_points, jitter
  )
  size = matrix.shape[-1]
  factor = _factor(matrix)
  mean = gaussian_prior.mean(mean, matrix.dtype, size)
  params = CholeskyParams(
    gaussian_prior.per_chain(mean, matrix.shape[:-2]),
    factor,
    tf.matmul(factor, factor, transpose_a=True),
  )
  return gaussian_prior.centered(
    'cholesky', [size], params, _covariance, _smoother
  )


def _factor(matrix):
  """Returns L, or NaN instead of an error if there is no L.

  A proposed hyperparameter may overflow. Its log density is then NaN, and the
  proposal is rejected.
  """
  eps = np.finfo(matrix.dtype.as_numpy_dtype).eps
  rounding = matrix.shape[-1] * eps * tf.linalg.diag_part(matrix)
  largest = tf.reduce_max(rounding, axis=-1, keepdims=True)
  factor = _finite_cholesky(matrix, largest)
  if not tf.inside_function():
    _check_factor(matrix.numpy(), factor.numpy())
  return factor


def _finite_cholesky(matrix, variance):
  """Returns the factor of matrix + variance I, or NaN if there is none."""
  is_finite = tf.reduce_all(
    tf.math.is_finite(matrix), axis=[-2, -1], keepdims=True
  )
  diag = tf.linalg.diag_part(matrix) + variance
  shifted = tf.linalg.set_diag(matrix, diag)
  identity = tf.eye(matrix.shape[-1], dtype=matrix.dtype)
  factor = tf.linalg.cholesky(tf.where(is_finite, shifted, identity))
  return tf.where(is_finite, factor, tf.constant(float('nan'), matrix.dtype))


def _check_factor(matrix, factor):
  if not np.all(np.isfinite(matrix)):
    raise ValueError('The covariance has entries that are not finite.')
  if not np.all(np.isfinite(factor)):
    raise ValueError(
      'The covariance is not positive definite beyond rounding. Add `jitter`, '
      'or take `tfpa.gaussian_priors.spectral`, which takes a singular one.'
    )


def _covariance(params):
  """Returns the functions of C = L L^T."""
  factor = params.factor
  times = gaussian_prior.rows_times

  def log_prob(s):
    white = _solve(factor, s)
    log_norm = 0.5 * s.shape[-1] * math.log(2.0 * math.pi)
    return -0.5 * _square(white) - log_norm - _half_log_det(factor)

  return interfaces.Covariance(
    multiply=lambda v: times(times(v, factor), factor, transpose=True),
    draw=lambda e: times(e, factor, transpose=True),
    solve=lambda v: _solve(factor, _solve(factor, v), adjoint=True),
    log_prob=log_prob,
  )


def _smoother(params, variance):
  """Returns the functions of R = L B^-1 L^T."""
  inner = _finite_cholesky(params.gram, variance)
  spread = tf.sqrt(variance)

  def pull(v):
    return gaussian_prior.rows_times(v, params.factor)

  def push(v):
    return gaussian_prior.rows_times(v, params.factor, transpose=True)

  def white(v):
    return _solve(inner, pull(v))

  def draw_marginal(v, e):
    wider = _finite_cholesky(2.0 * params.gram, variance)
    noise = _solve(inner, gaussian_prior.rows_times(e, wider, transpose=True))
    return push(_solve(inner, white(v) + spread * noise, adjoint=True))

  def solve_marginal(v):
    wider = _finite_cholesky(2.0 * params.gram, variance)
    return v - push(_solve(wider, _solve(wider, pull(v)), adjoint=True))

  def log_marginal(z):
    part = _solve(inner, white(z), adjoint=True)
    squares = _square(part) + _square(z - push(part)) / variance
    log_norm = 0.5 * z.shape[-1] * math.log(2.0 * math.pi)
    return -0.5 * squares - log_norm - _half_log_det(inner)

  return interfaces.Smoother(
    gain=lambda v: push(_solve(inner, white(v), adjoint=True)),
    draw=lambda v, e: push(_solve(inner, white(v) + spread * e, adjoint=True)),
    draw_marginal=draw_marginal,
    solve_marginal=solve_marginal,
    log_marginal=log_marginal,
  )


def _solve(factor, rows, adjoint=False):
  """Returns L^-1 v for rows v, or L^-T v; one L, or one for every chain."""
  if factor.shape.rank > 2:
    solved = tf.linalg.triangular_solve(
      _like_rows(factor, rows), rows[..., tf.newaxis], adjoint=adjoint
    )
    return solved[..., 0]
  flat = tf.reshape(rows, [-1, rows.shape[-1]])
  solved = tf.linalg.triangular_solve(
    factor, tf.linalg.matrix_transpose(flat), adjoint=adjoint
  )
  return tf.reshape(tf.linalg.matrix_transpose(solved), tf.shape(rows))


def _like_rows(factor, rows):
  """Returns the factors with the rows' leading dimensions."""
  shape = tf.concat([tf.shape(rows), tf.shape(rows)[-1:]], axis=0)
  return tf.broadcast_to(factor, shape)


def _half_log_det(factor):
  return tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), axis=-1)


def _square(rows):
  return tf.reduce_sum(rows**2, axis=-1)
