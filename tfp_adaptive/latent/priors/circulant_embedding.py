"""Embeds a stationary covariance on a grid in a covariance on a torus.

On n points per axis, a covariance k(h) of lags h is wrapped on m >= n points:

  c(h) = k(h'),  h' the shortest of h + j m,  or  c(h) = sum over j k(h + j m)

for integers j. The eigenvalues are the FFT of c. The first form is exact on the
grid if m >= 2 (n - 1), but may have negative eigenvalues. The second form has
no negative eigenvalues if k decays within the torus, and its error is the value
of k at lag m - n + 1. Both forms are tried. Negative eigenvalues are set to
zero, and the resulting covariance on the grid is compared with k.

Source: Dietrich and Newsam (1997), Fast and exact simulation of stationary
Gaussian processes through circulant embedding of the covariance matrix.
"""

import itertools
import math

import numpy as np

_GROWTH = 1.25
_MAX_RATIO = 8


def choose(lag_fn, grid_shape, tolerance, torus_shape=None):
  """Returns c on the smallest torus within the tolerance, [..., m1, m2].

  `lag_fn` is a function from lags in cells, an integer array [*shape] for each
  axis, to covariances [..., *shape] of a floating dtype. `tolerance` is the
  allowed error of the covariance on the grid, relative to the variance. Only
  `torus_shape` is tried if it is given. c is float64, and no eigenvalue of c is
  negative.
  """
  wanted = lag_fn(_grid_lags(grid_shape))
  variance = _variance(wanted, grid_shape)
  shapes = [torus_shape]
  if torus_shape is None:
    shapes = _shapes(lag_fn, grid_shape, tolerance * variance)
  errors = {}
  for shape in shapes:
    for wrap in (_nearest, periodized):
      values, rounding = _without_negative_part(wrap(lag_fn, shape), variance)
      gap = np.max(np.abs(_on_grid(values, grid_shape) - wanted))
      if gap <= tolerance * variance + rounding:
        return values
      errors[shape] = min(gap / variance, errors.get(shape, np.inf))
  raise ValueError(_advice(errors, tolerance, torus_shape))


def periodized(lag_fn, shape):
  """Returns the sum of k(h + j m) over j = -1, 0, 1 on every axis."""
  lags = _torus_lags(shape)
  images = [(-m, 0, m) if m > 1 else (0,) for m in shape]
  return sum(
    lag_fn(tuple(lag + shift for lag, shift in zip(lags, shifts)))
    for shifts in itertools.product(*images)
  )


def fast_size(size):
  """Returns the smallest product of 2, 3 and 5 that is at least `size`."""
  while True:
    rest = size
    for prime in (2, 3, 5):
      while rest % prime == 0:
        rest //= prime
    if rest == 1:
      return size
    size += 1


def _nearest(lag_fn, shape):
  return lag_fn(_torus_lags(shape))


def _torus_lags(shape):
  """Returns the shortest lag of every point of the torus to the first one."""
  axes = [(np.arange(m) + (m - 1) // 2) % m - (m - 1) // 2 for m in shape]
  return tuple(np.meshgrid(*axes, indexing='ij'))


def _grid_lags(grid_shape):
  """Returns lags between points of the grid.

  One of h and -h occurs, or both if the first component is 0.
  """
  axes = [np.arange(grid_shape[0]), np.arange(1 - grid_shape[1], grid_shape[1])]
  return tuple(np.meshgrid(*axes, indexing='ij'))


def _on_grid(values, grid_shape):
  """Returns the torus' covariance at `_grid_lags`."""
  first, second = _grid_lags(grid_shape)
  return values[..., first % values.shape[-2], second % values.shape[-1]]


def _variance(wanted, grid_shape):
  """Returns the largest k(0) of all batch members, after a check of k."""
  if not np.all(np.isfinite(wanted)):
    raise ValueError(
      'The covariance function has values that are not finite on the grid. '
      'Check it at distance 0, and its parameters.'
    )
  variances = wanted[..., 0, grid_shape[1] - 1]
  largest = np.max(np.abs(wanted), axis=(-2, -1))
  if np.any(variances <= 0.0) or np.any(largest > variances * (1.0 + 1e-5)):
    raise ValueError(
      'A covariance function must be positive at distance 0 and largest there, '
      f'but is {np.min(variances):.3g} there and {np.max(largest):.3g} at its '
      'largest. Pass a function of the distance, not of its square or of a '
      'point.'
    )
  return np.max(variances)


def _shapes(lag_fn, grid_shape, limit):
  """Yields shapes of growing size, from the smallest that may be enough."""
  shape = tuple(
    _first_size(lag_fn, axis, size, limit)
    for axis, size in enumerate(grid_shape)
  )
  while all(m <= _MAX_RATIO * n for m, n in zip(shape, grid_shape)):
    yield shape
    if max(shape) == 1:
      return
    shape = tuple(
      m if m == 1 else fast_size(math.ceil(_GROWTH * m)) for m in shape
    )


def _first_size(lag_fn, axis, size, limit):
  """Returns the size at which c errs by at most `limit` along an axis."""
  if size == 1:
    return 1
  along = np.arange(size + 1)[np.newaxis]
  lags = [np.zeros_like(along), np.zeros_like(along)]
  lags[axis] = along
  values = np.abs(lag_fn(tuple(lags)))[..., 0, :]
  tail = np.maximum.accumulate(values[..., ::-1], axis=-1)[..., ::-1]
  is_dead = np.all(tail.reshape([-1, size + 1]) <= limit, axis=0)
  exact = 2 * (size - 1)
  enough = size - 1 + np.argmax(is_dead) if np.any(is_dead) else exact
  return fast_size(max(size, min(enough, exact)))


def _without_negative_part(values, variance):
  """Returns c with negative eigenvalues set to 0, and its rounding error."""
  epsilon = np.finfo(values.dtype).eps
  spectrum = np.fft.fft2(values.astype(np.float64)).real
  # Rounding errors of c, of size eps times the variance, add up over about
  # max(spectrum) / variance entries.
  rounding = 4.0 * epsilon * np.sqrt(np.max(spectrum) * variance)
  return np.fft.ifft2(np.maximum(spectrum, 0.0)).real, rounding


def _advice(errors, tolerance, torus_shape):
  shape = min(errors, key=errors.get)
  tried = (
    f'the torus {torus_shape}'
    if torus_shape is not None
    else f'any of {len(errors)} toruses of up to {_MAX_RATIO} times the grid'
  )
  return (
    f'No field on {tried} has this covariance to within {tolerance:.3g} of '
    'the variance. Negative eigenvalues were set to zero, and the least error, '
    f'{errors[shape]:.3g}, is on the torus {shape}. Allow this error with '
    f'`tolerance={1.01 * errors[shape]:.3g}`, give a larger `torus_shape`, '
    'take a kernel that dies off within the grid (a shorter length scale), or '
    'use `tfpa.gaussian_priors.kronecker` or `spectral`, '
    'which need no torus.'
  )
