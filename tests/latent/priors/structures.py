"""Every structure of prior next to its covariance as a dense matrix.

A new structure joins all tests of `test_contract.py` by one entry of
`STRUCTURES`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import gaussian_priors


class Structure(NamedTuple):
  """A prior and what it must agree with."""

  build: Callable  # (dtype) -> interfaces.GaussianPrior.
  covariance: np.ndarray  # C of the flattened state, [chains..., d, d].
  mean: np.ndarray  # [d] or [chains..., d].
  is_singular: bool = False


def all_functions(prior, rows, noise, variance):
  """Returns what every function of a prior makes of rows."""
  params = prior.params
  s = prior.to_coordinates(params, rows)
  covariance = prior.covariance(params)
  smoother = prior.smoother(params, tf.constant(variance, rows.dtype))
  return [
    s,
    prior.from_coordinates(params, noise),
    prior.pull(params, noise),
    covariance.multiply(s),
    covariance.draw(noise),
    covariance.solve(covariance.multiply(s)),
    covariance.log_prob(covariance.draw(noise)),
    smoother.gain(s),
    smoother.draw(s, noise),
    smoother.draw_marginal(s, noise),
    smoother.solve_marginal(s),
    smoother.log_marginal(s),
  ]


def _matrix(size, seed, rank=None, batch=()):
  """Returns a covariance of mean variance one, of that rank."""
  rng = np.random.default_rng(seed)
  factor = rng.normal(size=(*batch, size, rank or 2 * size))
  return factor @ np.swapaxes(factor, -1, -2) / factor.shape[-1]


def _wrapped(shape, length_scale, variance):
  """Returns the exponential covariance of a torus by its shortest lags."""
  axes = np.meshgrid(*(np.arange(m) for m in shape), indexing='ij')
  squares = 0.0
  for index, m in zip(axes, shape):
    lag = np.abs(index.reshape([-1, 1]) - index.reshape([1, -1]))
    squares = squares + np.minimum(lag, m - lag) ** 2
  scale = np.asarray(length_scale)[..., np.newaxis, np.newaxis]
  return variance * np.exp(-np.sqrt(squares) / scale)


def _block_diagonal(*matrices):
  batch = matrices[0].shape[:-2]
  size = sum(m.shape[-1] for m in matrices)
  joined, start = np.zeros((*batch, size, size)), 0
  for m in matrices:
    stop = start + m.shape[-1]
    joined[..., start:stop, start:stop] = m
    start = stop
  return joined


_MEAN = np.linspace(-1.0, 1.0, 6)
_DENSE = _matrix(6, seed=0)
_LOW_RANK = _matrix(6, seed=1, rank=4)
_BY_CHAIN = _matrix(5, seed=2, batch=(3,))
_MEAN_BY_CHAIN = np.random.default_rng(3).normal(size=(3, 5))
_SIGMA = np.diag(np.linspace(0.5, 2.0, 6))
_ROWS, _COLUMNS = _matrix(3, seed=4), _matrix(4, seed=5, rank=2)
_DEPTH = _matrix(2, seed=6)
_ROWS_BY_CHAIN = _matrix(3, seed=7, batch=(2,))
_GRID_MEAN = np.arange(6.0).reshape(2, 3) / 4.0


def _exponential(length_scale, dtype, variance=1.3):
  dtype = dtype.as_numpy_dtype
  return tfp.math.psd_kernels.MaternOneHalf(
    dtype(variance**0.5), np.asarray(length_scale, dtype)
  )


def _spectral(dtype, covariance=_DENSE, mean=_MEAN, **options):
  return gaussian_priors.spectral(
    tf.constant(covariance, dtype), tf.constant(mean, dtype), **options
  )


def _cholesky(dtype, covariance=_DENSE, mean=_MEAN):
  return gaussian_priors.cholesky(
    tf.constant(covariance, dtype), tf.constant(mean, dtype)
  )


def _stationary_line(dtype):
  return gaussian_priors.stationary(4, _exponential(1.5, dtype), tolerance=0.0)


def _stationary_plane(dtype):
  return gaussian_priors.stationary(
    (2, 3),
    lambda r: 1.3 * tf.exp(-r / 0.7),
    mean=_GRID_MEAN,
    torus_shape=(3, 4),
    dtype=dtype,
  )


def _stationary_by_chain(dtype):
  return gaussian_priors.stationary(
    [3], _exponential([0.5, 2.0], dtype), torus_shape=5, jitter=0.1
  )


def _kronecker(dtype, *factors, mean=0.0):
  return gaussian_priors.kronecker(
    [tf.constant(factor, dtype) for factor in factors], mean=mean
  )


def _markov(dtype, scale):
  scale = tf.constant(scale, dtype)
  return gaussian_priors.random_walk(scale, 5, 1.2, mean=0.5)


def _walk(scale):
  """Returns the covariance of a random walk started at N(0, 1.2^2)."""
  steps = np.minimum(*np.indices((5, 5)))
  return 1.44 + np.asarray(scale)[..., None, None] ** 2 * steps


def precision(order, batch=(), size=6):
  """Returns a precision of so many bands above the diagonal, [..., d, d]."""
  rng = np.random.default_rng(order)
  factor = np.triu(rng.normal(size=(*batch, size, size)))
  factor -= np.triu(factor, order + 1)
  return np.swapaxes(factor, -1, -2) @ factor + 0.3 * np.eye(size)


def bands(matrix, order):
  """Returns the diagonal, and so many of the diagonals above it."""
  return tuple(np.diagonal(matrix, k, -2, -1).copy() for k in range(order + 1))


def _banded(order, batch=()):
  """Returns the structure of a banded precision."""
  matrix = precision(order, batch)
  return Structure(
    lambda dtype: gaussian_priors.markov(
      tuple(tf.constant(band, dtype) for band in bands(matrix, order)),
      mean=_MEAN,
    ),
    np.linalg.inv(matrix),
    _MEAN,
  )


def _autoregression(dtype):
  return gaussian_priors.autoregression(
    tf.constant(_COEFFICIENTS, dtype), 0.6, 5, mean=[[1.0], [-1.0]]
  )


def stationary_covariance(coefficients, scale, size):
  """Returns the covariance by the weights of a long past of the noise."""
  weights = np.zeros(2000)
  weights[0] = 1.0
  for i in range(1, len(weights)):
    for k, a in enumerate(coefficients, start=1):
      weights[i] += a * weights[i - k] if i >= k else 0.0
  lags = [weights[: len(weights) - k] @ weights[k:] for k in range(size)]
  return scale**2 * scipy.linalg.toeplitz(lags)


_COEFFICIENTS = np.array([[0.5, 0.3], [1.1, -0.4]])
_AUTOREGRESSION = np.stack(
  [stationary_covariance(c, 0.6, 5) for c in _COEFFICIENTS]
)
_PLANE = _wrapped((3, 4), 0.7, 1.3)
_PLANE_MEAN = np.pad(_GRID_MEAN, [[0, 1], [0, 1]]).reshape(-1)
_LINE = _wrapped((6,), 1.5, 1.3)

STRUCTURES = dict(
  spectral=Structure(_spectral, _DENSE, _MEAN),
  spectral_singular=Structure(
    lambda dtype: _spectral(dtype, _LOW_RANK), _LOW_RANK, _MEAN, True
  ),
  spectral_by_chain=Structure(
    lambda dtype: _spectral(dtype, _BY_CHAIN, _MEAN_BY_CHAIN),
    _BY_CHAIN,
    _MEAN_BY_CHAIN,
  ),
  spectral_auxiliary=Structure(
    lambda dtype: _spectral(dtype, auxiliary_covariance=_SIGMA), _DENSE, _MEAN
  ),
  cholesky=Structure(_cholesky, _DENSE, _MEAN),
  cholesky_by_chain=Structure(
    lambda dtype: _cholesky(dtype, _BY_CHAIN, _MEAN_BY_CHAIN),
    _BY_CHAIN,
    _MEAN_BY_CHAIN,
  ),
  stationary_line=Structure(_stationary_line, _LINE, np.zeros(6)),
  stationary_plane=Structure(_stationary_plane, _PLANE, _PLANE_MEAN),
  stationary_by_chain=Structure(
    _stationary_by_chain,
    _wrapped((5,), [0.5, 2.0], 1.3) + 0.1 * np.eye(5),
    np.zeros(5),
  ),
  kronecker=Structure(
    lambda dtype: _kronecker(dtype, _ROWS, _DEPTH, mean=np.ones([3, 1])),
    np.kron(_ROWS, _DEPTH),
    np.ones(6),
  ),
  kronecker_singular=Structure(
    lambda dtype: _kronecker(dtype, _ROWS, _COLUMNS, _DEPTH, mean=0.5),
    np.kron(np.kron(_ROWS, _COLUMNS), _DEPTH),
    np.full(24, 0.5),
    True,
  ),
  kronecker_by_chain=Structure(
    lambda dtype: _kronecker(dtype, _DEPTH, _ROWS_BY_CHAIN, mean=0.5),
    np.stack([np.kron(_DEPTH, rows) for rows in _ROWS_BY_CHAIN]),
    np.full(6, 0.5),
  ),
  copies=Structure(
    lambda dtype: gaussian_priors.block(_kronecker(dtype, _ROWS, _DEPTH), 2),
    np.kron(np.eye(2), np.kron(_ROWS, _DEPTH)),
    np.zeros(12),
  ),
  markov=Structure(
    lambda dtype: _markov(dtype, 0.6), _walk(0.6), np.full(5, 0.5)
  ),
  banded=_banded(3),
  banded_by_chain=_banded(2, (2,)),
  autoregression_by_chain=Structure(
    _autoregression, _AUTOREGRESSION, np.array([[1.0], [-1.0]]) + np.zeros(5)
  ),
  side_by_side=Structure(
    lambda dtype: gaussian_priors.block(
      [
        _stationary_plane(dtype),
        _cholesky(dtype),
        _kronecker(dtype, _DEPTH, _DEPTH),
      ]
    ),
    _block_diagonal(_PLANE, _DENSE, np.kron(_DEPTH, _DEPTH)),
    np.concatenate([_PLANE_MEAN, _MEAN, np.zeros(4)]),
  ),
)
