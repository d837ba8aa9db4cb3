"""Length scales of a Gaussian process classifier, its field integrated out.

  theta_j ~ N(0, 5),  j = 1..d,  l_j^2 = exp(theta_j)
  f ~ N(0, K),  K(s, s') = exp(-sum_j (s_j - s'_j)^2 / (2 l_j^2)) + jitter [=]
  log p(y | f) = sum_i [y_i f_i - log(1 + e^{f_i})]

p(y | theta) has no closed form. Importance sampling from N(m, (K^-1 + W)^-1),
the Laplace fit at theta, estimates it without bias:

  mean over draws of f of  p(y | f) N(f | 0, K) / N(f | m, (K^-1 + W)^-1)

The coordinates are f = L v, K = L L^T. The prior of v is N(0, I), and no number
is divided by an ill-conditioned K. Draws come in pairs m +- e, so that errors
of the fit that are odd in e cancel.

Prior, unit variance of the field and 100 draws follow the paper, which takes
them from kernel adaptive Metropolis-Hastings. Inputs are whitened by the
Cholesky factor of their covariance, as in the authors' code.

References: Filippone and Girolami (2014), 3.1; Rasmussen and Williams (2006),
Algorithm 3.1; Strathmann et al. (2015), 6, https://arxiv.org/abs/1506.02564;
Sejdinovic et al. (2014), 5.1; https://github.com/karlnapf/kernel_hmc.
"""

from typing import Literal

import numpy as np
import tensorflow as tf
from pydantic import Field

from experiments.data import datasets
from experiments.data.sources import BINARY
from experiments.targets.base import Target
from experiments.targets.base import TargetParameters
from experiments.targets.random_draws import standard_normals
from experiments.targets.registry import TARGETS

_PRIOR_VARIANCE = 5.0


def covariance_matrices(inputs, theta, jitter):
  """Returns K, [chains..., n, n], at log squared length scales theta."""
  scaled = inputs * tf.exp(-0.5 * theta)[..., tf.newaxis, :]
  squares = tf.reduce_sum(tf.square(scaled), axis=-1)
  inner = tf.matmul(scaled, scaled, transpose_b=True)
  distances = squares[..., tf.newaxis] + squares[..., tf.newaxis, :] - 2 * inner
  kernel = tf.exp(-0.5 * tf.maximum(distances, 0.0))
  return kernel + jitter * tf.eye(inputs.shape[0], dtype=kernel.dtype)


def laplace_fit(covariance, labels, num_steps):
  """Returns (a, W) of the mode K a of p(f | y), both [chains..., n].

  Newton's method takes a fixed number of steps from 0 on the concave
  log p(f | y). W is the negative curvature of the log likelihood at the mode.

  Args:
    covariance: K, [chains..., n, n].
    labels: [n] of zeros and ones.
    num_steps: Steps of Newton's method. With a unit variance, 5 steps are
      exact up to rounding.
  """
  eye = tf.eye(covariance.shape[-1], dtype=covariance.dtype)

  def body(step, weights):
    field = tf.linalg.matvec(covariance, weights)
    probability = tf.math.sigmoid(field)
    curvature = probability * (1.0 - probability)
    root = tf.sqrt(curvature)
    # B = I + W^1/2 K W^1/2 has no eigenvalue below 1.
    balanced = (
      eye + root[..., tf.newaxis] * covariance * root[..., tf.newaxis, :]
    )
    pulled = curvature * field + labels - probability
    solved = tf.linalg.cholesky_solve(
      tf.linalg.cholesky(balanced),
      (root * tf.linalg.matvec(covariance, pulled))[..., tf.newaxis],
    )
    return step + 1, pulled - root * solved[..., 0]

  _, weights = tf.while_loop(
    lambda step, _: step < num_steps,
    body,
    (0, tf.zeros_like(covariance[..., 0])),
    maximum_iterations=num_steps,
  )
  probability = tf.math.sigmoid(tf.linalg.matvec(covariance, weights))
  return weights, probability * (1.0 - probability)


def log_marginal_likelihood(covariance, labels, noise, num_newton_steps=5):
  """Returns log of an unbiased estimate of p(y | K), [chains...].

  Args:
    covariance: K, [chains..., n, n].
    labels: [n] of zeros and ones.
    noise: Standard normals, [chains..., n, num_pairs]. Each column is used with
      both signs.
    num_newton_steps: Steps of the fit. The estimate is unbiased for any number.
  """
  weights, curvature = laplace_fit(covariance, labels, num_newton_steps)
  factor = tf.linalg.cholesky(covariance)
  mode = tf.linalg.matvec(factor, weights, transpose_a=True)
  # Given the fit, v has precision A = I + L^T W L = R R^T: v = mode + R^-T e.
  precision = tf.matmul(
    factor, curvature[..., tf.newaxis] * factor, transpose_a=True
  ) + tf.eye(covariance.shape[-1], dtype=covariance.dtype)
  root = tf.linalg.cholesky(precision)
  offset = tf.linalg.triangular_solve(root, noise, adjoint=True)
  draws = mode[..., tf.newaxis] + tf.concat([offset, -offset], axis=-1)
  field = tf.matmul(factor, draws)
  log_likelihood = tf.reduce_sum(
    labels[:, tf.newaxis] * field - tf.math.softplus(field), axis=-2
  )
  energy = tf.reduce_sum(tf.square(noise), axis=-2)
  log_ratio = 0.5 * (
    tf.concat([energy, energy], axis=-1)
    - tf.reduce_sum(tf.square(draws), axis=-2)
  )
  log_det = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)), axis=-1)
  num_draws = tf.cast(tf.shape(draws)[-1], draws.dtype)
  log_weights = log_likelihood + log_ratio
  return (
    tf.reduce_logsumexp(log_weights, axis=-1) - tf.math.log(num_draws) - log_det
  )


def gp_pseudo_marginal_target(
  name, inputs, labels, num_draws=100, jitter=1e-6, dtype='float64'
):
  """Returns the stochastic posterior of log squared length scales.

  Args:
    inputs: [num_rows, d].
    labels: [num_rows] of zeros and ones.
    num_draws: Importance draws of one estimate, an even number.
    jitter: Variance of white noise in the field, a part of the model.
    dtype: Dtype of the states. The estimate is always computed in float64.
  """
  inputs = np.asarray(inputs, np.float64)
  labels = np.asarray(labels, np.float64)
  num_rows, event_size = inputs.shape

  def target_log_prob_fn(theta, seed):
    theta = tf.cast(theta, tf.float64)
    shape = tf.concat([tf.shape(theta)[:-1], [num_rows, num_draws // 2]], 0)
    noise = standard_normals(shape, seed)
    covariance = covariance_matrices(inputs, theta, jitter)
    log_likelihood = log_marginal_likelihood(covariance, labels, noise)
    log_prior = -0.5 * tf.reduce_sum(tf.square(theta), -1) / _PRIOR_VARIANCE
    return tf.cast(log_likelihood + log_prior, dtype)

  def sample_prior(num_chains, seed):
    rng = np.random.default_rng(seed)
    draws = rng.normal(size=(num_chains, event_size))
    return np.sqrt(_PRIOR_VARIANCE) * draws

  return Target(
    name=name,
    target_log_prob_fn=target_log_prob_fn,
    event_size=event_size,
    dtype=dtype,
    sample_prior=sample_prior,
    suggested_start=np.zeros(event_size),
    is_stochastic=True,
  )


@TARGETS.register('gp_pseudo_marginal')
class GpPseudoMarginal(TargetParameters):
  """Length scales of a GP classifier, with an unbiased likelihood estimate."""

  dataset: Literal[BINARY] = 'glass'  # type: ignore[valid-type]
  num_draws: int = Field(
    100, ge=2, multiple_of=2, description='importance draws of an estimate'
  )
  jitter: float = Field(1e-6, gt=0)

  def build(self, context):
    inputs, labels = datasets.load(self.dataset, context.data_dir)
    return gp_pseudo_marginal_target(
      f'gp_pseudo_marginal_{self.dataset}',
      datasets.whitened(inputs),
      labels,
      self.num_draws,
      self.jitter,
      context.dtype,
    )
