"""A stationary field on a regular grid, by FFT on a torus around it."""

import functools

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import shown
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.latent.priors import circulant_embedding
from tfp_adaptive.latent.priors import fourier_basis
from tfp_adaptive.latent.priors import gaussian_prior
from tfp_adaptive.latent.priors import spectral_prior


@shown.remembers_call
def stationary(
  grid_shape,
  kernel,
  spacing=1.0,
  mean=0.0,
  tolerance=1e-6,
  torus_shape=None,
  jitter=0.0,
  dtype=None,
):
  """Builds a stationary prior on a regular grid in one or two dimensions.

  The state is the field on a torus around the grid. There the covariance is
  diagonal in a Fourier basis, so that a step with a gradient costs two FFTs,
  O(d log d), and nothing is decomposed. The likelihood is called with the field
  on the grid alone, which `prior.restrict(states)` returns. The field on the
  rest of the torus follows its distribution given the grid.

  The covariance on the grid is right up to `tolerance`. By default the torus
  exceeds the grid by the distance at which the covariance is negligible, as
  `tolerance` says. With `tolerance=0` the torus is about twice the grid. For
  long-range kernels the torus is large, and `kronecker` or `spectral` may cost
  less.

  Args:
    grid_shape: Points along every axis: an int, (n,) or (n1, n2).
    kernel: A stationary `tfp.math.psd_kernels` kernel of points with one
      feature for every axis; or a covariance as a function of distance,
      Tensor -> Tensor of the same shape, after batch dimensions if any.
    spacing: Distance between neighbors, in the units of the kernel: a number,
      or one for every axis.
    mean: Mean of the field: a number, or [..., *grid_shape], whose trailing
      dimensions may be 1.
    tolerance: Allowed error of the covariance on the grid, relative to the
      variance. With 0 only rounding is allowed.
    torus_shape: Points of the torus along every axis, at least those of the
      grid; by default the fewest that `tolerance` allows. It must be given
      inside a `tf.function`. There the covariance is the periodic sum of
      `circulant_embedding`, and `tolerance` is not checked.
    jitter: Added to the variance of every point of the torus.
    dtype: float32 or float64; by default that of the kernel, float32 for a
      function.

  Returns:
    An `interfaces.GaussianPrior` of states [chains..., *torus_shape].

  Raises:
    ValueError: If the grid has more than two axes, the kernel is not
      stationary, or no torus within 8 times the grid reproduces it.

  References:
    Dietrich and Newsam (1997), Fast and exact simulation of stationary Gaussian
    processes through circulant embedding of the covariance matrix.

  Example:
    kernel = tfp.math.psd_kernels.MaternThreeHalves(1.0, 5.0)
    prior = tfpa.gaussian_priors.stationary((32, 32), kernel)
    draws = tfpa.gaussian_priors.sample(prior, [4], seed=(0, 1))
    grid = prior.restrict(draws)  # [4, 32, 32]
  """
  grid = _shape(grid_shape, 'grid_shape')
  given = kernel.dtype if _is_psd_kernel(kernel) else None
  dtype = tf.as_dtype(dtype or given or tf.float32)
  lag_fn = functools.partial(_covariance_by_lag, kernel, _steps(spacing, grid))
  lag_fn = functools.partial(lag_fn, dtype)
  torus = _torus(torus_shape, grid)
  if tf.inside_function():
    if torus is None:
      raise ValueError(
        'Inside a `tf.function` the size of the torus cannot depend on the '
        'values of the kernel. Give `torus_shape`, for example the '
        '`event_shape` of the prior with the longest length scale.'
      )
    by_lag = circulant_embedding.periodized(lag_fn, _two_axes(torus))
  else:
    _check_stationary(kernel, _steps(spacing, grid), grid, dtype)
    by_lag = circulant_embedding.choose(
      lambda lags: lag_fn(lags).numpy(),
      _two_axes(grid),
      tolerance,
      None if torus is None else _two_axes(torus),
    )
  torus = tuple(by_lag.shape[-len(grid) :])
  gamma = tf.cast(
    fourier_basis.eigenvalues(tf.convert_to_tensor(by_lag)), dtype
  )
  prior = spectral_prior.build(
    'stationary',
    torus,
    spectral_prior.SpectralParams(
      gaussian_prior.field_mean(mean, dtype, grid, torus),
      spectral_prior.not_negative(gamma) + jitter,
    ),
    forward=lambda _, x: fourier_basis.forward(x, _two_axes(torus)),
    backward=lambda _, s: fourier_basis.backward(s, _two_axes(torus)),
    # The FFT has a small rounding error for any size, unlike a decomposition.
    rounding=10 * np.finfo(dtype.as_numpy_dtype).eps,
  )
  if torus == grid:
    return prior
  return prior._replace(restrict=functools.partial(_restrict, grid))


def _covariance_by_lag(kernel, steps, dtype, lags):
  """Returns k, [..., *shape], at lags in cells, arrays [*shape]."""
  # A grid in one dimension has a dummy axis in front.
  points = [lag * step for lag, step in zip(lags[-len(steps) :], steps)]
  shape = list(points[0].shape)
  if not _is_psd_kernel(kernel):
    distance = np.sqrt(sum(x**2 for x in points))
    values = tf.convert_to_tensor(kernel(tf.constant(distance, dtype)), dtype)
    if values.shape[-2:] != shape:
      raise ValueError(
        'The covariance function must return one number for every distance: '
        f'given {shape}, it returned {values.shape}.'
      )
    return values
  flat = tf.constant(np.stack(points, axis=-1).reshape([-1, len(steps)]), dtype)
  values = kernel.apply(flat, tf.zeros_like(flat[:1]), example_ndims=1)
  return tf.reshape(values, ps.concat([ps.shape(values)[:-1], shape], axis=0))


def _restrict(grid, state):
  """Returns the grid's part of states on the torus."""
  if len(grid) == 1:
    return state[..., : grid[0]]
  return state[..., : grid[0], : grid[1]]


def _shape(shape, name):
  shape = tuple(int(n) for n in np.atleast_1d(shape))
  if len(shape) not in (1, 2) or min(shape) < 1:
    raise ValueError(
      f'`{name}` must be one or two positive ints, but got {shape}. In more '
      'dimensions use `tfpa.gaussian_priors.kronecker` with a separable kernel.'
    )
  return shape


def _torus(torus_shape, grid):
  if torus_shape is None:
    return None
  torus = _shape(torus_shape, 'torus_shape')
  if len(torus) != len(grid) or any(m < n for m, n in zip(torus, grid)):
    raise ValueError(
      f'`torus_shape` must be at least the grid {grid} along every axis, but '
      f'got {torus}.'
    )
  return torus


def _two_axes(shape):
  return (1, *shape)[-2:]


def _steps(spacing, grid):
  steps = np.broadcast_to(np.asarray(spacing, np.float64), [len(grid)])
  if not np.all(steps > 0.0):
    raise ValueError(f'`spacing` must be positive, but got {spacing}.')
  return tuple(float(h) for h in steps)


def _is_psd_kernel(kernel):
  return isinstance(kernel, tfp.math.psd_kernels.PositiveSemidefiniteKernel)


def _check_stationary(kernel, steps, grid, dtype):
  """Refuses a value that is no kernel, and a kernel that is not stationary."""
  if not _is_psd_kernel(kernel):
    if not callable(kernel):
      raise TypeError(
        '`kernel` must be a `tfp.math.psd_kernels` kernel or a function of '
        f'distance, but got {type(kernel).__name__}.'
      )
    return
  far = np.asarray([n * h for n, h in zip(grid, steps)])
  near = np.asarray(steps)
  values = [
    kernel.apply(tf.constant(x + near, dtype), tf.constant(x, dtype)).numpy()
    for x in (0.0 * far, 0.5 * far, far)
  ]
  gap = max(np.max(np.abs(value - values[0])) for value in values)
  if gap > 1e-3 * np.max(np.abs(values[0])):
    raise ValueError(
      f'The kernel {kernel.name!r} is not stationary: its covariance between '
      f'neighbors changes by {gap:.3g} along the grid. Use '
      '`tfpa.gaussian_priors.spectral(kernel=kernel, index_points=points)`.'
    )
