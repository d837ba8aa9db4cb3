"""Arrays of draws on disk that read only the requested parts.

A `LazyDraws` has the shape, dtype and axes of the array in memory,
[num_results, chains..., event...], and takes ints and slices. On disk the first
axis holds all chains, as in ArviZ.
"""

import math
import operator

import numpy as np

from tfp_adaptive.driver import checkpoint
from tfp_adaptive.driver import convergence

_ALL = slice(None)


class LazyDraws:
  """One recorded array, read by `[...]`, by blocks or by columns.

  `np.asarray` and functions of numpy read the whole array. Only `np.mean` and
  `np.any` read it block by block.

  The array on disk has `shape`, `dtype`, `chunks` and slicing. It is [chains,
  draws, event...], or [draws, ...] if `chain_shape`, the shape of the chain
  axes in memory, is `None`.
  """

  def __init__(self, array, folder, chain_shape=None):
    self._array = array
    self.folder = folder
    self._chain_shape = chain_shape
    shape = tuple(array.shape)
    if chain_shape is not None:
      shape = (shape[1], *chain_shape, *shape[2:])
    self.shape = shape
    self.dtype = np.dtype(array.dtype)
    self._means = {}

  @property
  def ndim(self):
    return len(self.shape)

  @property
  def size(self):
    return math.prod(self.shape)

  def __len__(self):
    return self.shape[0]

  def __repr__(self):
    return f'LazyDraws({list(self.shape)} {self.dtype} in {str(self.folder)!r})'

  def __array__(self, dtype=None, copy=None):
    if copy is False:
      raise ValueError('Draws on disk are copied when they are read.')
    return np.asarray(self[...], dtype)

  def __iter__(self):
    for rows in self.blocks():
      yield from rows

  def __getitem__(self, key):
    """Returns the numpy array for an int or a slice of each axis."""
    wanted, after = [], []
    for size, one in zip(self.shape, self._of_each_axis(key)):
      of_axis, then = _forwards(size, one)
      wanted.append(of_axis)
      after.append(then)
    if self._chain_shape is None:
      return self._read(tuple(wanted))[tuple(after)]
    num_chain_dims = len(self._chain_shape)
    draws, *events = wanted[:1] + wanted[1 + num_chain_dims :]
    rows = np.swapaxes(self._read((_ALL, draws, *events)), 0, 1)
    rows = rows.reshape(len(rows), *self._chain_shape, *rows.shape[2:])
    # All chains are read, because a chunk holds all chains.
    chains = zip(wanted[1 : 1 + num_chain_dims], after[1:])
    for axis, (of_axis, _) in enumerate(chains, start=1):
      rows = rows[(_ALL,) * axis + (of_axis,)]
    return np.array(rows[tuple(after)], order='C')[()]

  def blocks(self):
    """Yields the blocks on disk, [some draws, chains..., event...]."""
    step = self._array.chunks[0 if self._chain_shape is None else 1]
    for start in range(0, len(self), step):
      yield self[start : start + step]

  @property
  def thinning(self):
    """Thinning of the draws that `columns` reads: 1 unless there are many."""
    num_chains, num_draws = self._array.shape[:2]
    return convergence.thinning(num_draws, num_chains)

  def columns(self):
    """Yields (coordinates [g], draws [n, chains, g]) of each chunk."""
    events, chunk = self._array.shape[2:], self._array.chunks[2:]
    coordinates = np.arange(math.prod(events)).reshape(events)
    num_groups = [-(-size // width) for size, width in zip(events, chunk)]
    for corner in np.ndindex(*num_groups):
      where = tuple(
        slice(index * width, (index + 1) * width)
        for index, width in zip(corner, chunk)
      )
      draws = self._read((_ALL, slice(None, None, self.thinning), *where))
      draws = np.swapaxes(draws.reshape(*draws.shape[:2], -1), 0, 1)
      yield coordinates[where].reshape(-1), np.ascontiguousarray(draws)

  def mean(self, axis=None, dtype=None, out=None, keepdims=False, **kwargs):
    """Returns the mean over `axis`, which must include 0, block by block."""
    _check_options(dtype=dtype, out=out, **kwargs)
    axes = self._axes(axis)
    if axes not in self._means:
      wide = np.complex128 if self.dtype.kind == 'c' else np.float64
      total = np.sum(np.empty((0, *self.shape[1:]), wide), axis=axes)
      for rows in self.blocks():
        total = total + np.sum(rows, axis=axes, dtype=wide)
      count = math.prod(self.shape[i] for i in axes)
      kind = self.dtype if self.dtype.kind in 'fc' else np.dtype(np.float64)
      # The mean of no draws is NaN, as in numpy.
      self._means[axes] = np.asarray(np.divide(total, count)).astype(kind)
    return self._over(axes, self._means[axes], keepdims)

  def any(self, axis=None, out=None, keepdims=False, **kwargs):
    """Returns whether any number over `axis`, which must include 0, is true."""
    _check_options(out=out, **kwargs)
    axes = self._axes(axis)
    found = False
    for rows in self.blocks():
      found = found | np.any(rows, axis=axes)
    return self._over(axes, found, keepdims)

  def _over(self, axes, found, keepdims):
    """Returns a copy of a result over axes; `keepdims` keeps these axes."""
    if keepdims:
      found = np.expand_dims(found, axes)
    return np.array(found)[()]

  def _axes(self, axis):
    axes = range(self.ndim) if axis is None else np.atleast_1d(axis)
    for i in axes:
      if not -self.ndim <= i < self.ndim:
        raise np.exceptions.AxisError(int(i), self.ndim)
    axes = tuple(sorted(int(i) % self.ndim for i in axes))
    if 0 not in axes:
      raise ValueError(
        f'A result over axis {axis} would be as long as the draws on disk. '
        'Add axis 0, or call `np.asarray` on a slice of the draws first.'
      )
    return axes

  def _of_each_axis(self, key):
    """Returns one int or slice for each axis."""
    key = key if isinstance(key, tuple) else (key,)
    is_basic = [
      one is Ellipsis
      or isinstance(one, slice)
      # An array of one number is not an int.
      or (np.ndim(one) == 0 and np.asarray(one).dtype.kind in 'iu')
      for one in key
    ]
    num_ellipses = sum(one is Ellipsis for one in key)
    if not all(is_basic) or num_ellipses > 1:
      raise IndexError(
        f'Draws on disk take ints, slices and one `...`, but got {key!r}. '
        'Read a slice first and index the array that it gives, for example '
        '`states[1000:2000][:, [0, 2]]`.'
      )
    if len(key) - num_ellipses > self.ndim:
      raise IndexError(
        f'Draws with {self.ndim} axes take at most {self.ndim} indices, but '
        f'got {len(key) - num_ellipses}.'
      )
    place = (
      [one is Ellipsis for one in key].index(True)
      if num_ellipses
      else (len(key))
    )
    missing = self.ndim - (len(key) - num_ellipses)
    return (*key[:place], *[_ALL] * missing, *key[place + num_ellipses :])

  def _read(self, wanted):
    try:
      return np.asarray(self._array[wanted])
    except (OSError, ValueError, RuntimeError) as error:
      raise checkpoint.CheckpointError(
        f'Draws in {self.folder} cannot be read: {error}. What was damaged or '
        'taken away there is lost; its other draws can still be sliced.'
      ) from error


def _check_options(**options):
  """Refuses options of numpy that draws on disk lack, such as `out`."""
  given = [name for name, value in options.items() if value is not None]
  if given:
    raise ValueError(
      f'Draws on disk do not support the option {", ".join(map(repr, given))}. '
      'Use numpy on `np.asarray` of the draws, or of a slice.'
    )


def _forwards(size, key):
  """Returns (slice with a positive step, rest): x[slice][rest] = x[key]."""
  if isinstance(key, slice):
    rows = range(size)[key]
    if not rows:
      return slice(0, 0), _ALL
    if rows.step < 0:
      return slice(rows[-1], rows[0] + 1, -rows.step), slice(None, None, -1)
    return slice(rows.start, rows.stop, rows.step), _ALL
  index = range(size)[operator.index(key)]
  return slice(index, index + 1), 0
